"""From a problem to a solution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowaware_core.search.labelling.core import Core, as_core
from flowaware_core.search.labelling.problem import Problem, Solution, checked_seeds
from flowaware_core.search.labelling.reduce import Infeasible, reduced
from flowaware_core.search.labelling.search import EQUAL, Budget, Incumbent, eliminated, search
from flowaware_core.search.labelling.search import excess as search_excess

ITERATIONS = 400


def solve(
    problem: Problem,
    *,
    seeds: Sequence[np.ndarray] = (),
    iterations: int = ITERATIONS,
    seconds: float | None = None,
    cutoff: float = np.inf,
    gap: float = EQUAL,
) -> Solution:
    """The cheapest labelling found that fits, with a proven lower bound.

    The same problem gives the same solution as long as `seconds` is None. It is never worse than a feasible seed.

    Args:
        problem: what to label.
        seeds: labellings to start from.
        iterations: steps of the bound; more takes longer and finds more.
        seconds: wall-clock time after which to stop improving; None = only iterations count.
        cutoff: labellings that cost so much or more are not looked for, and the bound is not raised further.
        gap: part of the cost by which it and the bound may differ at the end.

    Returns:
        the solution; where no labelling was found that fits, the one of least peak with `feasible` False.
    """
    budget = Budget(iterations, seconds, gap)
    best = _Best(problem)
    for seed in checked_seeds(problem, seeds):
        best.offer(seed)
    bound = -np.inf
    if problem.limit is not None and problem.usage:
        bound = _without_limit(problem, best)
    if not _is_optimal(best, bound):
        incumbent = Incumbent(best.cost, best.offer)
        bound = max(bound, min(search(as_core(problem), incumbent, cutoff, budget), cutoff))
    if not best.feasible:
        _least_memory(problem, best)
    bound = min(bound, best.cost)
    return Solution(best.labels, best.price, float(bound), best.feasible, best.peak, budget.elapsed())


def excess(problem: Problem, most: float, iterations: int = ITERATIONS) -> tuple[float, list[np.ndarray]]:
    """What can be part of a cheap labelling, memory aside.

    Args:
        problem: what to label.
        most: cost from which on labellings are of no interest.
        iterations: steps of the bound.

    Returns:
        a lower bound, and per node by how much every labelling with each of its labels costs more, at least; where that reaches
        `most` it may be inf.
    """
    try:
        return search_excess(as_core(problem, with_memory=False), iterations, most)
    except Infeasible:
        return np.inf, [np.full(len(costs), np.inf) for costs in problem.node_costs]


def _without_limit(problem: Problem, best: _Best) -> float:
    """The optimum as if memory had no limit, where it is cheap to find: often it fits."""
    try:
        smaller = reduced(as_core(problem, with_memory=False))
    except Infeasible:
        return np.inf
    return eliminated(smaller.core, Incumbent(np.inf, best.offer).through(smaller.restore))


def _least_memory(problem: Problem, best: _Best) -> None:
    """Offers a labelling that occupies little: bytes x moments in the place of costs."""
    core = as_core(problem, with_memory=False)
    costs = [np.where(np.isfinite(cost), 0.0, np.inf) for cost in core.costs]
    for node, start, stop, amounts in problem.usage:
        costs[node] = costs[node] + amounts * max(stop - start, 0)
    allowed = {id(matrix): np.where(np.isfinite(matrix), 0.0, np.inf) for matrix in core.matrices}
    matrices = [allowed[id(matrix)] for matrix in core.matrices]
    search(Core(costs, core.edges, matrices), Incumbent(np.inf, best.offer), np.inf, Budget(ITERATIONS, None))


def _is_optimal(best: _Best, bound: float) -> bool:
    return best.feasible and best.cost <= bound + EQUAL * abs(bound)


class _Best:
    """The best labelling so far: feasible before infeasible, then cheap; among infeasible ones the least peak."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.labels = np.zeros(len(problem.node_costs), dtype=np.int64)
        self.feasible = False
        self.price = self.peak = np.inf
        self.offer(self.labels)

    @property
    def cost(self) -> float:
        """Of the best labelling that fits; inf = none."""
        return self.price if self.feasible else np.inf

    def offer(self, labels: np.ndarray) -> float:
        price, peak = self.problem.cost(labels), self.problem.peak(labels)
        feasible = bool(np.isfinite(price)) and self.problem.fits(peak)
        new = (not feasible, price if feasible else (not np.isfinite(price), peak))
        old = (not self.feasible, self.price if self.feasible else (not np.isfinite(self.price), self.peak))
        if new < old:
            self.labels, self.price, self.peak, self.feasible = labels.copy(), price, peak, feasible
        return self.cost
