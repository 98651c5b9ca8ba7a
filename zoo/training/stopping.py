"""When to stop: a signal reaches processes at different steps, but all of them must end at the same one."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def agreement(flag: Callable[[], bool], mesh: Mesh) -> Callable[[], bool]:
    """A function that all processes call once a step, and that gives all of them the same answer.

    Args:
        flag: whether this process was told to stop.
        mesh: the devices that vote.
    """
    return Vote(flag, mesh) if jax.process_count() > 1 else flag


class Vote:
    """Adds up the flags of all processes on the devices and reads the sum one step late, so that nobody waits."""

    def __init__(self, flag: Callable[[], bool], mesh: Mesh) -> None:
        self._flag = flag
        self._split = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        self._total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))
        self._before: jax.Array | None = None

    def __call__(self) -> bool:
        mine = np.full(1, self._flag(), np.int32)
        flags = jax.make_array_from_callback((self._split.mesh.size,), self._split, lambda _: mine)
        before, self._before = self._before, self._total(flags)
        return before is not None and int(before) > 0
