"""Arrays moved between groups of devices, of one process or of several.

All processes call the same moves in the same order, also those that have no part in one: so none can wait for what another has not
started. An array of which no part is on a process's devices is an `Elsewhere` there.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flowaware_core import versions

# Axes of a move: its two ends, the parts that are sent side by side, and the bunches of devices of which one sends or receives.
END, PART, COPY = "end", "part", "copy"


@dataclasses.dataclass(frozen=True)
class Elsewhere:
    """An array on devices of other processes."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: NamedSharding


def here(mesh: Any) -> bool:
    """Whether some of these devices belong to this process."""
    return any(device.process_index == jax.process_index() for device in mesh.devices.flat)


def settled(values: Any, mesh: Any) -> Any:
    """The arrays; on CPUs of several processes, once they are there.

    Such a process has hardly more threads than devices: those that wait for another process are missed by whatever runs meanwhile,
    and by what that process waits for.
    """
    owners = {device.process_index for device in mesh.devices.flat}
    return jax.block_until_ready(values) if len(owners) > 1 and mesh.devices.flat[0].platform == "cpu" else values


def moved(values: Sequence[Any], targets: Sequence[NamedSharding]) -> list[Any]:
    """The arrays, laid out so; those that lie so already as they are.

    Raises:
        ValueError: another process has a part in a move between groups that have some devices in common.
    """
    found: list[Any] = [None] * len(values)
    local, between = [], dict[Any, list[int]]()
    for index, (value, target) in enumerate(zip(values, targets, strict=True)):
        if getattr(value, "sharding", None) == target:
            found[index] = value
        elif _local(target) and (not hasattr(value, "sharding") or _local(value.sharding)):
            local.append(index)
        elif not hasattr(value, "sharding"):
            found[index] = _placed(np.asarray(value), target)
        elif value.sharding.device_set == target.device_set:
            relaid = here(target.mesh)
            found[index] = settled(_relaid(target)(value), target.mesh) if relaid else _elsewhere(value, target)
        else:
            between.setdefault((tuple(value.sharding.mesh.devices.flat), target.mesh), []).append(index)
    at_once = jax.device_put([values[index] for index in local], [targets[index] for index in local])
    found_between = [
        (where, _between([values[index] for index in where], [targets[index] for index in where]))
        for where in between.values()
    ]
    for where, arrived in [(local, at_once), *found_between]:
        for index, value in zip(where, arrived, strict=True):
            found[index] = value
    return found


def _local(sharding: Any) -> bool:
    return all(device.process_index == jax.process_index() for device in sharding.device_set)


def _elsewhere(value: Any, target: NamedSharding) -> Elsewhere:
    return Elsewhere(value.shape, value.dtype, target)


def _placed(value: np.ndarray, target: NamedSharding) -> Any:
    """What every process has, on the devices of some."""
    if not here(target.mesh):
        return _elsewhere(value, target)
    return jax.make_array_from_callback(value.shape, target, lambda index: value[index])


def _between(values: Sequence[Any], targets: Sequence[NamedSharding]) -> list[Any]:
    """Moves from one group of devices to another, in one program; another process has a part in it.

    As many devices of either group as divide both sizes send and receive side by side; the rest of a larger group has copies.
    """
    plain = [_words(value) for value in values]
    mesh = targets[0].mesh
    ends = [plain[0].sharding.mesh.devices.reshape(-1), mesh.devices.reshape(-1)]
    if not set(ends[0]).isdisjoint(ends[1]):
        raise ValueError("arrays move between groups of devices that have none in common; these have some")
    count = math.gcd(ends[0].size, ends[1].size)
    shape, names = (mesh.devices.shape, mesh.axis_names) if count == ends[1].size else ((count,), (PART,))
    firsts, seconds = (versions.mesh(end.reshape(-1, *shape), (COPY, *names)) for end in ends)
    first, second = (versions.mesh(copies.devices[0], names) for copies in (firsts, seconds))
    if not here(firsts) and not here(seconds):
        return [_elsewhere(*pair) for pair in zip(values, targets, strict=True)]
    specs = [
        target.spec if count == ends[1].size else _parted(value.shape, count)
        for value, target in zip(plain, targets, strict=True)
    ]
    starts = [
        settled(_relaid(NamedSharding(firsts, spec))(value), firsts) if here(firsts) else value
        for value, spec in zip(plain, specs, strict=True)
    ]
    arrived = _sent(starts, specs, first, second) if here(first) or here(second) else [None] * len(plain)
    if not here(seconds):
        return [_elsewhere(*pair) for pair in zip(values, targets, strict=True)]
    found = []
    for value, target, words, spec, got in zip(values, targets, plain, specs, arrived, strict=True):
        parts = {} if got is None else {shard.device: shard.data[0] for shard in got.addressable_shards}
        if count == ends[1].size:
            kept = [parts[device] for device in second.devices.flat if device in parts]
            made = jax.make_array_from_single_device_arrays(words.shape, target, kept)
        else:
            spread = NamedSharding(seconds, PartitionSpec(COPY, *spec))
            copies = (ends[1].size // count, *words.shape)
            kept = _pieces(parts, spread, copies, words.dtype)
            made = settled(_foremost(target)(jax.make_array_from_single_device_arrays(copies, spread, kept)), mesh)
        keyed = words.dtype != value.dtype
        found.append(jax.random.wrap_key_data(made, impl=_generator(value.dtype)) if keyed else made)
    return found


def _sent(starts: Sequence[Any], specs: Sequence[PartitionSpec], first: Mesh, second: Mesh) -> list[Any]:
    """What lies on the first devices, and for each end of the way a copy of it, of which only that on the second is meant."""
    both = versions.mesh(np.stack([first.devices, second.devices]), (END, *first.axis_names))
    spreads = tuple(NamedSharding(both, PartitionSpec(END, *spec)) for spec in specs)
    given = []
    for value, spread in zip(starts, spreads, strict=True):
        shards = () if isinstance(value, Elsewhere) else value.addressable_shards
        parts, shape = {shard.device: shard.data for shard in shards}, (2, *value.shape)
        pieces = _pieces(parts, spread, shape, value.dtype)
        given.append(jax.make_array_from_single_device_arrays(shape, spread, pieces))
    return settled(_sender(spreads)(given), both)


def _parted(shape: Sequence[int], count: int) -> PartitionSpec:
    """Of an array in so many equal parts along one dimension, or whole where none divides."""
    dim = next((dim for dim, length in enumerate(shape) if length and length % count == 0), None)
    return PartitionSpec() if dim is None else PartitionSpec(*[None] * dim, PART)


def _pieces(parts: Mapping[Any, Any], spread: NamedSharding, shape: tuple[int, ...], dtype: Any) -> list[Any]:
    """What this process puts into an array of this shape: the parts that it has, one along dimension 0, and nothing elsewhere."""
    whole = spread.shard_shape(shape)
    mine = [device for device in spread.mesh.devices.flat if device.process_index == jax.process_index()]
    return [
        parts[device][None] if device in parts else jax.device_put(np.zeros(whole, dtype), device) for device in mine
    ]


def _words(value: Any) -> Any:
    """A random key as the numbers that it consists of, which alone can be sent; anything else as it is."""
    if not jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    if isinstance(value, Elsewhere):
        words = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(value.shape, value.dtype))
        return Elsewhere(words.shape, words.dtype, value.sharding)
    return jax.random.key_data(value)


def _generator(dtype: Any) -> Any:
    """The kind of random numbers that a key's type stands for."""
    found = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), jax.ShapeDtypeStruct((), dtype))
    return found[0]


@functools.cache
def _relaid(target: NamedSharding) -> Any:
    return jax.jit(lambda value: value, out_shardings=target)


@functools.cache
def _foremost(target: NamedSharding) -> Any:
    return jax.jit(lambda copies: copies[0], out_shardings=target)


@functools.cache
def _sender(spreads: tuple[NamedSharding, ...]) -> Any:
    def send(*parts: Any) -> list[Any]:
        return [jax.lax.ppermute(part, END, [(0, 1)]) for part in parts]

    specs, mesh = [spread.spec for spread in spreads], spreads[0].mesh
    assert isinstance(mesh, Mesh)
    run = versions.shard_map(send, mesh, tuple(specs), specs)
    return jax.jit(lambda values: run(*values), in_shardings=(list(spreads),), out_shardings=list(spreads))
