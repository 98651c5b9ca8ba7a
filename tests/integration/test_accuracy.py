"""Trained for real: CIFAR-10's subset to 50 % and more, and no less through the engine than in plain JAX; MNIST to 99 %."""

from __future__ import annotations

import itertools
import statistics

import jax
import pytest

import flowaware_core as fa
from recipes.pnasnet import PNASNetRecipe
from recipes.resnet import ResNetRecipe
from zoo.config import RecipeConfig, Rehearsal, compose

STEPS, BATCH, SEEDS = 1500, 64, (0, 1, 2)


def narrowed(folder) -> ResNetRecipe:
    """recipe=resnet50, narrowed to what two cores train in minutes."""
    model = {"blocks": [1, 1, 1], "width": 32, "stem": "imagenet", "num_classes": 10, "zero_init_residual": True}
    data = {"name": "cifar10", "image_size": 32, "global_batch": BATCH}
    optimizer = {"learning_rate": 0.1, "nesterov": True, "weight_decay": 5e-4, "warmup_steps": 60}
    training = {"steps": STEPS, "label_smoothing": 0.1}
    target = "recipes.resnet.ResNetRecipe"
    return ResNetRecipe(RecipeConfig("narrowed", target, model, data, optimizer, training, Rehearsal(3, 1)), folder)


def accuracy(ours: ResNetRecipe, step, state, seed: int, sharding=None) -> float:
    """Test accuracy after all steps."""
    evaluate = jax.jit(ours.evaluate)
    for batch in itertools.islice(ours.batches("train", seed, 0, ours.data_config.global_batch), ours.training.steps):
        state, _ = step(state, batch if sharding is None else jax.device_put(batch, sharding))
    state = jax.device_get(state)
    sums = [jax.device_get(evaluate(state, batch)) for batch in ours.batches("test", seed, 0, 200)]
    return float(sum(s["accuracy"] for s in sums) / sum(s["count"] for s in sums))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_accuracy_through_the_engine_and_in_plain_jax(reference_data) -> None:
    ours = narrowed(reference_data / "images" / "cifar10")
    device = fa.Device("cpu", 4 * fa.GIB, {"float32": 1e10}, 1e10)
    task = ours.task()
    plan = fa.plan(task, fa.Cluster("two", device, (fa.Level("device", 2, 1e9, 1e-5),)), strategy="auto")
    split = fa.apply(plan, task)
    engine, plain = split.compile(), jax.jit(ours.step, donate_argnums=0)
    through, without = [], []
    for seed in SEEDS:
        born = jax.jit(ours.initial_state, out_shardings=split.in_shardings[0])(jax.random.key(seed))
        through.append(accuracy(ours, engine, born, seed, split.in_shardings[1]))
        without.append(accuracy(ours, plain, jax.jit(ours.initial_state)(jax.random.key(seed)), seed))
        print(f"through the engine {through}, in plain JAX {without}", flush=True)
    assert min(*through, *without) >= 0.5
    assert abs(statistics.mean(through) - statistics.mean(without)) <= 0.02


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_narrow_pnasnet_reads_mnist(reference_data) -> None:
    config = compose(["recipe=pnasnet_mnist", "cluster=local", f"data_dir={reference_data / 'images' / 'mnist'}"])
    ours = PNASNetRecipe(config.recipe, config.data_dir)
    ours.for_processor()
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    found = accuracy(ours, jax.jit(ours.step, donate_argnums=0), state, seed=0)
    print(f"PNASNet on MNIST: {found:.4f}")
    assert found >= 0.99
