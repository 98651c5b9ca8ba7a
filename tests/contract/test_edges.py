"""Small and odd programs and clusters: each is planned, audited, run, and gives what plain JAX gives."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import mlir

import flowaware_core as fa
from flowaware_core import versions
from tests.contract.conftest import SLOW

TOLERANCES = {"float64": 1e-12, "float32": 2e-5, "bfloat16": 2e-2}


def side_by_side(count: int) -> fa.Cluster:
    return fa.Cluster("edge", SLOW, (fa.Level("device", count, 1e10, 1e-6),))


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(task: fa.Task, args: Any, count: int = 8, strategy: str = "auto") -> fa.Plan:
    """Plans, audits, runs, and holds every leaf, its type and its shape against plain JAX."""
    expected = jax.device_get(jax.jit(task.step)(*args))
    plan = fa.plan(task, side_by_side(count), strategy=strategy)
    step = fa.apply(plan, task)
    compiled = step.compile(optimise=False)
    audit = fa.audit(compiled, plan)
    assert audit.ok, audit.describe()
    found = jax.device_get(compiled(*jax.device_put(args, step.in_shardings)))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype and one.shape == other.shape
        if jnp.issubdtype(other.dtype, jnp.floating):
            tolerance = TOLERANCES[other.dtype.name]
            np.testing.assert_allclose(one.astype(float), other.astype(float), rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(one, other)
    return plan


def descent(state: Any, batch: Any) -> Any:
    """A step of descent on a layer with a tanh."""

    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(batch["x"] @ w["in"]) @ w["out"]) ** 2)

    value, grads = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda w, g: w - jnp.asarray(0.1, w.dtype) * g, state, grads), {"loss": value}


def descending(batch: int, dtype: Any = np.float32) -> tuple[fa.Task, Any]:
    weights = {"in": normal(16, 32, dtype=dtype) / 4, "out": normal(32, 8, dtype=dtype) / 4}
    args = weights, {"x": normal(batch, 16, dtype=dtype)}
    return fa.Task(descent, args, carried={0: 0}, batch=(1,)), args


@pytest.mark.parametrize("count", [1, 7])
def test_one_device_and_a_prime_number_of_devices(count: int) -> None:
    plan = check(*descending(14), count=count)
    assert plan.num_devices == count


@pytest.mark.parametrize("strategy", ["auto", "data", "fsdp", "tensor"])
def test_a_batch_smaller_than_the_number_of_devices(strategy: str) -> None:
    check(*descending(4), strategy=strategy)


def test_a_batch_of_one() -> None:
    check(*descending(1))


def test_empty_pytrees() -> None:
    task = fa.Task(lambda state, extra, x: (state, extra, {}, x.sum()), ({}, (), normal(16)), carried={0: 0, 1: 1})
    check(task, ({}, (), normal(16)))


def test_a_program_that_does_nothing() -> None:
    check(fa.Task(lambda x: x, (normal(16),)), (normal(16),))
    check(fa.Task(lambda: {}, ()), ())


def test_an_empty_array() -> None:
    args = (normal(0, 8), normal(8, 16))
    check(fa.Task(lambda x, w: (x @ w, x.sum()), args), args)


def test_whole_numbers_and_flags_among_the_leaves() -> None:
    def step(state: Any, batch: Any) -> Any:
        chosen = state["on"] & (batch["label"] > 2)
        total = jnp.where(chosen, batch["label"], 0).sum()
        return {"on": ~state["on"], "seen": state["seen"] + 1, "sum": state["sum"] + total}, chosen

    state = {"on": np.arange(16) % 3 == 0, "seen": np.int32(4), "sum": np.int32(0)}
    args = (state, {"label": (np.arange(16) % 5).astype(np.int32)})
    check(fa.Task(step, args, carried={0: 0}, batch=(1,)), args)


def test_metrics_of_mixed_shapes() -> None:
    def step(x: Any, w: Any) -> Any:
        h = x @ w
        return {"one": h.sum(), "each": h.mean(1), "all": h, "name": None, "literal": 3.0, "pair": (h.argmax(1), h > 0)}

    args = (normal(16, 8), normal(8, 24))
    check(fa.Task(step, args, batch=(0,)), args)


def test_a_parameter_used_twice() -> None:
    """An embedding that is also the last layer: its gradient comes from a scatter and from a product."""

    def step(state: Any, batch: Any) -> Any:
        def loss(table: Any) -> Any:
            return -jax.nn.log_softmax(jnp.tanh(table[batch["token"]]) @ table.T)[:, :, 0].mean()

        value, grads = jax.value_and_grad(loss)(state)
        return state - 0.1 * grads, value

    args = (normal(64, 16), {"token": (np.arange(128).reshape(16, 8) * 7 % 64).astype(np.int32)})
    check(fa.Task(step, args, carried={0: 0}, batch=(1,)), args)


def test_a_program_without_matrix_products() -> None:
    def step(x: Any, v: Any) -> Any:
        force = -jnp.sin(x) - x / (1 + (x**2).sum(-1, keepdims=True))
        return x + 0.01 * (v + 0.01 * force), v + 0.01 * force

    args = (normal(64, 3), normal(64, 3))
    plan = check(fa.Task(step, args, mode="simulation", carried={0: 0, 1: 1}, batch=(0, 1)), args)
    assert plan.strategy.startswith("examples over")


def test_float64(x64: None) -> None:
    check(*descending(16, np.float64))


def test_bfloat16() -> None:
    check(*descending(16, jnp.bfloat16))


def test_donated_arguments_are_gone_and_aliased_ones_are_copied() -> None:
    task = fa.Task(
        lambda state: {"a": state["a"] + 1, "b": state["b"] * 2}, ({"a": normal(16), "b": normal(16)},), carried={0: 0}
    )
    step = fa.apply(fa.plan(task, side_by_side(8)), task)
    state = jax.device_put({"a": normal(16), "b": normal(16)}, step.in_shardings[0])
    after = step(state)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
    assert after["a"].sharding == step.in_shardings[0]["a"]
    shared = jax.device_put(normal(16), step.in_shardings[0]["a"])
    after = step({"a": shared, "b": shared})
    np.testing.assert_allclose(after["a"], normal(16) + 1)
    np.testing.assert_allclose(after["b"], normal(16) * 2)


def test_one_array_as_two_arguments() -> None:
    task = fa.Task(lambda state, x: (state + x, x.sum()), (normal(16), normal(16)), carried={0: 0})
    step = fa.apply(fa.plan(task, side_by_side(8)), task)
    x = jax.device_put(normal(16), step.in_shardings[0])
    after, total = step(x, x)
    np.testing.assert_allclose(after, 2 * normal(16))
    np.testing.assert_allclose(total, normal(16).sum(), rtol=1e-5)


def test_nothing_fits_and_the_error_says_what_would() -> None:
    task, _ = descending(1024)
    device = fa.Device("small", 20_000, {"float32": 1e9}, 1e9)
    with pytest.raises(fa.DoesNotFit, match=r"needs .* GiB a device .* usable.*would fit on"):
        fa.plan(task, fa.Cluster("small", device, (fa.Level("device", 2, 1e10, 1e-6),)))


def test_a_primitive_without_a_rule_runs_whole_and_is_warned_of() -> None:
    primitive = versions.Primitive("doubled")
    primitive.def_abstract_eval(lambda x: x)
    mlir.register_lowering(primitive, mlir.lower_fun(lambda x: x * 2, multiple_results=False))
    args = (normal(64, 16), normal(16, 32))
    task = fa.Task(lambda x, w: jnp.tanh(primitive.bind(x @ w)), args, batch=(0,))
    with pytest.warns(
        UserWarning, match=r"doubled at test_edges.py:\d+ \(.*\) has no rule: it runs whole .* ms of a step"
    ):
        plan = check(task, args)
    assert "doubled at test_edges.py" in fa.describe(plan)


HASH = """
import jax
import flowaware_core as fa
from tests.contract.test_edges import descending, side_by_side
print(fa.plan(descending(16)[0], side_by_side(8)).hash)
"""


def test_two_processes_get_the_same_plan(root: Path) -> None:
    """The order of Python's sets and dictionaries of strings differs between processes: no choice may depend on it."""
    other = subprocess.run(
        [sys.executable, "-c", HASH],
        cwd=root,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
    )
    assert other.returncode == 0, other.stderr
    assert other.stdout.strip() == fa.plan(descending(16)[0], side_by_side(8)).hash


def deep(layers: int) -> fa.Task:
    """Ten equations a layer, all different in width from the next but one: no loop, nothing rolled up."""

    def step(x: Any, weights: Any) -> Any:
        for index in range(layers):
            h = jnp.tanh(x @ weights[index % len(weights)])
            x = x + jnp.where(h > 0, h * 0.5, jnp.sin(h) - h.mean(-1, keepdims=True))
        return x.sum()

    weights = [jax.ShapeDtypeStruct((64, 64), np.float32)] * 4
    return fa.Task(step, (jax.ShapeDtypeStruct((32, 64), np.float32), weights), batch=(0,))


@pytest.mark.slow
def test_a_hundred_thousand_equations_in_linear_time() -> None:
    spent = {}
    for layers in (1_000, 10_000):
        begin = time.process_time()
        plan = fa.plan(deep(layers), side_by_side(8))
        spent[layers] = time.process_time() - begin
        print(f"{plan.operators} operators planned in {spent[layers]:.1f} s of one core")
    assert plan.operators >= 100_000
    assert spent[10_000] < 60
    assert spent[10_000] < 15 * spent[1_000], "ten times the equations take ten times as long"
