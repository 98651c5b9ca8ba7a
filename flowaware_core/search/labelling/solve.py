"""From a problem to a solution: reduce, solve the core exactly or between bounds, come back."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from flowaware_core.search.labelling import eliminate
from flowaware_core.search.labelling.bound import Messages
from flowaware_core.search.labelling.local import Local
from flowaware_core.search.labelling.problem import Problem, Solution, checked_seeds
from flowaware_core.search.labelling.reduce import Core, Infeasible, reduced

LARGEST_TABLE = 3_000_000  # entries of one step of exact elimination
ITERATIONS = 200


def solve(
    problem: Problem,
    *,
    seeds: Sequence[np.ndarray] = (),
    iterations: int = ITERATIONS,
    seconds: float | None = None,
) -> Solution:
    """The cheapest labelling found that fits, with a proven lower bound.

    The same problem gives the same solution as long as `seconds` is None. It is never worse than a feasible seed.

    Args:
        problem: what to label.
        seeds: labellings to start from.
        iterations: sweeps of the bound and rounds of the search; more takes longer and finds more.
        seconds: wall-clock time after which to stop improving; None = only iterations count.

    Returns:
        the solution; where no labelling was found that fits, the one of least peak with `feasible` False.
    """
    clock = _Clock(seconds)
    best = _Best(problem)
    for seed in checked_seeds(problem, seeds):
        best.offer(seed)
    try:
        bound = _solve_core(problem, reduced(problem, with_memory=False), best, iterations, clock)
        if (
            not (best.feasible and best.cost <= bound + 1e-9 * abs(bound))
            and problem.limit is not None
            and problem.usage
        ):
            bound = max(bound, _solve_core(problem, reduced(problem), best, iterations, clock))
    except Infeasible:
        bound = np.inf
    if not best.feasible:
        _least_memory(problem, best, iterations, clock)
    bound = min(bound, best.cost) if best.feasible else bound
    return Solution(best.labels, best.cost, float(bound), best.feasible, best.peak, clock.elapsed())


def _least_memory(problem: Problem, best: _Best, iterations: int, clock: _Clock) -> None:
    """Offers a labelling that occupies little: bytes x moments in the place of costs."""
    occupied = [np.where(np.isfinite(costs), 0.0, np.inf) for costs in problem.node_costs]
    for node, start, stop, amounts in problem.usage:
        occupied[node] = occupied[node] + amounts * max(stop - start, 0)
    zeros = {id(matrix): np.where(np.isfinite(matrix), 0.0, np.inf) for matrix in problem.edge_costs}
    allowed = tuple(zeros[id(matrix)] for matrix in problem.edge_costs)
    try:
        core = reduced(Problem(tuple(occupied), problem.edges, allowed))
        _solve_core(problem, core, best, iterations, clock)
    except Infeasible:
        best.offer(np.array([int(np.argmin(costs)) for costs in occupied]))


class _Clock:
    def __init__(self, seconds: float | None) -> None:
        self.began = time.perf_counter()
        self.seconds = seconds

    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    def over(self) -> bool:
        return self.seconds is not None and self.elapsed() > self.seconds


class _Best:
    """The best labelling so far: feasible before infeasible, then cheap; among infeasible ones the least peak."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.labels = np.zeros(len(problem.node_costs), dtype=np.int64)
        self.feasible = False
        self.cost = self.peak = np.inf
        self.offer(self.labels)

    def offer(self, labels: np.ndarray) -> None:
        cost, peak = self.problem.cost(labels), self.problem.peak(labels)
        feasible = np.isfinite(cost) and self.problem.fits(peak)
        new = (not feasible, cost if feasible else (not np.isfinite(cost), peak))
        old = (not self.feasible, self.cost if self.feasible else (not np.isfinite(self.cost), self.peak))
        if new < old:
            self.labels, self.cost, self.peak, self.feasible = labels.copy(), cost, peak, feasible


def _solve_core(problem: Problem, core: Core, best: _Best, iterations: int, clock: _Clock) -> float:
    """Offers labellings of the core to `best`; returns a lower bound."""
    if not core.costs:
        best.offer(core.restore(np.zeros(0, dtype=np.int64)))
        return core.offset
    sizes = [len(costs) for costs in core.costs]
    if core.usage is None:
        plan = eliminate.order(sizes, core.edges, LARGEST_TABLE)
        if plan is not None:
            labels, cost = eliminate.optimum(core.costs, core.edges, core.matrices, plan)
            best.offer(core.restore(labels))
            return core.offset + cost
    return _between_bounds(core, best, iterations, clock)


def _between_bounds(core: Core, best: _Best, iterations: int, clock: _Clock) -> float:
    messages = Messages([len(costs) for costs in core.costs], core.edges, core.matrices)
    local = Local(core)
    usage = core.usage
    prices = np.zeros(len(usage.capacity)) if usage else np.zeros(0)
    bound, scale = -np.inf, 1.0
    for iteration in range(iterations):
        if clock.over():
            break
        costs = _priced(core, prices)
        _, labels = messages.sweep(costs, forward=True)
        proven, labels = messages.sweep(costs, forward=False)
        bound = max(bound, core.offset + proven - (float(prices @ usage.capacity) if usage else 0.0))
        if best.feasible and best.cost <= bound + 1e-9 * abs(bound):
            break
        if usage:
            over = usage.level(labels) - usage.capacity
            target = best.cost if best.feasible else bound + abs(bound) * 0.1 + 1.0
            step = scale * max(target - bound, 1e-6 * abs(target)) / max(float(over @ over), 1e-300)
            prices = np.maximum(prices + step * over, 0.0)
            scale = max(scale * 0.98, 0.05)
        if iteration % 5 == 4 or not usage:
            local.start(labels)
            if not usage or local.repair(len(core.costs)):
                local.descend(20)
            best.offer(core.restore(local.labels))
    return bound


def _priced(core: Core, prices: np.ndarray) -> list[np.ndarray]:
    """Node costs plus the price of the memory that each label occupies."""
    costs = [cost.copy() for cost in core.costs]
    if core.usage:
        total = np.concatenate([[0.0], np.cumsum(prices)])
        for node, (start, stop, amounts) in core.usage.segments.items():
            costs[node] += (total[stop] - total[start]) @ amounts
    return costs
