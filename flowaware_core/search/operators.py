"""The search within one program on one mesh: the best assignment of mesh axes to dimensions that fits in memory.

The labelling problem (`problem.py`) is solved first as if memory were free. Where the answer does not fit, it is solved again under
the limit at the moment at which that answer is fullest; the moment is looked up again in the new answer, and so on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cost import memory
from flowaware_core.cost.estimate import Estimate, estimate
from flowaware_core.cost.trace import Buffer, Trace
from flowaware_core.graph.fusion import FUSIBLE
from flowaware_core.graph.layout import Layout, local_shape
from flowaware_core.graph.model import Tensor
from flowaware_core.graph.placement import Choices, layout_of, place
from flowaware_core.search import labelling
from flowaware_core.search.problem import Space
from flowaware_core.search.terms import majors

# The gap that is promised: where the usual number of steps leaves more, so many times as many are made.
CERTIFIED, PATIENCE = 0.01, 8
# Rounds of "solve under the limit at the moments known, look where the answer is fullest".
ROUNDS = 12
# Steps of the bound under the limit, and the gap that is near enough then and on meshes of many axes.
QUICK, NEAR = 400, 0.002


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A complete choice on one mesh, and what it costs.

    Attributes:
        cost: seconds of a step as the labelling counts them: as the estimate, but a copy of a tensor once per node that reads it.
    """

    strategy: str
    mesh: Mesh
    choices: Choices
    cost: float
    estimate: Estimate
    usable_bytes: int

    @property
    def fits(self) -> bool:
        return self.estimate.usage.total <= self.usable_bytes


@dataclasses.dataclass(frozen=True, eq=False)
class Solved:
    """The cheapest labelling of a space as if memory had no limit.

    Attributes:
        labels: of the representatives.
        cost: its seconds; at least the cutoff where nothing under it exists.
        bound: no labelling costs less, or less than the cutoff.
    """

    space: Space
    labels: np.ndarray
    cost: float
    bound: float


def solve(space: Space, cutoff: float = np.inf) -> Solved:
    """The cheapest choice in a space, memory aside; choices that cost at least `cutoff` seconds are not looked for."""
    solution = _solved(space, space.costs, cutoff)
    if solution.lower_bound < min(solution.cost, cutoff) * (1 - CERTIFIED):
        solution = _solved(space, space.costs, cutoff, solution.labels)
    return Solved(space, solution.labels, solution.cost, min(solution.lower_bound, cutoff))


def nearly(space: Space, cutoff: float) -> Solved:
    """As `solve`, but what is near the cheapest will do, and no more than the usual number of steps are made."""
    solution = _solved(space, space.costs, cutoff, gap=NEAR)
    return Solved(space, solution.labels, solution.cost, min(solution.lower_bound, cutoff))


def search(solved: Solved, strategy: str, cutoff: float = np.inf) -> tuple[Candidate, float]:
    """The fastest choice that fits, or the one that needs least memory; and a lower bound of what fits.

    Args:
        solved: the answer without a limit.
        strategy: a name for the result.
        cutoff: choices that cost so many seconds are not looked for, and what is returned need not fit.
    """
    best = priced(solved.space, strategy, solved.labels)
    if best.fits:
        return best, solved.bound
    return _lean(solved, strategy, best, cutoff)


def priced(space: Space, strategy: str, labels: np.ndarray) -> Candidate:
    """A labelling with everything the cost model says of it."""
    outline = space.outline
    choices = space.choices(labels.tolist())
    placed = place(outline.graph, outline.structure, choices)
    found = estimate(outline.graph, placed, space.mesh, space.device)
    return Candidate(strategy, space.mesh, choices, cost(space, labels), found, space.device.usable_bytes)


def cost(space: Space, labels: np.ndarray) -> float:
    """Seconds of a labelling."""
    return labelling.Problem(space.costs, space.edges, space.matrices).cost(labels)


def better(one: Candidate, other: Candidate) -> Candidate:
    """The faster of two that fit; the one that fits; or the smaller of two that do not. The first wins a tie."""
    if one.fits and other.fits:
        return other if other.estimate.step_s < one.estimate.step_s * (1 - 1e-9) else one
    if one.fits != other.fits:
        return one if one.fits else other
    return other if other.estimate.usage.total < one.estimate.usage.total else one


def _solved(
    space: Space,
    costs: tuple[np.ndarray, ...],
    cutoff: float = np.inf,
    start: np.ndarray | None = None,
    gap: float = labelling.EQUAL,
) -> labelling.Solution:
    """The answer of the labelling core; from a `start`, with more patience."""
    problem = labelling.Problem(costs, space.edges, space.matrices)
    if start is None:
        return labelling.solve(problem, cutoff=cutoff, gap=gap)
    return labelling.solve(problem, cutoff=cutoff, seeds=(start,), iterations=PATIENCE * labelling.ITERATIONS)


def _lean(solved: Solved, strategy: str, start: Candidate, cutoff: float) -> tuple[Candidate, float]:
    """The search under the limit; `start` is the answer without it, which does not fit."""
    space, labels = solved.space, solved.labels
    if hopeless(space, start):
        leanest = priced(space, strategy, _leanest(space, _argument_bytes(space, start)))
        return better(start, leanest), solved.bound
    best, latest, bound = start, start, solved.bound
    moments: list[list[np.ndarray]] = []
    rest: list[float] = []
    for _ in range(ROUNDS):
        moments.append(_occupied(space, latest))
        # What the labels do not decide, such as copies on the way, is taken off the limit.
        rest.append(latest.estimate.usage.total - _sum(moments[-1], labels))
        found = _within(space, moments, rest, cutoff)
        labels = found.labels
        if cutoff < np.inf and not (found.feasible and found.cost < cutoff):
            break
        if not found.feasible:  # with what comes on top in this plan; less may come on top in a leaner one
            labels = _leanest(space, [np.sum(parts, axis=0) for parts in zip(*moments, strict=True)])
        latest = priced(space, strategy, labels)
        best = better(best, latest)
        if latest.fits or not found.feasible:
            break
    if best.fits or cutoff < np.inf:
        certain = certain_bytes(space, best if best.fits else latest)
        bound = max(bound, min(_within(space, [certain], [0.0], cutoff).lower_bound, cutoff))
    return best, bound


def hopeless(space: Space, candidate: Candidate) -> bool:
    """Whether the arguments alone are too large for the memory, however they are cut."""
    least = sum(float(held.min()) for held in _argument_bytes(space, candidate))
    return least > space.device.usable_bytes


def _leanest(space: Space, occupied: list[np.ndarray]) -> np.ndarray:
    """The cheapest labelling among those that occupy least, or nearly so."""
    dearest = sum(float(cost.max()) for cost in space.costs)
    smallest = min((float(np.ptp(amounts)) for amounts in occupied if np.ptp(amounts) > 0), default=1.0)
    price = 10.0 * dearest / smallest
    costs = tuple(cost + price * amounts for cost, amounts in zip(space.costs, occupied, strict=True))
    return _solved(space, costs).labels


def _within(
    space: Space, moments: Sequence[list[np.ndarray]], rest: Sequence[float], cutoff: float = np.inf
) -> labelling.Solution:
    """The cheapest labelling under the limit at some moments, or the one that occupies least.

    Args:
        moments: per moment the bytes by representative and label.
        rest: per moment the bytes that no label decides.
        cutoff: labellings that cost so many seconds are not looked for.
    """
    rows = [
        (node, moment, moment + 1, amounts + (rest[moment] if node == 0 else 0.0))
        for moment, occupied in enumerate(moments)
        for node, amounts in enumerate(occupied)
    ]
    problem = labelling.Problem(space.costs, space.edges, space.matrices, tuple(rows), space.device.usable_bytes)
    return labelling.solve(problem, iterations=QUICK, gap=NEAR, cutoff=cutoff)


def _sum(amounts: list[np.ndarray], labels: np.ndarray) -> float:
    return float(sum(values[label] for values, label in zip(amounts, labels, strict=True)))


def _occupied(space: Space, candidate: Candidate) -> list[np.ndarray]:
    """Bytes at the fullest moment of a candidate, by representative and label, of all the nodes that it stands for."""
    trace = candidate.estimate.trace
    moment, alive = _at_its_fullest(trace)
    within = [trace.buffers[m] for m, (first, last) in alive.items() if first <= moment <= last]
    return _bytes(space, candidate, [*trace.inputs, *within])


def certain_bytes(space: Space, candidate: Candidate) -> list[np.ndarray]:
    """Bytes that any plan holds at the point of the program at which this one is fullest, by representative and label.

    Arguments, and what is made before that point, read after it, and not computed again on the way: each in the layout of its
    group, or in a larger one. Left out is what has a view, which may be all that its readers need.
    """
    trace = candidate.estimate.trace
    moment, alive = _at_its_fullest(trace)
    viewed = set(space.outline.terms.views)
    across = [trace.buffers[m] for m, (first, last) in alive.items() if first < moment < last]
    held = [b for b in across if b.kept and b.primitive not in FUSIBLE and b.tensor not in viewed]
    return _bytes(space, candidate, [*trace.inputs, *held])


def _at_its_fullest(trace: Trace) -> tuple[int, dict[int, tuple[int, int]]]:
    """The moment at which most is alive, and when each buffer is that neither comes in nor goes out."""
    alive = memory.lifetimes(trace)
    outside = {buffer.moment for buffer in (*trace.inputs, *trace.outputs) if buffer is not None}
    return memory.fullest(trace, alive), {m: span for m, span in alive.items() if m not in outside}


def _argument_bytes(space: Space, candidate: Candidate) -> list[np.ndarray]:
    """Bytes of the arguments, by representative and label."""
    return _bytes(space, candidate, list(candidate.estimate.trace.inputs))


def _bytes(space: Space, candidate: Candidate, buffers: list[Buffer]) -> list[np.ndarray]:
    """Bytes of some buffers of a candidate under each label of the node that decides them, if one does.

    A copy takes nothing under a label that wants its tensor in the layout in which the candidate keeps it.
    """
    outline = space.outline
    graph, structure, terms = outline.graph, outline.structure, outline.terms
    placed = place(graph, structure, candidate.choices)
    node_of_operator = {operator: terms.groups + index for index, operator in enumerate(terms.operators)}
    start = terms.groups + len(terms.operators)
    node_of_view = {tensor: start + index for index, tensor in enumerate(terms.views)}
    rules = {operator.id: operator for operator in structure.free}
    total = [np.zeros(len(labels)) for labels in space.labels]
    sizes: dict[tuple[object, ...], np.ndarray] = {}

    def add(node: int, tensor: Tensor, dims: tuple[int, ...], kept: Layout | None) -> None:
        representative = outline.repeats.of[node]
        labels = space.labels[representative]
        key = (tensor.shape, tensor.itemsize, dims, id(labels), kept)
        if key not in sizes:
            layouts = [layout_of(dims, label) for label in labels]
            shards = [
                0 if layout == kept else math.prod(local_shape(tensor.shape, layout, space.mesh.sizes))
                for layout in layouts
            ]
            sizes[key] = np.array(shards, dtype=float) * tensor.itemsize
        total[representative] += sizes[key]

    for buffer in buffers:
        tensor = graph.tensors[buffer.tensor]
        own, kept = structure.dims_of[tensor.id], placed.tensors[tensor.id]
        operator = rules.get(buffer.operator)
        if buffer.kept:
            if structure.group_of[tensor.id] >= 0:
                add(structure.group_of[tensor.id], tensor, own, None)
        elif tensor.id in placed.views and buffer.primitive != "slice":
            add(node_of_view[tensor.id], tensor, own, kept)
        elif operator is not None:
            made = tensor.id in operator.results
            side = (operator.results, operator.rule.results) if made else (operator.operands, operator.rule.operands)
            dims = next((dims for number, dims in zip(*side, strict=True) if number == tensor.id), None)
            if dims is not None:
                add(node_of_operator[operator.id], tensor, majors(dims), None if made else kept)
    return total
