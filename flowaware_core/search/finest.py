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
from flowaware_core.search.operators import Candidate, Solved, certain_bytes, nearly, search
from flowaware_core.search.problem import Outline, Space

ROUNDS = 12
# Of the range in which the best price of memory lies.
HALVINGS = 10
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
    orders, toll = _Orders(mesh), _Toll.none(device)
    if full is not None:
        toll = _Toll.found(space, full, cutoff)
    digits = float(
        np.dot(outline.repeats.times, [np.log10(sum(map(len, map(orders.of, labels)))) for labels in space.labels])
    )
    chosen: list[dict[int, None]] = [{} for _ in space.labels]
    best, bound = None, -np.inf
    for _ in range(ROUNDS):
        limit = min(cutoff, best.cost) if best is not None else cutoff
        solved = toll.nearly(space, limit)
        bound = max(bound, solved.bound)
        if solved.cost >= limit:
            break
        for classes, label in zip(chosen, solved.labels.tolist(), strict=True):
            classes[label] = None
        spelled = Space.of(outline, mesh, device, chains, orders.spelled(space.labels, chosen))
        best = _cheaper(toll.nearly(spelled, limit), limit, best)
        raised = _raised(space, spelled, chosen, orders)
        if raised is space:
            limit = min(cutoff, best.cost) if best is not None else cutoff
            left, least = _left(toll.on(space), orders, limit + toll.back)
            least -= toll.back
            if all(left):
                rest = toll.nearly(Space.of(outline, mesh, device, chains, left), limit)
                best, least = _cheaper(rest, limit, best), min(least, rest.bound)
            bound = max(bound, least)
            break
        space = raised
    return Finest(best, bound, digits)


def _cheaper(solved: Solved, limit: float, best: Candidate | None) -> Candidate | None:
    """What was solved, made to fit, if it costs less than the limit; else the best so far."""
    if solved.cost >= limit:
        return best
    found, _ = search(solved, "auto", limit)
    return found if found.fits and found.cost < limit else best


@dataclasses.dataclass(frozen=True, eq=False)
class _Toll:
    """A price of memory, which takes the place of a limit: what every plan that fits pays for, it gets back at least.

    Attributes:
        price: seconds per byte that a plan holds for certain where another is fullest.
        full: that other; None where memory does not bind.
        usable_bytes: of a device.
    """

    price: float
    full: Candidate | None
    usable_bytes: int

    @staticmethod
    def none(device: Device) -> _Toll:
        return _Toll(0.0, None, device.usable_bytes)

    @staticmethod
    def found(space: Space, full: Candidate, cutoff: float) -> _Toll:
        """The price at which the bound is highest: where it rises, the best labelling holds more than there is room for."""
        amounts, room = certain_bytes(space, full), space.device.usable_bytes
        low, high = 0.0, cutoff / room
        best, highest = _Toll(0.0, full, room), -np.inf
        for _ in range(HALVINGS):
            toll = _Toll((low + high) / 2, full, room)
            solved = toll.nearly(space, cutoff)
            if solved.bound > highest:
                best, highest = toll, solved.bound
            held = sum(float(values[label]) for values, label in zip(amounts, solved.labels, strict=True))
            low, high = (toll.price, high) if held > room else (low, toll.price)
        return best

    @property
    def back(self) -> float:
        """Seconds that are paid for all the memory there is."""
        return self.price * self.usable_bytes

    def on(self, space: Space) -> Space:
        """A space in which memory is paid for."""
        if self.full is None:
            return space
        amounts = certain_bytes(space, self.full)
        own = tuple(costs + self.price * held for costs, held in zip(space.own, amounts, strict=True))
        return dataclasses.replace(space, own=own)

    def nearly(self, space: Space, cutoff: float) -> Solved:
        """The labelling of a space that is near the cheapest where memory is paid for, and what none that fits costs less than."""
        solved = nearly(self.on(space), cutoff + self.back)
        return Solved(space, solved.labels, solved.cost - self.back, solved.bound - self.back)


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
        self._classes = mesh.classes
        self._known: dict[Assignment, tuple[Assignment, ...]] = {}
        self._spelled: dict[tuple[Assignment, ...], tuple[Assignment, ...]] = {}

    def of(self, label: Assignment) -> tuple[Assignment, ...]:
        if label not in self._known:
            parts = [sorted(set(itertools.permutations(label[axes.start : axes.stop]))) for axes in self._classes]
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
