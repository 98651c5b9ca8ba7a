"""A deep potential over eight devices: frames, atoms or neighbours split, energies and forces those of plain JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import flowaware_core as fa
from recipes.deepmd import DeepmdRecipe
from zoo.config import RecipeConfig, Rehearsal, compose
from zoo.models.deepmd.model import Outputs

DESCRIPTOR = {"type": "se_e2_a", "rcut": 3.0, "sel": "auto", "neuron": [4, 8], "axis_neuron": 4, "type_one_side": True}
MODEL = {"type_map": ["O", "H"], "descriptor": DESCRIPTOR, "fitting_net": {"neuron": [16, 16]}}


def potential(frames: int) -> DeepmdRecipe:
    """Trains on atoms scattered at random, `frames` a step."""
    data = {"train": ["nowhere"], "batch_size": frames, "readers": 0}
    training = {"steps": 10, "loss": {"start_pref_v": 0.1, "limit_pref_v": 0.1}}
    config = RecipeConfig("tiny", "recipes.deepmd.DeepmdRecipe", MODEL, data, {}, training, Rehearsal(3, 1))
    return DeepmdRecipe(config, Path("."))


def distance(ours: Any, theirs: Any) -> float:
    """The largest difference of any number."""
    pairs = zip(jax.tree.leaves(jax.device_get(ours)), jax.tree.leaves(jax.device_get(theirs)), strict=True)
    return max(float(np.abs(a - b).max()) for a, b in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("frames", [8, 1])
@pytest.mark.parametrize("strategy", fa.STRATEGIES)
def test_training_is_that_of_plain_jax(strategy: str, frames: int, nested: fa.Cluster, x64: None) -> None:
    ours = potential(frames)
    task = ours.task()
    plan = fa.plan(task, nested, strategy=strategy)
    step = fa.apply(plan, task)
    batch = next(ours.batches("train", 0, 0, frames))
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    born = jax.jit(ours.initial_state, out_shardings=step.in_shardings[0])(jax.random.key(0))
    compiled = step.compile(optimise=False)
    after, metrics = compiled(born, jax.device_put(batch, step.in_shardings[1]))
    wanted, expected = jax.jit(ours.step)(state, batch)
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-10, atol=1e-10, err_msg=name)
    gradient, without = (jax.tree.leaves(s["opt_state"][0].mu) for s in (after, wanted))
    assert distance(gradient, without) <= 1e-10 * max(float(np.abs(leaf).max()) for leaf in without)
    assert fa.audit(compiled, plan).ok


@pytest.mark.slow
@pytest.mark.parametrize("frames", [8, 1])
def test_energies_and_forces_are_those_of_plain_jax(frames: int, flat: fa.Cluster, x64: None) -> None:
    task, args = inference(potential(frames), frames)
    step = fa.apply(fa.plan(task, flat), task)
    found = step.compile(optimise=False)(*jax.device_put(args, step.in_shardings))
    assert distance(found, jax.jit(task.step)(*args)) <= 1e-10


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_water_at_its_size_is_that_of_plain_jax_and_costs_what_was_predicted(
    flat: fa.Cluster, x64: None, reference_data: Path
) -> None:
    """A frame of 192 atoms with the nets of dp_water, split over eight devices."""
    composed = compose(["recipe=dp_water", "cluster=local", f"data_dir={reference_data / 'deepmd'}"])
    water = DeepmdRecipe(composed.recipe, composed.data_dir)
    task, args = inference(water, 1)
    plan = fa.plan(task, flat)
    step = fa.apply(plan, task)
    compiled = step.compile()
    found = compiled(*jax.device_put(args, step.in_shardings))
    assert distance(found, jax.jit(task.step)(*args)) <= 1e-10
    assert fa.audit(compiled, plan).ok
    training = water.task()
    plan = fa.plan(training, flat)
    audit = fa.audit(fa.apply(plan, training).compile(), plan)
    print(audit.describe())
    assert audit.ok and any(sides["compiled"]["bytes"] for sides in audit.collectives.values())


def inference(ours: DeepmdRecipe, frames: int) -> tuple[fa.Task, tuple[Any, ...]]:
    """Energy, force and virial of `frames` frames as a task, and what to call it with."""
    state = jax.device_get(jax.jit(ours.initial_state)(jax.random.key(0)))
    batch = next(ours.batches("train", 0, 0, frames))

    def outputs(params: Any, statistics: Any, batch: Any) -> Outputs:
        return ours._outputs(params, statistics, batch)

    args = (state["params"], state["statistics"], batch)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)
    return fa.Task(outputs, shapes, mode="inference"), args
