"""The verbs on functions that have nothing to do with the zoo: a Flax model, a Haiku model, a science kernel, edge cases."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa

DEVICE = fa.Device("cpu", fa.GIB, {"float32": 1e9}, 1e9)
# The rarer ones take as long as these and run with the slow tests.
USUAL = ("auto", "data", "fsdp", "tensor")
EVERY = [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in fa.STRATEGIES]
EIGHT = fa.Cluster("eight", DEVICE, (fa.Level("device", 8, 1e10, 1e-6),))


def check(task: fa.Task, args: Any, cluster: fa.Cluster = EIGHT, strategy: str = "auto") -> fa.Plan:
    """Plans, audits, runs, and compares with plain JAX."""
    expected = jax.device_get(jax.jit(task.step)(*args))
    plan = fa.plan(task, cluster, strategy=strategy)
    step = fa.apply(plan, task)
    compiled = step.compile()
    audit = fa.audit(compiled, plan)
    assert audit.ok, audit.describe()
    found = jax.device_get(compiled(*jax.device_put(args, step.in_shardings)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4), found, expected)
    return plan


def trained(apply: Any, params: Any) -> fa.Task:
    """A step of Adam on a mean square error."""
    optimizer = optax.adam(1e-2)

    def step(state: Any, batch: Any) -> Any:
        def loss_of(p: Any) -> Any:
            return jnp.mean((apply(p, batch["x"]) - batch["y"]) ** 2)

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, {"loss": loss}

    state = {"params": params, "opt": optimizer.init(params)}
    batch = {"x": jnp.ones((32, 16)), "y": jnp.ones((32, 4))}
    return fa.Task(step, (state, batch), carried={0: 0}, batch=(1,))


def arguments(task: fa.Task, state: Any) -> Any:
    random = np.random.default_rng(0)
    batch = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(leaf.dtype), task.args[1])
    return state, batch


@pytest.mark.parametrize("strategy", ["auto", "fsdp"])
def test_a_flax_model(strategy: str) -> None:
    model = nn.Sequential([nn.Dense(64), nn.gelu, nn.LayerNorm(), nn.Dense(4)])
    params = model.init(jax.random.key(0), jnp.ones((1, 16)))
    task = trained(model.apply, params)
    check(task, arguments(task, {"params": params, "opt": optax.adam(1e-2).init(params)}), strategy=strategy)


def test_a_haiku_model() -> None:
    model = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([64, 4])(x)))
    params = model.init(jax.random.key(0), jnp.ones((1, 16)))
    task = trained(model.apply, params)
    check(task, arguments(task, {"params": params, "opt": optax.adam(1e-2).init(params)}))


@pytest.mark.parametrize("strategy", EVERY)
def test_a_science_kernel(strategy: str) -> None:
    """Spectra of many signals, sorted, and their energies added up in bins: Fourier transform, sort, scatter."""

    def kernel(state: Any, batch: Any) -> Any:
        power = jnp.abs(jnp.fft.fft(batch["signal"], axis=-1)) ** 2
        bins = jnp.zeros(64).at[batch["bin"]].add(power.sum(-1))
        return {"mean": 0.9 * state["mean"] + 0.1 * jnp.sort(power, axis=-1).mean(0)}, {"bins": bins, "all": bins.sum()}

    random = np.random.default_rng(0)
    signal = random.normal(size=(64, 128)).astype(np.float32)
    args = ({"mean": np.zeros(128, np.float32)}, {"signal": signal, "bin": random.integers(0, 64, 64).astype(np.int32)})
    check(fa.Task(kernel, args, carried={0: 0}, batch=(1,)), args, strategy=strategy)


def test_a_bare_function() -> None:
    def step(w: Any, x: Any) -> Any:
        return w - 0.1 * (x.T @ (x @ w)), jnp.sum(x @ w)

    w, x = np.ones((16, 16), np.float32), np.random.default_rng(0).normal(size=(64, 16)).astype(np.float32)
    plan = fa.plan(step, (w, x), EIGHT)
    split = fa.apply(plan, step, (w, x))
    expected = jax.device_get(jax.jit(step)(w, x))
    found = jax.device_get(split(*jax.device_put((w, x), split.in_shardings)))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-4)


def test_one_device_and_seven() -> None:
    for size in (1, 7):
        cluster = fa.Cluster("few", DEVICE, (fa.Level("device", size, 1e10, 1e-6),))
        args = (np.ones((14, 6), np.float32), np.ones((6, 5), np.float32))
        check(fa.Task(lambda a, b: jnp.tanh(a @ b), args), args, cluster)


def test_a_wrong_strategy_is_named() -> None:
    with pytest.raises(ValueError, match="'dta'.*auto, data, zero1, fsdp"):
        fa.plan(fa.Task(jnp.sin, (jnp.ones(8),)), EIGHT, strategy="dta")


def test_a_plan_for_another_program_is_refused() -> None:
    plan = fa.plan(fa.Task(jnp.sin, (jnp.ones(8),)), EIGHT)
    with pytest.raises(ValueError, match="plan again"):
        fa.apply(plan, fa.Task(jnp.cos, (jnp.ones(8),)))


def test_too_few_devices_are_counted() -> None:
    sixteen = fa.Cluster("sixteen", DEVICE, (fa.Level("device", 16, 1e10, 1e-6),))
    task = fa.Task(jnp.sin, (jnp.ones(16),))
    with pytest.raises(ValueError, match="16 devices and 8 are here"):
        fa.apply(fa.plan(task, sixteen), task)


def test_the_difference_of_two_plans() -> None:
    task = fa.Task(lambda a, b: jnp.tanh(a @ b), (jnp.ones((64, 64)), jnp.ones((64, 64))), batch=(0,))
    one, other = (fa.plan(task, EIGHT, strategy=name) for name in ("data", "tensor"))
    assert fa.diff(one, one) == ""
    found = fa.diff(one, other)
    assert "requested: data -> tensor" in found and "groups 0: " in found
