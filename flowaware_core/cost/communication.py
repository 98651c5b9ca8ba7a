"""What a change of layout moves, and how long it takes.

Bytes are those that one device puts in: an all-gather its shard, an all-reduce and a reduce-scatter the whole operand, an
all-to-all its shard. With axes from the outside (1) to the inside (k), n_i their sizes, B_i the bandwidth of one device along
them and L_i the latency, a collective over several axes runs level by level, the large pieces on the inner links:

    all-gather of v bytes per device    sum over i = 1..k   (n_i - 1) v_i / B_i + L_i log2 n_i      v_1 = v, v_{i+1} = n_i v_i
    reduce-scatter of v bytes           the all-gather of v / (n_1 ... n_k), backwards
    all-reduce of v bytes               reduce-scatter, then all-gather
    all-to-all of v bytes               sum over i          (n_i - 1) / n_i v / B_i + L_i (n_i - 1), axes of one level joined
    collective-permute of v bytes       v / B + L           on the slowest axis

The schedule of hierarchical collectives is that of NCCL's and Horovod's documentation; latencies follow a binary tree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.graph.layout import Layout, local_shape, steps
from flowaware_core.graph.model import Communication
from flowaware_core.graph.placement import Partial

# Two ways to lay out the same bytes: an exchange copies its operand on either side.
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")


def seconds(kind: str, size: float, axes: Sequence[int], mesh: Mesh) -> float:
    """Time of one collective.

    Args:
        kind: one of `KINDS`.
        size: bytes one device puts in.
        axes: positions of the mesh axes it runs over.
        mesh: where it runs.
    """
    chosen = [mesh.axes[axis] for axis in sorted(axes)]
    count = math.prod(axis.size for axis in chosen)
    if count <= 1:
        return 0.0
    if kind == "all-reduce":
        return 2.0 * seconds("all-gather", size / count, axes, mesh)
    if kind == "reduce-scatter":
        return seconds("all-gather", size / count, axes, mesh)
    if kind == "all-gather":
        total = 0.0
        for axis in chosen:
            total += (axis.size - 1) * size / axis.bandwidth_bytes_per_s + axis.latency_s * math.log2(axis.size)
            size *= axis.size
        return total
    if kind == "all-to-all":
        joined: dict[tuple[float, float], int] = {}
        for axis in chosen:
            links = axis.bandwidth_bytes_per_s, axis.latency_s
            joined[links] = joined.get(links, 1) * axis.size
        return sum(
            (number - 1) / number * size / bandwidth + latency * (number - 1)
            for (bandwidth, latency), number in joined.items()
        )
    if kind == "collective-permute":
        return max(size / axis.bandwidth_bytes_per_s + axis.latency_s for axis in chosen)
    raise ValueError(f"kind={kind!r}; allowed are {', '.join(KINDS)}")


def reshard(
    shape: Sequence[int], itemsize: int, source: Layout, target: Layout, sizes: Sequence[int]
) -> tuple[Communication, ...]:
    """The collectives that take a tensor from one layout to another; slices and axes of one device are free and not listed."""
    found = []
    current = source
    for step in steps(source, target):
        count = math.prod(sizes[axis] for axis in step.axes)
        if step.kind != "slice" and count > 1:
            size = math.prod(local_shape(shape, current, sizes)) * itemsize
            found.append(Communication(step.kind, size, step.axes))
        current = step.layout
    return tuple(found)


def combine(
    shape: Sequence[int], itemsize: int, natural: Layout, target: Layout, partial: Partial, sizes: Sequence[int]
) -> tuple[Communication, ...]:
    """The collectives that turn partial results into a tensor of a given layout.

    Args:
        shape, itemsize: the whole tensor.
        natural: the layout in which the operator leaves its partial results.
        target: the layout wanted.
        partial: the axes over which results are partial, per dimension that was reduced.
        sizes: sizes of the mesh axes.

    The sums over several dimensions are one all-reduce each. An all-reduce whose result is at once cut along the very
    axes it ran over is a reduce-scatter, if the shards are equal.
    """
    partial = tuple(axes for axes in partial if math.prod(sizes[axis] for axis in axes) > 1)
    if not partial:
        return reshard(shape, itemsize, natural, target, sizes)
    size = math.prod(local_shape(shape, natural, sizes)) * itemsize
    chain = steps(natural, target)
    even = all(length % math.prod(sizes[a] for a in axes) == 0 for length, axes in zip(shape, target, strict=True))
    if even and len(partial) == len(chain) == 1 and chain[0].kind == "slice" and _scatters(natural, target, partial[0]):
        return (Communication("reduce-scatter", size, partial[0]),)
    sums = (Communication("all-reduce", size, axes) for axes in partial)
    return (*sums, *reshard(shape, itemsize, natural, target, sizes))


def _scatters(natural: Layout, target: Layout, partial: tuple[int, ...]) -> bool:
    """Whether the target is the natural layout with exactly the partial axes added to one dimension."""
    added = [after[len(before) :] for before, after in zip(natural, target, strict=True) if before != after]
    return len(added) == 1 and added[0] == partial
