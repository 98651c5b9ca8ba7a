"""Where to cut a chain into stages, and for which groups of devices: the least time of a step, not the least cut.

    step = (micro-batches - 1) x max over stages of their time + sum over stages

so balance counts most; what passes a cut is added to the stage that takes it. For a limit on the time of a stage, the least sum
follows by dynamic programming over cuts and places for groups of devices; limits are tried where a better step may be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Cuts that are looked at: those that least passes through.
MOST_CUTS = 400
# Steps that differ by no more are as good.
PRECISION = 1e-3


class Places(NamedTuple):
    """Where a group of devices may be: those that a stage can run on, in an order in which each comes after those before it.

    Attributes:
        kind: [places] the row of weights.
        first, last: [places] whether no device is before it, or after it.
        start: [places + 1] where in the next three each place's begin.
        before: the places that end where this one begins, those that send sooner first.
        byte_s, latency_s: seconds that a byte, and an empty message, take from there and back.
    """

    kind: np.ndarray
    first: np.ndarray
    last: np.ndarray
    start: np.ndarray
    before: np.ndarray
    byte_s: np.ndarray
    latency_s: np.ndarray


class Partition(NamedTuple):
    """Cuts, the place of every stage, and its load in seconds."""

    cuts: tuple[int, ...]
    places: tuple[int, ...]
    loads: tuple[float, ...]


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
    weights: np.ndarray,
    positions: np.ndarray,
    crossing: np.ndarray,
    places: Places,
    micro_batches: int,
    stages: int | None = None,
    precision: float = PRECISION,
) -> Partition | None:
    """The cuts and places of the fastest step, up to a precision.

    Args:
        weights: [kinds of groups, equations] seconds of each.
        positions: ascending, where a cut may be: before that equation.
        crossing: [positions] bytes that pass each cut.
        places: for groups of devices.
        micro_batches: how many.
        stages: how many; None: as many as is best.
        precision: the part by which another step may be faster.

    Returns:
        None where there are too few positions or places.
    """
    sums = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=1)], axis=1)
    edges = np.concatenate([[0], positions, [weights.shape[1]]]).astype(np.int64)
    problem = _Problem(sums[:, edges], edges, np.concatenate([[0.0], crossing, [0.0]]), places, stages)
    loosest = problem.under(math.inf)
    if loosest is None:
        return None
    found = [loosest, *_towards(problem, loosest, precision)]
    tightest, least = min(max(one.loads) for one in found), sum(loosest.loads)
    best = min(found, key=lambda one: pipelined(one.loads, micro_batches))
    # What takes less needs no stage above a limit, and every limit has its least sum: from there down, to the least limit of all.
    limit = math.inf
    while micro_batches > 1:
        step = pipelined(best.loads, micro_batches)
        limit = min(limit, (step - least) / (micro_batches - 1))
        one = problem.under(limit) if limit > tightest else None
        if one is None:
            break
        best = min(best, one, key=lambda one: pipelined(one.loads, micro_batches))
        if (micro_batches - 1) * tightest + sum(one.loads) >= pipelined(best.loads, micro_batches) * (1 - precision):
            break
        limit = max(one.loads) * (1 - precision)
    return best


def _towards(problem: _Problem, loosest: Partition, precision: float) -> Iterator[Partition]:
    """Partitions whose busiest stage has less and less to do, up to the least."""
    low, high = sum(loosest.loads) / max(len(problem.places.kind), 1) / 2, max(loosest.loads)
    while high > low * (1 + precision):
        middle = (low + high) / 2
        found = problem.under(middle)
        if found is None:
            low = middle
        else:
            high = max(found.loads)
            yield found


class _Problem(NamedTuple):
    """A chain between its edges (start, cuts, end), and places.

    Attributes:
        sums: [kinds, edges] seconds of all before each edge.
        edges: [edges] positions.
        crossing: [edges] bytes that pass.
        places, stages: as of `partition`.
    """

    sums: np.ndarray
    edges: np.ndarray
    crossing: np.ndarray
    places: Places
    stages: int | None

    def under(self, limit: float) -> Partition | None:
        """The partition of least total load among those with no stage above a limit."""
        from flowaware_core.search.reach import reach  # compiled, and not wanted by whoever makes no stages

        layers, places = self.stages or 1, self.places
        shape = layers, len(places.kind), len(self.edges)
        cost, place, edge = np.full(shape, np.inf), np.full(shape, -1, np.int32), np.zeros(shape, np.int32)
        reach(self.sums, self.crossing, places, limit, self.stages is not None, cost, place, edge)
        ends = np.where(places.last, cost[-1, :, -1], np.inf)
        if not len(ends) or not np.isfinite(ends.min()):
            return None
        layer, at, until = layers - 1, int(ends.argmin()), shape[2] - 1
        cuts, chosen, loads = list[int](), list[int](), list[float]()
        while at >= 0:
            before, begin = int(place[layer, at, until]), int(edge[layer, at, until])
            row = self.sums[places.kind[at]]
            chosen.append(at)
            loads.append(float(row[until] - row[begin]) + self._entry(before, at, begin))
            cuts.append(int(self.edges[begin]))
            at, until, layer = before, begin, layer - (self.stages is not None)
        return Partition(tuple(cuts[-2::-1]), tuple(chosen[::-1]), tuple(loads[::-1]))

    def _entry(self, before: int, place: int, edge: int) -> float:
        if before < 0:
            return 0.0
        known = self.places
        begin, end = known.start[place], known.start[place + 1]
        at = begin + int(np.flatnonzero(known.before[begin:end] == before)[0])
        return float(self.crossing[edge] * known.byte_s[at] + known.latency_s[at])
