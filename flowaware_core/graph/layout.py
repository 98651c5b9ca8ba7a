"""Layouts: which mesh axes cut which dimension of a tensor.

A layout has one tuple of axis positions per dimension, in mesh order, so that equal placements are equal values. Changing a
layout is a chain of elementary steps, each of which the partitioner turns into one known collective or into a local slice.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

Layout = tuple[tuple[int, ...], ...]


def whole(rank: int) -> Layout:
    """The layout of a tensor that every device holds in full."""
    return ((),) * rank


def local_shape(shape: Sequence[int], layout: Layout, sizes: Sequence[int]) -> tuple[int, ...]:
    """Shape of the largest shard; a dimension that does not divide is padded."""
    return tuple(-(-size // math.prod(sizes[axis] for axis in axes)) for size, axes in zip(shape, layout, strict=True))


def axes_of(layout: Layout) -> frozenset[int]:
    """All axes a layout uses."""
    return frozenset(axis for axes in layout for axis in axes)


@dataclasses.dataclass(frozen=True)
class Step:
    """One elementary change of layout: `axes` leave or enter a dimension; `layout` is what results."""

    kind: str  # "slice" | "all-gather" | "all-to-all"
    axes: tuple[int, ...]
    layout: Layout


def steps(source: Layout, target: Layout) -> tuple[Step, ...]:
    """The chain from one layout to another: exchange what moves between dimensions, gather what leaves, slice what enters.

    Shards of a dimension are numbered by its axes in order, so only the last axes of a dimension can leave it or be added
    without moving other data: what follows the first difference is gathered, then cut again. Axes that leave for the same
    dimension are one exchange.
    """
    if source == target:
        return ()
    current = source
    chain: list[Step] = []
    for dim, axes in enumerate(current):
        for first in reversed(range(_common(axes, target[dim]), len(axes))):
            leaving = current[dim][first:]
            goal = _destination(leaving, dim, current, target)
            if goal is not None:
                current = _put(_put(current, dim, axes[:first]), goal, current[goal] + leaving)
                chain.append(Step("all-to-all", leaving, current))
    # Gather the dimension with the fewest remaining shards last: what is gathered first moves the smallest pieces.
    for dim, axes in enumerate(current):
        kept = _common(axes, target[dim])
        if axes[kept:]:
            current = _put(current, dim, axes[:kept])
            chain.append(Step("all-gather", axes[kept:], current))
    entering = tuple(axis for dim, axes in enumerate(target) for axis in axes[len(current[dim]) :])
    if entering:
        chain.append(Step("slice", entering, target))
    return tuple(chain)


def _common(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _destination(leaving: tuple[int, ...], dim: int, current: Layout, target: Layout) -> int | None:
    """The dimension that takes these axes next in the target, if any."""
    for other, axes in enumerate(target):
        after = current[other] + leaving
        if leaving and other != dim and axes[: len(after)] == after:
            return other
    return None


def _put(layout: Layout, dim: int, axes: tuple[int, ...]) -> Layout:
    return (*layout[:dim], axes, *layout[dim + 1 :])
