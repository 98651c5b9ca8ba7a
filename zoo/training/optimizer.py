"""Optimizers and their learning-rate schedules, from a configuration to optax."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from zoo.errors import UserError

OPTIMIZERS = ("sgd", "adamw", "adafactor")
SCHEDULES = ("constant", "cosine", "linear", "rsqrt", "step")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """An optimizer and its schedule.

    Attributes:
        name: "sgd" with momentum; "adamw"; "adafactor", whose statistics of a matrix are one row and one column, and whose
            learning rate is relative to the size of each parameter.
        learning_rate: the peak, reached after the warm-up.
        schedule: what follows the warm-up: "constant"; "cosine" or "linear", down to 0 at the last step; "rsqrt", with one
            over the root of the step; "step", times `decay` at each of `boundaries`.
        warmup_steps: the learning rate climbs linearly from 0 over this many steps.
        boundaries: step numbers, counted from the first step of training.
        decay: factor at each boundary.
        momentum: of SGD; 0 is plain SGD.
        nesterov: look ahead, as Nesterov's method does.
        betas: of AdamW: what stays, at each step, of the mean gradient and of its mean square.
        epsilon: of AdamW, added to the root of the mean square.
        weight_decay: times the parameter: of SGD, added to its gradient; of AdamW, to its step, before the learning rate.
            Leaves out biases and the scales of normalisation.
        gradient_clip: largest allowed norm of the whole gradient, before weight decay; null does not clip.
    """

    learning_rate: float
    name: Literal["sgd", "adamw", "adafactor"] = "sgd"
    schedule: Literal["constant", "cosine", "linear", "rsqrt", "step"] = "cosine"
    warmup_steps: int = 0
    boundaries: tuple[int, ...] = ()
    decay: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    gradient_clip: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, allowed in (("name", OPTIMIZERS), ("schedule", SCHEDULES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}; allowed are {', '.join(allowed)}")
        if any(not 0 <= beta < 1 for beta in self.betas) or not self.epsilon > 0:
            raise ValueError(
                f"betas={list(self.betas)}, epsilon={self.epsilon}; betas are from 0 to 1, epsilon above 0"
            )
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


def scheduled(config: OptimizerConfig, steps: int) -> tuple[optax.Schedule, optax.GradientTransformation]:
    """Learning rate and optimizer of a recipe that trains for `steps` steps.

    Raises:
        UserError: they do not go together.
    """
    try:
        return learning_rate(config, steps), optimizer(config, steps)
    except ValueError as error:
        raise UserError(f"recipe.optimizer: {error}") from None


def learning_rate(config: OptimizerConfig, steps: int) -> optax.Schedule:
    """The learning rate (float32 scalar) as a function of the step number; `steps` is the length of the whole training.

    Raises:
        ValueError: the warm-up is longer than the training.
    """
    if config.warmup_steps > steps:
        raise ValueError(
            f"warmup_steps={config.warmup_steps} is more than the {steps} steps of the whole training; set it to fewer"
        )
    peak, warmup = config.learning_rate, config.warmup_steps
    if config.schedule == "cosine":
        after = optax.cosine_decay_schedule(peak, max(steps - warmup, 1))
    elif config.schedule == "linear":
        after = optax.linear_schedule(peak, 0.0, max(steps - warmup, 1))
    elif config.schedule == "rsqrt":
        flat = max(warmup, 1)
        after = lambda step: peak * jnp.sqrt(flat / (flat + step))
    elif config.schedule == "step":
        # The joined schedule counts from the end of the warm-up, the user from the first step.
        after = optax.piecewise_constant_schedule(peak, {at - warmup: config.decay for at in config.boundaries})
    else:
        after = optax.constant_schedule(peak)
    if warmup:
        after = optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])
    return lambda step: jnp.asarray(after(step), jnp.float32)


def optimizer(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """The chain clip, then the optimizer's own steps, then the learning rate; parts that are switched off are left out."""
    parts = []
    if config.gradient_clip is not None:
        parts.append(optax.clip_by_global_norm(config.gradient_clip))
    decay = [optax.add_decayed_weights(config.weight_decay, mask=_decayed)] if config.weight_decay else []
    if config.name == "sgd":
        parts += decay
        parts += [optax.trace(config.momentum, nesterov=config.nesterov)] if config.momentum else []
    elif config.name == "adamw":
        parts += [optax.scale_by_adam(*config.betas, eps=config.epsilon), *decay]
    else:
        # Without its own momentum and decay; the learning rate follows, as for the others.
        parts += [optax.scale_by_factored_rms(), optax.clip_by_block_rms(1.0), optax.scale_by_param_block_rms(), *decay]
    return optax.chain(*parts, optax.scale_by_learning_rate(learning_rate(config, steps)))


def _decayed(params: Any) -> Any:
    """Marks everything but biases and the scales of normalisation, by their names: some have a dimension for the layer."""

    def decays(path: tuple[Any, ...], leaf: Any) -> bool:
        del leaf
        return not str(getattr(path[-1], "key", path[-1])).endswith(("bias", "scale"))

    return jax.tree_util.tree_map_with_path(decays, params)
