"""What is computed again: memory as predicted with and without, and the same losses."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa
from flowaware_core import versions
from flowaware_core.task import Schedule

LAYERS, ROWS, TOKENS, WIDTH, HEADS = 6, 16, 128, 64, 4
TOLERANCE = 0.10


def layer(x: jax.Array, w: Any) -> jax.Array:
    heads = lambda name: (x @ w[name]).reshape(*x.shape[:2], HEADS, WIDTH // HEADS)
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("query"), heads("key")) / 4
    x = x + jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads("value")).reshape(x.shape)
    return x + jax.nn.gelu(x @ w["up"]) @ w["down"]


def looped(params: Any, extra: None, batch: Any, key: jax.Array) -> fa.Outcome:
    del extra, key
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), batch["x"], params)
    return fa.Outcome({"square": fa.Mean(jnp.sum(x**2), x.size)})


def in_a_row(params: Any, extra: None, batch: Any, key: jax.Array) -> fa.Outcome:
    del extra, key
    x = batch["x"]
    for number in range(LAYERS):
        x = layer(x, jax.tree.map(lambda leaf, number=number: leaf[number], params))
    return fa.Outcome({"square": fa.Mean(jnp.sum(x**2), x.size)})


def task_of(loss: Any) -> tuple[fa.Task, Any]:
    training = fa.Training(loss, optax.sgd(0.1), splits=True)
    random = np.random.default_rng(0)
    sizes = {"query": WIDTH, "key": WIDTH, "value": WIDTH, "up": 4 * WIDTH}
    params = {name: random.normal(size=(LAYERS, WIDTH, size)) / 30 for name, size in sizes.items()}
    params["down"] = random.normal(size=(LAYERS, 4 * WIDTH, WIDTH)) / 30
    state = training.initial(jax.tree.map(jnp.float32, params), jax.random.key(0))
    batch = {"x": jnp.asarray(random.normal(size=(ROWS, TOKENS, WIDTH)), jnp.float32)}
    return training.task(state, batch), (state, batch)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [looped, in_a_row])
def test_memory_is_as_predicted_with_and_without(loss: Any, flat: fa.Cluster) -> None:
    if loss is in_a_row and versions.VERSION < (0, 8):
        pytest.skip("on this version the CPU's compiler joins what is computed twice")
    task, args = task_of(loss)
    (kind,) = task.kinds()
    half = dataclasses.replace(flat, levels=(dataclasses.replace(flat.levels[0], size=4),))
    held, losses = {}, []
    for schedule in (Schedule(), Schedule(1, ((kind, "products"),)), Schedule(1, ((kind, "inputs"),)), Schedule(2)):
        fixed = dataclasses.replace(task.scheduled(schedule), build=None)
        plan = fa.plan(fixed, half, strategy="data")
        step = fa.apply(plan, task)
        compiled = step.compile(optimise=False)
        memory = fa.audit(compiled, plan).memory
        assert memory["compiled"] is not None and memory["predicted"] is not None
        held[str(schedule)] = memory["compiled"], memory["predicted"]
        losses.append(compiled(*jax.device_put(args, step.in_shardings))[1]["loss"])
    for name, (real, predicted) in held.items():
        assert abs(predicted - real) <= TOLERANCE * real, (name, held)
    everything, products, inputs, parts = (real for real, _ in held.values())
    assert inputs < products < everything and parts < everything
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
