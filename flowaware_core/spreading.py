"""Work of known cost, spread over workers so that the most loaded one has little."""

from __future__ import annotations

from collections.abc import Sequence

Shares = tuple[tuple[int, ...], ...]


def spread(costs: Sequence[float], workers: int) -> Shares:
    """The items of each worker, in ascending order: the largest first, each to the least loaded.

    The most loaded worker has at most 4/3 of what the best spreading gives it (R. L. Graham, Bounds on Multiprocessing Timing
    Anomalies, SIAM J. Appl. Math. 17, 1969).
    """
    loads, members = [0.0] * workers, [[] for _ in range(workers)]  # type: ignore[var-annotated]
    for index in sorted(range(len(costs)), key=lambda one: -costs[one]):
        worker = loads.index(min(loads))
        loads[worker] += costs[index]
        members[worker].append(index)
    return tuple(tuple(sorted(one)) for one in members)


def most_loaded(costs: Sequence[float], shares: Sequence[Sequence[int]]) -> float:
    """What the most loaded worker has."""
    return max((sum(costs[index] for index in share) for share in shares), default=0.0)


def imbalance(costs: Sequence[float], shares: Sequence[Sequence[int]]) -> float:
    """By how much the most loaded worker exceeds the mean; 0 is even."""
    total = sum(costs[index] for share in shares for index in share)
    return most_loaded(costs, shares) * len(shares) / total - 1 if total else 0.0
