"""Sizes shared by several proteins, so that few programs are compiled: the smallest number of buckets that wastes little.

The cost of a protein is the arithmetic of one recycle at its sizes; a bucket makes every member as large as its largest. Waste
is the share of the arithmetic that is done on padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

MOST_WASTE = 0.30


@dataclasses.dataclass(frozen=True, order=True)
class Size:
    """Residues, rows of the alignment that are centres, further rows."""

    residues: int
    rows: int
    further: int

    def cover(self, other: Size) -> Size:
        return Size(max(self.residues, other.residues), max(self.rows, other.rows), max(self.further, other.further))

    def rounded(self) -> Size:
        """Up to steps of about a sixteenth, so that sets that differ a little share compiled programs."""
        return Size(*(rounded(value) for value in (self.residues, self.rows, self.further)))


def rounded(value: int) -> int:
    step = max(1, 2 ** (max(value, 1).bit_length() - 5))
    return -(-value // step) * step


@dataclasses.dataclass(frozen=True)
class Bucket:
    size: Size
    members: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class BucketPlan:
    """Attributes:
    buckets: each protein is in exactly one.
    waste: share of the arithmetic that is padding.
    """

    buckets: tuple[Bucket, ...]
    waste: float


def cost(size: Size, blocks: int = 48, further_blocks: int = 4) -> float:
    """Multiplications of one recycle, in units of 1e6; the terms are those of the Evoformer (algorithms 6-15)."""
    n, s, k = float(size.residues), float(size.rows), float(size.further)
    pair = n * n * 128 * (8 * 128 + 10 * 128) + 2 * n**3 * 128 + 2 * 2 * n**3 * 128
    main = s * n * 256 * (18 * 256) + 2 * s * n * n * 256 + 2 * n * s * s * 256 + n * n * s * 1024 + n * n * 1024 * 128
    more = k * n * 64 * (14 * 64) + 2 * k * n * n * 64 + n * n * k * 1024 + n * n * 1024 * 128
    return (blocks * (pair + main) + further_blocks * (pair + more) + 8 * n * n * 12 * 160) / 1e6


def planned(sizes: Sequence[Size], most_waste: float = MOST_WASTE, blocks: int = 48) -> BucketPlan:
    """The fewest buckets whose waste is at most `most_waste`; among these the least waste.

    Proteins are sorted by cost and a bucket is a run of them, so the best division of each number of buckets is found
    exactly, run by run.
    """
    if not sizes:
        return BucketPlan((), 0.0)
    order = sorted(range(len(sizes)), key=lambda index: (sizes[index].residues, sizes[index]))
    useful = sum(cost(size, blocks) for size in sizes)
    runs = run_costs([sizes[index] for index in order], blocks)
    best = [runs[0][stop] for stop in range(len(order))]  # cost of the first stop + 1 proteins in one bucket
    cuts: list[list[int]] = [[0] * len(order)]
    while 1 - useful / best[-1] > most_waste and len(cuts) < len(order):
        best, starts = divided_once_more(best, runs)
        cuts.append(starts)
    return BucketPlan(buckets_of(order, sizes, cuts), 1 - useful / best[-1])


def run_costs(sizes: list[Size], blocks: int) -> list[list[float]]:
    """[start][stop]: the cost of the proteins start..stop in one bucket."""
    table = []
    for start in range(len(sizes)):
        whole, row = sizes[start], [0.0] * start
        for stop in range(start, len(sizes)):
            whole = whole.cover(sizes[stop])
            row.append((stop - start + 1) * cost(whole.rounded(), blocks))
        table.append(row)
    return table


def divided_once_more(best: list[float], runs: list[list[float]]) -> tuple[list[float], list[int]]:
    result, starts = [], []
    for stop in range(len(best)):
        options = [(runs[0][stop], 0)] + [(best[start - 1] + runs[start][stop], start) for start in range(1, stop + 1)]
        value, start = min(options)
        result.append(value)
        starts.append(start)
    return result, starts


def buckets_of(order: list[int], sizes: Sequence[Size], cuts: list[list[int]]) -> tuple[Bucket, ...]:
    found, stop = [], len(order) - 1
    for starts in reversed(cuts):
        if stop < 0:
            break
        start = starts[stop]
        members = tuple(order[start : stop + 1])
        size = sizes[members[0]]
        for member in members:
            size = size.cover(sizes[member])
        found.append(Bucket(size.rounded(), members))
        stop = start - 1
    return tuple(reversed(found))
