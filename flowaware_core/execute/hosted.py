"""Arrays between the memory of the devices and that of their hosts: every device's shard on its own host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, SingleDeviceSharding

PINNED = "pinned_host"


def kind(mesh: jax.sharding.Mesh) -> str | None:
    """The name of the hosts' memory beside that of the devices; None where the backend has no such thing."""
    device = next(device for device in mesh.devices.flat if device.process_index == jax.process_index())
    known = {memory.kind for memory in device.addressable_memories()} - {device.default_memory().kind}
    return PINNED if PINNED in known else None


def moved(values: Sequence[Any], targets: Sequence[NamedSharding]) -> list[Any]:
    """The arrays in other memories: shard by shard, so each process moves its own and none waits for another.

    Args:
        values: laid out as the targets, wherever they lie.
        targets: with the kind of memory that they shall lie in.
    """
    pieces, homes = [], []
    for value, target in zip(values, targets, strict=True):
        for shard in value.addressable_shards:
            memory = target.memory_kind or shard.device.default_memory().kind
            pieces.append(shard.data)
            homes.append(SingleDeviceSharding(shard.device, memory_kind=memory))
    arrived = iter(jax.device_put(pieces, homes))
    return [
        jax.make_array_from_single_device_arrays(value.shape, target, [next(arrived) for _ in value.addressable_shards])
        for value, target in zip(values, targets, strict=True)
    ]
