"""ResNet-152 in two unequal stages, chosen where halves are far apart, with the numbers of the same micro-batches on one device."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa
from recipes.resnet import ResNetRecipe, cross_entropy
from tests.contract.staged import cluster
from zoo.config import compose

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
# So slow that rounding is not amplified: deep networks with batch statistics are chaotic at the usual speed.
STEPS, RATE = 5, 5e-5
# Links that are quick enough for so small a network to be split within its stages.
SPREAD = cluster(1e15, inside=1e16, latency=1e-12)


def recipe(**sizes: Any) -> ResNetRecipe:
    config = compose(
        ["recipe=resnet152", "cluster=local", *(f"recipe.{k.replace('__', '.')}={v}" for k, v in sizes.items())]
    )
    return ResNetRecipe(config.recipe, config.data_dir)


def small(dtype: Any) -> ResNetRecipe:
    """As deep, but narrow, and for small images."""
    ours = recipe(model__width=8, data__image_size=32, data__global_batch=16)
    ours.model_config = dataclasses.replace(ours.model_config, dtype=np.dtype(dtype).name)
    ours.model = ours.model_class(ours.model_config)
    return ours


def drawn(dtype: Any) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {"image": draw.normal(size=(16, 32, 32, 3)).astype(dtype), "label": draw.integers(0, 1000, 16)}


def training(ours: ResNetRecipe) -> fa.Training:
    """Batch statistics are those of a micro-batch: what is compared does the same."""

    def loss(params: Any, stats: Any, batch: Any, key: Any) -> fa.Outcome:
        del key
        variables = {"params": params, "batch_stats": stats}
        logits: Any = ours.model.apply(variables, batch["image"], train=True, mutable=["batch_stats"])
        losses = cross_entropy(logits[0], batch["label"], 0.1)
        return fa.Outcome({"loss": fa.Mean(jnp.sum(losses), jnp.asarray(losses.size))}, {}, logits[1]["batch_stats"])

    return fa.Training(loss, optax.sgd(RATE), splits=True, extra="batch_stats")


def begin(ours: ResNetRecipe, how: fa.Training, dtype: Any) -> Any:
    variables = ours._variables(jax.random.key(0))
    params, stats = jax.tree.map(lambda leaf: leaf.astype(dtype), (variables["params"], variables["batch_stats"]))
    return how.initial(params, jax.random.key(1), stats)


def test_stages_are_chosen_and_even() -> None:
    ours = recipe()
    how = training(ours)
    state = jax.eval_shape(lambda: begin(ours, how, jnp.float32))
    halves = cluster(2.5e9, inside=3e11, latency=1e-5)
    found = fa.fastest(how, state, ours.abstract_batch(64), halves, "resnet152")
    whole = fa.plan(how.task(state, ours.abstract_batch(64)), halves)
    assert isinstance(found, fa.Pipeline)
    print(found.describe(), "one program:", whole.predicted.step_s)
    assert found.step_s < whole.predicted.step_s and found.imbalance < 0.15


@pytest.mark.parametrize("dtype", [jnp.float64, jnp.float32])
def test_two_stages_are_equal_to_one_device(dtype: Any) -> None:
    with jax.enable_x64(dtype == jnp.float64):
        ours, batch = small(dtype), drawn(dtype)
        how = training(ours)
        make = lambda: begin(ours, how, dtype)
        plan = fa.pipeline(how, jax.eval_shape(make), batch, SPREAD, micro_batches=2)
        assert all(stage.candidate.estimate.collectives for stage in plan.stages)  # each is split over its devices
        step = fa.PipelinedStep(plan)
        state, rows = step.initial(make), step.placed(batch)
        expected, plain = jax.jit(make)(), jax.jit(how.step(fa.Schedule(2)))
        before = jax.device_get(expected["params"])
        apart = []
        for number in range(STEPS if dtype == jnp.float64 else 1):
            state, found = step(state, rows)
            expected, right = plain(expected, batch)
            apart.append(abs(float(found["loss"]) / float(right["loss"]) - 1))
            if not number:
                pairs = zip(*map(jax.tree.leaves, (before, state["params"], expected["params"])), strict=True)
                gradients = [
                    ((old - np.asarray(ours)) / RATE, (old - np.asarray(other)) / RATE) for old, ours, other in pairs
                ]
        largest = max(float(np.abs(right).max()) for _, right in gradients)
        worst = max(float(np.abs(found - right).max()) for found, right in gradients) / largest
        print(f"losses apart by {apart}, gradients by {worst} of the largest")
        if dtype == jnp.float64:
            assert apart[0] < 1e-10 and worst < 1e-10 and max(apart) < 1e-8
        else:
            assert apart[0] < 1e-5
