"""The ResNet recipe: the task, a few steps by hand, evaluation with a filled-up batch, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recipes.resnet import ResNetRecipe, cross_entropy
from zoo.errors import UserError

SECTIONS: dict[str, dict[str, Any]] = {
    "model": {"blocks": [1, 1], "width": 4, "stem": "cifar", "num_classes": 10},
    "data": {"name": "digits", "image_size": 8, "global_batch": 8},
    "optimizer": {"learning_rate": 0.1, "weight_decay": 1e-4, "warmup_steps": 2},
    "training": {"steps": 10},
}


@pytest.fixture
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def recipe(data_dir: Path = Path("nowhere"), **changes: dict[str, Any]) -> ResNetRecipe:
    sections = {name: section | changes.get(name, {}) for name, section in SECTIONS.items()}
    return ResNetRecipe(SimpleNamespace(name="tiny", **sections), data_dir)  # type: ignore[arg-type]


def batch_of(size: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.normal(size=(size, 8, 8, 3)).astype(np.float32),
        "label": rng.integers(0, 10, size).astype(np.int32),
    }


def test_task_is_abstract_and_carries_the_state() -> None:
    task = recipe().task()
    state, batch = task.args
    assert set(state) == {"params", "batch_stats", "opt_state", "step", "rng"}
    assert batch["image"].shape == (8, 8, 8, 3) and batch["label"].dtype == np.int32
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(task.args))
    after, metrics = jax.eval_shape(task.step, *task.args)
    same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), state, after)
    assert jax.tree.all(same)
    assert set(metrics) == set(recipe().metrics) and all(value.shape == () for value in metrics.values())
    assert recipe().task(global_batch=3).args[1]["label"].shape == (3,)


def test_steps_lower_the_loss_on_one_batch() -> None:
    ours = recipe(optimizer={"warmup_steps": 0, "schedule": "constant"})
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    batch = batch_of(8)
    step = jax.jit(ours.step)
    losses = []
    for _ in range(8):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.5 * losses[0]
    assert int(state["step"]) == 8


def test_first_loss_is_plain_cross_entropy_and_the_rate_follows_the_schedule() -> None:
    ours = recipe()
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    batch = batch_of(8)
    variables = {"params": state["params"], "batch_stats": state["batch_stats"]}
    logits, _ = jax.jit(lambda v, x: ours.model.apply(v, x, train=True, mutable=["batch_stats"]))(
        variables, batch["image"]
    )
    log_probs = jax.nn.log_softmax(logits)
    step = jax.jit(ours.step)
    state, metrics = step(state, batch)
    np.testing.assert_allclose(metrics["loss"], -np.mean(log_probs[np.arange(8), batch["label"]]), rtol=1e-5)
    assert float(metrics["learning_rate"]) == 0.0
    np.testing.assert_allclose(step(state, batch)[1]["learning_rate"], 0.05, rtol=1e-6)


def test_label_smoothing_mixes_in_the_mean_over_classes() -> None:
    logits = jax.random.normal(jax.random.key(0), (4, 10))
    label = jnp.asarray([0, 3, 9, 5])
    log_probs = jax.nn.log_softmax(logits)
    expected = -0.9 * log_probs[jnp.arange(4), label] - 0.1 * log_probs.mean(axis=1)
    np.testing.assert_allclose(cross_entropy(logits, label, 0.1), expected, rtol=1e-5)


def test_evaluation_ignores_rows_of_weight_zero() -> None:
    ours = recipe()
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    batch = batch_of(8)
    evaluate = jax.jit(ours.evaluate)
    whole = evaluate(state, batch | {"weight": np.ones(8, np.float32)})
    part = {name: value[:5] for name, value in batch.items()}
    alone = evaluate(state, part | {"weight": np.ones(5, np.float32)})
    masked = evaluate(state, batch | {"weight": np.asarray([1, 1, 1, 1, 1, 0, 0, 0], np.float32)})
    assert float(whole["count"]) == 8 and float(masked["count"]) == 5
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(masked[name], alone[name], rtol=1e-5)


def test_float64_state_and_loss(x64: None) -> None:
    ours = recipe(model={"dtype": "float64"})
    state = jax.eval_shape(ours.initial_state, jax.random.key(0))
    after, metrics = jax.eval_shape(ours.step, state, batch_of(8))
    dtypes = {leaf.dtype for leaf in jax.tree.leaves((state["params"], after["params"], after["opt_state"]))}
    assert dtypes == {jnp.dtype("float64"), jnp.dtype("int32")}
    assert metrics["loss"].dtype == jnp.float64


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": {"widht": 3}}, "recipe.model.widht is not known.*width"),
        ({"model": {"blocks": [0]}}, r"recipe.model.blocks=\[0\]"),
        ({"data": {"image_size": 0}}, "recipe.data.image_size=0"),
        ({"optimizer": {"learning_rate": -1.0}}, "recipe.optimizer.learning_rate=-1.0"),
        ({"optimizer": {"warmup_steps": 11}}, "recipe.optimizer: warmup_steps=11"),
        ({"training": {"label_smoothing": 1.5}}, "recipe.training.label_smoothing=1.5"),
    ],
)
def test_bad_options_name_the_section(changes: dict, text: str) -> None:
    with pytest.raises(UserError, match=text):
        recipe(**changes)
