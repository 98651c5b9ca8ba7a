"""Schedules at the steps that matter, and the update against the formula."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from zoo.training.optimizer import OptimizerConfig, learning_rate, optimizer


def rates(config: OptimizerConfig, steps: int, at: list[int]) -> list[float]:
    schedule = learning_rate(config, steps)
    return [float(schedule(jnp.int32(step))) for step in at]


def test_cosine_climbs_then_falls_to_zero_at_the_last_step() -> None:
    config = OptimizerConfig(0.4, schedule="cosine", warmup_steps=10)
    np.testing.assert_allclose(rates(config, 110, [0, 5, 10, 60, 110, 500]), [0, 0.2, 0.4, 0.2, 0, 0], atol=1e-6)


def test_step_boundaries_count_from_the_first_step() -> None:
    config = OptimizerConfig(1.0, schedule="step", warmup_steps=4, boundaries=(10, 20), decay=0.1)
    np.testing.assert_allclose(rates(config, 30, [4, 9, 11, 19, 21]), [1, 1, 0.1, 0.1, 0.01], rtol=1e-6)


def test_constant_stays() -> None:
    np.testing.assert_allclose(rates(OptimizerConfig(0.3, schedule="constant"), 5, [0, 4, 99]), 0.3, rtol=1e-6)


@pytest.mark.parametrize("nesterov", [False, True])
def test_update_is_sgd_with_momentum_and_decay_on_kernels_alone(nesterov: bool) -> None:
    config = OptimizerConfig(0.1, schedule="constant", momentum=0.9, nesterov=nesterov, weight_decay=0.01)
    params = {"kernel": jnp.full((2, 2), 3.0), "bias": jnp.full((2,), 3.0)}
    grads = {"kernel": jnp.full((2, 2), 1.0), "bias": jnp.full((2,), 1.0)}
    transformation = optimizer(config, 10)
    state = transformation.init(params)
    momentum = {"kernel": 0.0, "bias": 0.0}
    for _ in range(2):
        updates, state = transformation.update(grads, state, params)
        for name, decay in (("kernel", 0.01), ("bias", 0.0)):
            gradient = 1.0 + decay * 3.0
            momentum[name] = 0.9 * momentum[name] + gradient
            direction = 0.9 * momentum[name] + gradient if nesterov else momentum[name]
            np.testing.assert_allclose(updates[name], -0.1 * direction, rtol=1e-6)


def test_clipping_bounds_the_norm_of_the_whole_gradient() -> None:
    config = OptimizerConfig(1.0, schedule="constant", momentum=0.0, gradient_clip=1.0)
    grads = {"a": jnp.asarray([30.0]), "b": jnp.asarray([40.0])}
    transformation = optimizer(config, 10)
    updates, _ = transformation.update(grads, transformation.init(grads), grads)
    np.testing.assert_allclose([updates["a"][0], updates["b"][0]], [-0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"learning_rate": 0.1, "momentum": 1.0}, "momentum=1.0"),
        ({"learning_rate": 0.1, "gradient_clip": 0.0}, "gradient_clip=0.0"),
        ({"learning_rate": 0.1, "boundaries": (5, 3)}, "rising"),
    ],
)
def test_config_refuses_values_out_of_range(options: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        OptimizerConfig(**options)


def test_warm_up_longer_than_training_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup_steps=20 is more than the 10 steps"):
        learning_rate(OptimizerConfig(0.1, warmup_steps=20), 10)
