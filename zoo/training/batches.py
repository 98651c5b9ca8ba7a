"""From the rows that a process reads to arrays over all devices, split as the step wants them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


@dataclasses.dataclass(frozen=True)
class Rows:
    """The part of each global batch that this process reads: part `index` of `count` equal ones, rows in order."""

    index: int
    count: int


def rows_of_process(shardings: Any, batch: Any) -> Rows:
    """The smallest equal part of the batch that covers everything this process' devices hold.

    A plan that splits the batch over processes gives each its own part; one that keeps rows whole on several processes
    (tensor parallelism across them) gives them the same part.

    Args:
        shardings: a sharding per leaf of the batch.
        batch: the batch's abstract leaves `[rows, ...]`.
    """
    leaves = jax.tree.leaves(batch)
    spans = [
        index[0].indices(leaf.shape[0])
        for sharding, leaf in zip(jax.tree.leaves(shardings), leaves, strict=True)
        for index in sharding.addressable_devices_indices_map(leaf.shape).values()
    ]
    rows = leaves[0].shape[0]
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    for count in range(rows // (last - first), 1, -1):
        part = rows // count
        if rows % count == 0 and first // part == (last - 1) // part:
            return Rows(first // part, count)
    return Rows(0, 1)


def globally(local: Iterator[Mapping[str, np.ndarray]], shardings: Mapping[str, Any], rows: Rows) -> Iterator[Any]:
    """Turns this process' rows into global arrays; no data passes between processes.

    Args:
        local: batches of numpy arrays `[rows / count, ...]`.
        shardings: a sharding per leaf; a leaf that is not listed (an evaluation's weights) is split along its rows
            as the others are.
        rows: which part `local` holds.
    """
    rowwise = along_rows(next(iter(shardings.values())))
    for part in local:
        yield {name: _place(leaf, shardings.get(name, rowwise), rows) for name, leaf in part.items()}


def along_rows(sharding: NamedSharding) -> NamedSharding:
    """The same split of dimension 0 and no other."""
    return NamedSharding(sharding.mesh, PartitionSpec(*sharding.spec[:1]))


def _place(local: np.ndarray, sharding: NamedSharding, rows: Rows) -> jax.Array:
    shape = (len(local) * rows.count, *local.shape[1:])
    offset = rows.index * len(local)

    def shard(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        start, stop, _ = index[0].indices(shape[0])
        return local[(slice(start - offset, stop - offset), *index[1:])]

    return jax.make_array_from_callback(shape, sharding, shard)
