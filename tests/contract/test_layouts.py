"""Changes of layout, as they are compiled: the planned collectives and no others, and the same numbers."""

from __future__ import annotations

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowaware_core import hlo, versions
from flowaware_core.cost.communication import reshard
from flowaware_core.cost.resharding import layout
from flowaware_core.execute.spmd import sharding
from flowaware_core.graph.layout import steps

SIZES, SHAPE = (2, 2, 2), (16, 16, 16)
EXCHANGES = [
    (source, target)
    for source in (layout(number, 3, 3) for number in range(4**3))
    for target in (layout(number, 3, 3) for number in range(4**3))
    if any(step.kind == "all-to-all" and len(step.axes) > 1 for step in steps(source, target))
]


def check(source: tuple, target: tuple) -> None:
    mesh = versions.mesh(np.array(jax.devices()[:8]).reshape(SIZES), ("a", "b", "c"))

    def moved(x: jax.Array) -> jax.Array:
        for step in steps(source, target):
            x = jax.lax.with_sharding_constraint(x, sharding(step.layout, mesh))
        return x

    ends = {"in_shardings": sharding(source, mesh), "out_shardings": sharding(target, mesh)}
    compiled = jax.jit(moved, **ends).lower(jax.ShapeDtypeStruct(SHAPE, jnp.float32)).compile()
    planned = collections.Counter((move.kind, move.bytes) for move in reshard(SHAPE, 4, source, target, SIZES))
    found = collections.Counter((one.kind, one.bytes) for one in hlo.collectives(compiled.as_text(), 8))
    assert found == planned, (source, target)
    values = np.arange(16**3, dtype=np.float32).reshape(SHAPE)
    assert np.array_equal(compiled(jax.device_put(values, ends["in_shardings"])), values)


@pytest.mark.parametrize("source, target", EXCHANGES[:: len(EXCHANGES) // 12])
def test_axes_that_move_together_are_one_exchange(source: tuple, target: tuple) -> None:
    check(source, target)


@pytest.mark.slow
def test_every_exchange_of_several_axes() -> None:
    for source, target in EXCHANGES:
        check(source, target)
