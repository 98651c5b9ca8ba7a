"""Programs with parts that JAX gives a will of their own: they run whole on every device, with a warning, and are never refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

import flowaware_core as fa
from flowaware_core import versions


def mapped_by_hand(x: Any, w: Any) -> Any:
    mesh = versions.mesh(np.array(jax.devices()[:8]), ("mine",))
    cut = PartitionSpec("mine")
    return jnp.tanh(versions.shard_map(lambda a: a - jax.lax.pmean(a, "mine"), mesh, (cut,), cut)(jnp.sin(x)) @ w)


def partitioned_by_hand(x: Any, w: Any) -> Any:
    @custom_partitioning
    def summed(a: Any) -> Any:
        return jnp.cumsum(a, axis=0)

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        whole = NamedSharding(mesh, PartitionSpec())
        return mesh, lambda a: jnp.cumsum(a, axis=0), whole, (whole,)

    rule = {"sharding_rule": "i j -> i j"} if versions.VERSION >= (0, 5) else {}
    summed.def_partition(
        partition=partition,
        infer_sharding_from_operands=lambda mesh, arguments, result: NamedSharding(mesh, PartitionSpec()),
        **rule,
    )
    return summed(jnp.sin(x)) @ w


def scaled(x: Any, w: Any) -> Any:
    left, right = x.astype(jnp.float8_e4m3fn), w.astype(jnp.float8_e4m3fn)
    scale = jnp.full((len(x), 1), 2.0, jnp.float8_e8m0fnu)
    return jax.lax.scaled_dot(left, right, lhs_scale=scale, preferred_element_type=jnp.float32)


def changed_in_place(x: Any, w: Any) -> Any:
    held = jax.new_ref(jnp.sin(x))
    held[...] = held[...] * 2.0
    held[0] = held[1] + 1.0
    return held[...] @ w


PROGRAMS: list[Any] = [mapped_by_hand, partitioned_by_hand]
PROGRAMS += [scaled] if hasattr(jax.lax, "scaled_dot") else []


def agrees(program: Callable[[Any, Any], Any], cluster: fa.Cluster) -> list[str]:
    """The warnings; the results are those of plain JAX."""
    random = np.random.default_rng(0)
    x, w = (random.normal(size=size).astype(np.float32) for size in ((64, 32), (32, 32)))
    task = fa.Task(program, (x, w), batch=(0,))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = fa.plan(task, cluster)
    np.testing.assert_allclose(fa.apply(plan, task)(x, w), jax.jit(program)(x, w), rtol=1e-4, atol=1e-4)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_what_partitions_itself_runs_whole(program: Callable[[Any, Any], Any], flat: fa.Cluster) -> None:
    warned = agrees(program, flat)
    assert len(warned) == 1 and "has no rule: it runs whole on every device" in warned[0], warned


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this version of jax has no public mutable arrays")
def test_arrays_changed_in_place_are_values(flat: fa.Cluster) -> None:
    assert not agrees(changed_in_place, flat)
