"""The search on the finest mesh of all, which has every plan of every other.

Where levels are split into their prime factors, nodes of a program have thousands of labels and pairs of nodes millions: too many
to price. So axes that are interchangeable are first not told apart, and changes of layout cost what the kindest order of such axes
takes: a labelling of these few classes bounds every plan on every mesh from below. Its answer is then spelled out: every node
chooses among the orders of the axes that it was given. Where two nodes cannot both have the kindest order, the pair of classes
gets what the best order for the two takes, which still is a bound, and the rest is solved again. What is left of a gap in the end
comes from orders that do not agree around a circle of nodes: then all classes that the bound leaves are spelled out.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import Device
from flowaware_core.cost.resharding import Chains
from flowaware_core.graph.placement import Assignment
from flowaware_core.search import labelling
from flowaware_core.search.operators import Candidate, Solved, confined, nearly, search
from flowaware_core.search.problem import Outline, Space

# Of solving and raising; fewer where memory binds and each takes long.
ROUNDS, FEW_ROUNDS = 12, 4
# Pairs of labels that are spelled out at most.
MOST_PAIRS = 30_000_000
# Part of a cost by which two orders must differ to be told apart.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Finest:
    """What was found on the finest mesh.

    Attributes:
        best: a plan that fits; None where none was found that costs less than the cutoff.
        bound: no plan on any mesh costs less, or less than the cutoff.
        digits: decimal logarithm of the number of plans in the space.
    """

    best: Candidate | None
    bound: float
    digits: float


def finest(outline: Outline, mesh: Mesh, device: Device, cutoff: float, full: Candidate | None = None) -> Finest:
    """Bounds what all meshes have, and looks for plans on the finest.

    Args:
        outline: the program.
        mesh: the finest.
        device: what it consists of.
        cutoff: plans that cost so many seconds are not looked for.
        full: the best plan known, where memory binds.
    """
    space, chains = Space.relaxed(outline, mesh, device), Chains(len(mesh.axes))
    orders = _Orders(mesh)
    digits = float(
        np.dot(outline.repeats.times, [np.log10(sum(map(len, map(orders.of, labels)))) for labels in space.labels])
    )
    chosen: list[dict[int, None]] = [{} for _ in space.labels]
    best, bound = None, -np.inf
    for _ in range(ROUNDS if full is None else FEW_ROUNDS):
        limit = min(cutoff, best.cost) if best is not None else cutoff
        solved = nearly(space, limit) if full is None else confined(space, full, limit)
        bound = max(bound, solved.bound)
        if solved.cost >= limit:
            break
        for classes, label in zip(chosen, solved.labels.tolist(), strict=True):
            classes[label] = None
        spelled = Space.of(outline, mesh, device, chains, orders.spelled(space.labels, chosen))
        best = _cheaper(nearly(spelled, limit), limit, best)
        raised = _raised(space, spelled, chosen, orders)
        if raised is space and full is None:
            limit = min(cutoff, best.cost) if best is not None else cutoff
            left, least = _left(space, orders, limit)
            if all(left):
                rest = nearly(Space.of(outline, mesh, device, chains, left), limit)
                best, least = _cheaper(rest, limit, best), min(least, rest.bound)
            bound = max(bound, least)
        if raised is space:
            break
        space = raised
    return Finest(best, bound, digits)


def _cheaper(solved: Solved, limit: float, best: Candidate | None) -> Candidate | None:
    """What was solved, made to fit, if it costs less than the limit; else the best so far."""
    if solved.cost >= limit:
        return best
    found, _ = search(solved, "auto", limit)
    return found if found.fits and found.cost < limit else best


def _left(space: Space, orders: _Orders, limit: float) -> tuple[tuple[tuple[Assignment, ...], ...], float]:
    """The orders of all labels that plans under a limit can have, or of those nearest to the bound; what all others cost at least.

    Where a node has none left, that is what every plan costs.
    """
    bound, excess = labelling.excess(labelling.Problem(space.costs, space.edges, space.matrices), limit)
    counts = [np.array([len(orders.of(label)) for label in labels]) for labels in space.labels]
    steps = np.unique(np.concatenate([*excess, [limit - bound]]))
    steps = steps[steps <= limit - bound]

    def pairs(most: float) -> int:
        sizes = [int(number[values <= most].sum()) for number, values in zip(counts, excess, strict=True)]
        return sum(sizes[i] * sizes[j] for i, j in space.edges)

    position = bisect.bisect_right(steps, MOST_PAIRS, key=pairs)
    most = float(steps[position - 1]) if position else -np.inf
    chosen = [np.flatnonzero(values <= most).tolist() for values in excess]
    beyond = limit if position == len(steps) else bound + float(steps[position])
    return orders.spelled(space.labels, chosen), beyond


class _Orders:
    """The orders of interchangeable axes: of a label whose axes ascend in every class, all that look alike."""

    def __init__(self, mesh: Mesh):
        first = [axis for axis, again in enumerate(mesh.tied) if not again]
        self._classes = list(zip(first, [*first[1:], len(mesh.axes)], strict=True))
        self._known: dict[Assignment, tuple[Assignment, ...]] = {}
        self._spelled: dict[tuple[Assignment, ...], tuple[Assignment, ...]] = {}

    def of(self, label: Assignment) -> tuple[Assignment, ...]:
        if label not in self._known:
            parts = [sorted(set(itertools.permutations(label[begin:end]))) for begin, end in self._classes]
            self._known[label] = tuple(tuple(itertools.chain(*orders)) for orders in itertools.product(*parts))
        return self._known[label]

    def spelled(
        self, labels: Sequence[Sequence[Assignment]], chosen: Sequence[Iterable[int]]
    ) -> tuple[tuple[Assignment, ...], ...]:
        """Per node all orders of its chosen labels; equal ones are one object."""
        found = []
        for options, classes in zip(labels, chosen, strict=True):
            key = tuple(options[label] for label in classes)
            if key not in self._spelled:
                self._spelled[key] = tuple(itertools.chain(*map(self.of, key)))
            found.append(self._spelled[key])
        return tuple(found)


def _raised(space: Space, spelled: Space, chosen: Sequence[Iterable[int]], orders: _Orders) -> Space:
    """The relaxed space with what was spelled out at what the best orders of each pair take; itself where nothing rises."""
    starts, classes = [], [np.array(list(labels)) for labels in chosen]
    for options, labels in zip(space.labels, classes, strict=True):
        counts = [len(orders.of(options[label])) for label in labels]
        starts.append(np.cumsum([0, *counts[:-1]]))
    own = list(space.own)
    for node, (rows, labels) in enumerate(zip(starts, classes, strict=True)):
        exact = np.minimum.reduceat(spelled.own[node], rows)
        own[node] = _lifted(own[node], (labels,), exact)
    lifted: dict[tuple[int, int], np.ndarray] = {}
    matrices = []
    for (i, j), matrix, part in zip(space.edges, space.matrices, spelled.matrices, strict=True):
        key = id(matrix), id(part)
        if key not in lifted:
            exact = np.minimum.reduceat(np.minimum.reduceat(part, starts[i], axis=0), starts[j], axis=1)
            lifted[key] = _lifted(matrix, np.ix_(classes[i], classes[j]), exact)
        matrices.append(lifted[key])
    pairs = zip((*own, *matrices), (*space.own, *space.matrices), strict=True)
    if all(new is old for new, old in pairs):
        return space
    return dataclasses.replace(space, own=tuple(own), matrices=tuple(matrices))


def _lifted(costs: np.ndarray, where: tuple[np.ndarray, ...], least: np.ndarray) -> np.ndarray:
    """Costs raised to what was found to be the least at some places; the same object where they are already."""
    now = costs[where]
    if (least <= now * (1 + ROUNDING)).all():
        return costs
    found = costs.copy()
    found[where] = np.maximum(now, least)
    return found
