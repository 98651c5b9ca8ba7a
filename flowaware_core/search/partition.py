"""Where to cut a chain into stages: the least time of a step, not the least cut.

    step = (micro-batches - 1) x max over stages of their time + sum over stages

so balance counts most; what passes a cut is added to the stage that takes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Cuts that are looked at: those that least passes through.
MOST_CUTS = 400
# Loads of the busiest stage that are tried, from the least possible to twice that.
TRIES = 40


def pipelined(loads: Sequence[float], micro_batches: int) -> float:
    """Seconds of a step of stages with these loads."""
    return (micro_batches - 1) * max(loads) + sum(loads)


def candidates(crossing: np.ndarray) -> np.ndarray:
    """The positions worth a cut: at least passes there of all positions around, first and last aside."""
    inner = crossing[1:-1]
    padded = np.concatenate([[np.inf], inner, [np.inf]])
    low = np.flatnonzero((inner <= padded[:-2]) & (inner <= padded[2:]))
    low = low[np.argsort(inner[low], kind="stable")[:MOST_CUTS]]
    return np.sort(low) + 1


def partition(
    weights: np.ndarray, positions: np.ndarray, transfer: np.ndarray, stages: int, micro_batches: int
) -> tuple[int, ...] | None:
    """The cuts of the fastest step.

    Args:
        weights: [equations] seconds of each.
        positions: ascending, where a cut may be: before that equation.
        transfer: [positions] seconds that a micro-batch takes to pass each cut, there and back.
        stages: how many.
        micro_batches: how many.

    Returns:
        stages - 1 positions; None where there are too few.
    """
    if len(positions) < stages - 1:
        return None
    sums = np.concatenate([[0.0], np.cumsum(weights)])
    ends = np.concatenate([sums[positions], [sums[-1]]])
    starts = np.concatenate([[0.0], sums[positions]])
    entry = np.concatenate([[0.0], transfer])
    # load[i, j]: of a stage from edge i to edge j, both counted from the first; edges are the start, the cuts and the end.
    load = ends[None, :] - starts[:, None] + entry[:, None]
    load[np.arange(len(starts))[:, None] > np.arange(len(ends))[None, :]] = np.inf
    least = _least(load, stages)
    best, chosen = np.inf, None
    # The least load of the busiest stage may need dear cuts: what a little more allows is looked at too.
    for limit in least * np.linspace(1.0, 2.0, TRIES):
        found = _under(load, limit, stages)
        if found is None:
            continue
        loads = [load[i, j] for i, j in zip([0, *(cut + 1 for cut in found)], [*found, len(positions)], strict=True)]
        step = pipelined(loads, micro_batches)
        if step < best * (1 - 1e-12):
            best, chosen = step, tuple(int(positions[cut]) for cut in found)
    return chosen


def _least(load: np.ndarray, stages: int) -> float:
    """The least load that the busiest stage can have."""
    values = np.unique(load[np.isfinite(load)])
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _under(load, float(values[middle]), stages) else (middle + 1, high)
    return float(values[low])


def _under(load: np.ndarray, limit: float, stages: int) -> list[int] | None:
    """The cuts of least total load among those with no stage above a limit."""
    allowed = np.where(load <= limit, load, np.inf)
    cost = allowed[0]
    back = []
    for _ in range(stages - 1):
        # cost[j]: of the stages so far, the last of which ends at edge j.
        through = cost[:-1, None] + allowed[1:]
        back.append(np.argmin(through, axis=0))
        cost = np.min(through, axis=0)
    if not np.isfinite(cost[-1]):
        return None
    cuts, edge = [], load.shape[1] - 1
    for choice in reversed(back):
        edge = int(choice[edge])
        cuts.append(edge)
    return cuts[::-1]
