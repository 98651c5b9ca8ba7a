"""The search on a core: bounds from both sides, then everything that cannot matter goes, then what is left is
solved.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from flowaware_core.search.labelling import eliminate
from flowaware_core.search.labelling.core import Core
from flowaware_core.search.labelling.reduce import Infeasible, reduced

if TYPE_CHECKING:
    from flowaware_core.search.labelling.bound import Dual

LARGEST_TABLE = 2_000_000  # entries of one step of exact elimination
MOST_ENTRIES = 50_000_000  # of all its steps
TINY = 1_500  # entries of a core that goes to the integer program at once
SMALL = 4_000  # entries of what is left that goes there
EXACT_PER_ITERATION = 20  # the same, per iteration allowed, where nothing else gets any further
NODES_PER_ITERATION = 10
EQUAL = 1e-9  # relative difference below which two costs are the same
CLOSE = 0.005  # of the cost: gap at which leaving out what cannot matter does more than raising the bound further
OVERHEAD = 300_000  # entries that take as long as what an iteration over the smallest core takes
RESERVE = 0.4  # of the iterations left that the bound of a core does not use up: they are for its parts
SOON = 10  # steps: where the bound would get there in so many, if it rose on as it did in the last one, it is raised further
CLOSER = 0.25  # what that gap becomes where it did not do
EVERY = 8  # steps of the bound between two labellings that are improved
OFTEN = 2  # the same where memory has no limit and a labelling is quickly improved


class Budget:
    """How much work is left: iterations, and wall-clock time where a limit is given.

    An iteration over a smaller core than the first counts as its part of that. `exact` is the most entries of a core on which
    nothing but the integer program gets any further; a bound and a cost that differ by no more than the part `gap` are near
    enough.
    """

    def __init__(self, iterations: int, seconds: float | None, gap: float = EQUAL) -> None:
        self.iterations, self.gap = float(iterations), gap
        self._whole = 0
        self.exact = max(2 * SMALL, EXACT_PER_ITERATION * iterations)
        self._began = time.perf_counter()
        self._seconds = seconds

    def elapsed(self) -> float:
        return time.perf_counter() - self._began

    def left(self) -> float | None:
        """Seconds left; None = no limit."""
        return None if self._seconds is None else max(self._seconds - self.elapsed(), 0.0)

    def empty(self) -> bool:
        return self.iterations <= 0 or self.left() == 0.0

    def take(self, entries: int) -> bool:
        """Takes one iteration over a core of so many entries; False where none is left."""
        if self.empty():
            return False
        self._whole = max(self._whole, entries)
        self.iterations -= (entries + OVERHEAD) / (self._whole + OVERHEAD)
        return True


@dataclasses.dataclass
class Incumbent:
    """The cost of the best labelling that fits, and where better ones go.

    Attributes:
        cost: inf = none yet.
        offer: takes labels of the core at hand that are believed to fit and to cost less than `cost`; returns the
        cost of
            the best labelling afterwards.
    """

    cost: float
    offer: Callable[[np.ndarray], float]

    def through(self, restore: Callable[[np.ndarray], np.ndarray]) -> Incumbent:
        """The same for a smaller core."""
        return Incumbent(self.cost, lambda labels: self.propose(restore(labels)))

    def propose(self, labels: np.ndarray) -> float:
        self.cost = min(self.cost, self.offer(labels))
        return self.cost


def search(core: Core, incumbent: Incumbent, cutoff: float, budget: Budget) -> float:
    """Looks for labellings that fit and cost less than `cutoff` and than the incumbent.

    Returns:
        a lower bound: a labelling that fits costs at least this or at least `cutoff`.
    """
    try:
        smaller = reduced(core)
    except Infeasible:
        return np.inf
    inner = incumbent.through(smaller.restore)
    bound = _solve(smaller.core, inner, cutoff, budget)
    incumbent.cost = min(incumbent.cost, inner.cost)
    return bound


def eliminated(core: Core, incumbent: Incumbent) -> float:
    """The optimum of a core without memory where exact elimination can find it cheaply, otherwise -inf."""
    assert core.usage is None
    order = eliminate.order(core.sizes, core.edges, LARGEST_TABLE)
    if order is None or order.entries > MOST_ENTRIES:
        return -np.inf
    labels, cost = eliminate.optimum(core.costs, core.edges, core.matrices, order)
    incumbent.propose(labels)
    return core.offset + cost


def excess(core: Core, iterations: int, most: float) -> tuple[float, list[np.ndarray]]:
    """A lower bound of a core without memory, and by how much every labelling with a certain label is above it, at least.

    Args:
        core: what is labelled.
        iterations: steps of the bound.
        most: cost from which on labellings are of no interest: there the excess may be inf.

    Returns:
        the bound, and per node [labels].
    """
    from flowaware_core.search.labelling import fix
    from flowaware_core.search.labelling.bound import Dual

    smaller = reduced(core, dominated=False)
    if not smaller.nodes:
        return smaller.core.offset, smaller.excess([], most - smaller.core.offset)
    dual, budget = Dual(smaller.core), Budget(iterations, None)
    _ascend(dual, smaller.core, Incumbent(most, lambda labels: most), most, budget, 0.0)
    slack = fix.slack(smaller.core, dual)
    bound = smaller.core.offset + slack.bound
    return bound, smaller.excess(slack.nodes, most - bound)


def _solve(core: Core, incumbent: Incumbent, cutoff: float, budget: Budget) -> float:
    if core.usage is None:
        bound = eliminated(core, incumbent)
        if bound > -np.inf:
            return bound
    if core.entries <= TINY:
        return _exactly(core, incumbent, budget)
    return _between_bounds(core, incumbent, cutoff, budget)


def _exactly(core: Core, incumbent: Incumbent, budget: Budget) -> float:
    from flowaware_core.search.labelling import exact

    best = exact.optimum(core, int(NODES_PER_ITERATION * max(budget.iterations, 1)), budget.left())
    if best.labels is not None:
        incumbent.propose(best.labels)
    return best.bound


def _between_bounds(core: Core, incumbent: Incumbent, cutoff: float, budget: Budget) -> float:
    """Raises a bound and improves labellings on the way; then goes on with the part of the core that can be better."""
    from flowaware_core.search.labelling.bound import Dual

    dual = Dual(core)
    bound, close = -np.inf, CLOSE if core.usage is None else 0.0
    while True:
        _ascend(dual, core, incumbent, cutoff, budget, close)
        bound = max(bound, core.offset + dual.bound)
        if not _closed(bound, incumbent.cost, cutoff, budget.gap):
            bound = max(bound, _inside(core, dual, incumbent, cutoff, budget))
        if _closed(bound, incumbent.cost, cutoff, budget.gap) or dual.done or budget.empty():
            return bound
        close *= CLOSER


def _inside(core: Core, dual: Dual, incumbent: Incumbent, cutoff: float, budget: Budget) -> float:
    """Searches the part of a core that can be better; returns a lower bound.

    That part is first cut down further, to what labellings close to the bound are made of: either one of them is the
    best, or there is none so close and the bound rises.
    """
    from flowaware_core.search.labelling import fix

    slack = fix.slack(core, dual)
    bound = core.offset + dual.bound
    keep, most = max(SMALL, core.entries // 4), math.inf
    while not budget.empty():
        cut = min(incumbent.cost, cutoff)
        rest = slack.without(cut - core.offset) if np.isfinite(cut) else core
        if rest.entries > keep:
            cut = min(cut, core.offset + slack.bound + slack.gap(keep))
            rest = slack.without(cut - core.offset) if np.isfinite(cut) else core
        if rest.entries > 0.9 * core.entries:
            return max(bound, _exactly(core, incumbent, budget)) if core.entries <= budget.exact else bound
        before = min(incumbent.cost, cutoff)
        inside = search(rest, incumbent, cut, budget)
        bound = max(bound, min(cut, inside))
        if _closed(bound, incumbent.cost, cutoff, budget.gap):
            return bound
        if inside >= cut:
            keep *= 2
        elif incumbent.cost >= before:
            most, keep = keep, keep // 4
        if keep >= most or keep < SMALL:
            return bound
    return bound


def _closed(bound: float, cost: float, cutoff: float, gap: float) -> bool:
    """Whether a bound shows that nothing better is left to find: it may miss the cost by a gap, but must reach the cutoff."""
    return bound >= min(cost - gap * abs(cost), cutoff - EQUAL * abs(cutoff))


def _ascend(dual: Dual, core: Core, incumbent: Incumbent, cutoff: float, budget: Budget, close: float) -> None:
    """Raises a bound until it is close to the cost, as a part of that; labellings, improved, go to the incumbent."""
    step, entries, last = 0, core.entries, -np.inf
    reserve = RESERVE * budget.iterations
    while not dual.done and budget.iterations > reserve and budget.take(entries):
        if step % (EVERY if core.usage else OFTEN) == 0 or step in (1, 2, 4):
            labels, cost, excess = dual.improved()
            if excess <= 0.0 and core.offset + cost < incumbent.cost:
                incumbent.propose(labels)
        limit = min(incumbent.cost, cutoff)
        bound = core.offset + dual.bound
        soon = SOON * (bound - last) >= limit - bound
        if _closed(bound, incumbent.cost, cutoff, budget.gap) or (limit - bound <= close * abs(limit) and not soon):
            return
        last = bound
        dual.advance(limit - core.offset)
        step += 1
