"""Stochastic gradient descent and its learning-rate schedules, from a configuration to optax."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

SCHEDULES = ("constant", "cosine", "step")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """SGD with momentum.

    Attributes:
        name: "sgd".
        learning_rate: the peak, reached after the warm-up.
        schedule: what follows the warm-up: "constant"; "cosine", down to 0 at the last step; "step", times `decay` at
            each of `boundaries`.
        warmup_steps: the learning rate climbs linearly from 0 over this many steps.
        boundaries: step numbers, counted from the first step of training.
        decay: factor at each boundary.
        momentum: 0 is plain SGD.
        nesterov: look ahead, as Nesterov's method does.
        weight_decay: times the parameter, added to its gradient; leaves out biases and batch norm.
        gradient_clip: largest allowed norm of the whole gradient, before weight decay; null does not clip.
    """

    learning_rate: float
    name: Literal["sgd"] = "sgd"
    schedule: Literal["constant", "cosine", "step"] = "cosine"
    warmup_steps: int = 0
    boundaries: tuple[int, ...] = ()
    decay: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    gradient_clip: float | None = None

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r}; allowed are {', '.join(SCHEDULES)}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate={self.learning_rate}; it must be above 0")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum}; it must be at least 0 and below 1")
        if self.warmup_steps < 0 or self.weight_decay < 0:
            raise ValueError(
                f"warmup_steps={self.warmup_steps}, weight_decay={self.weight_decay}; neither may be negative"
            )
        if self.gradient_clip is not None and not self.gradient_clip > 0:
            raise ValueError(f"gradient_clip={self.gradient_clip}; it must be above 0, or null for no clipping")
        if list(self.boundaries) != sorted(set(self.boundaries)) or any(step < 1 for step in self.boundaries):
            raise ValueError(f"boundaries={list(self.boundaries)}; give rising step numbers, the first at least 1")


def learning_rate(config: OptimizerConfig, steps: int) -> optax.Schedule:
    """The learning rate (float32 scalar) as a function of the step number; `steps` is the length of the whole training.

    Raises:
        ValueError: the warm-up is longer than the training.
    """
    if config.warmup_steps > steps:
        raise ValueError(f"warmup_steps={config.warmup_steps} is more than the {steps} steps of the whole training")
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(peak, max(steps - warmup, 1))
    elif config.schedule == "step":
        # The joined schedule counts from the end of the warm-up, the user from the first step.
        after = optax.piecewise_constant_schedule(peak, {at - warmup: config.decay for at in config.boundaries})
    else:
        after = optax.constant_schedule(peak)
    if warmup:
        after = optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])
    return lambda step: jnp.asarray(after(step), jnp.float32)


def optimizer(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """The chain clip, weight decay, momentum, learning rate; parts that are switched off are left out."""
    parts = []
    if config.gradient_clip is not None:
        parts.append(optax.clip_by_global_norm(config.gradient_clip))
    if config.weight_decay:
        parts.append(optax.add_decayed_weights(config.weight_decay, mask=_decayed))
    if config.momentum:
        parts.append(optax.trace(config.momentum, nesterov=config.nesterov))
    return optax.chain(*parts, optax.scale_by_learning_rate(learning_rate(config, steps)))


def _decayed(params: Any) -> Any:
    """Marks kernels: biases and the scales of normalisation are the leaves of rank 1."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)
