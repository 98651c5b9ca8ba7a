"""What training minimises, and how its weights and the learning rate change over the steps.

Weights follow the learning rate from a start to a limit: limit + (start - limit) * rate / first rate. Frames without a
label take no part in its term. Dimensions: B frames, N atoms.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from zoo.models.deepmd.model import Outputs

LABELS = ("energy", "force", "virial")


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """Weights of the squared errors of energy (per atom), force and virial (per atom), at the start and in the limit."""

    start_pref_e: float = 0.02
    limit_pref_e: float = 1.0
    start_pref_f: float = 1000.0
    limit_pref_f: float = 1.0
    start_pref_v: float = 0.0
    limit_pref_v: float = 0.0
    type: Literal["ener"] = "ener"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "type" and value < 0:
                raise ValueError(f"{field.name}={value}; a weight is at least 0")
        if not any(self.uses(name) for name in LABELS):
            raise ValueError("all weights are 0, so there is nothing to learn; give energy or force a weight")

    def uses(self, label: str) -> bool:
        """Whether a label counts at any step."""
        return any(getattr(self, f"{end}_pref_{label[0]}") > 0 for end in ("start", "limit"))

    def weight(self, label: str, share: jax.Array) -> jax.Array:
        """The weight of a label where the learning rate has come down to `share` of its first value."""
        start, limit = getattr(self, f"start_pref_{label[0]}"), getattr(self, f"limit_pref_{label[0]}")
        return limit + (start - limit) * share


@dataclasses.dataclass(frozen=True)
class RateConfig:
    """The learning rate of Adam.

    Attributes:
        start_lr, stop_lr: at the first step, and what it tends to at the last.
        schedule: "exp": down by a factor every decay_steps; "cosine": half a period of a cosine.
        decay_steps: steps between two drops.
        decay_rate: the factor; null: such that stop_lr is reached at the last step.
        smooth: decay a little every step in place of drops.
    """

    start_lr: float = 1e-3
    stop_lr: float = 1e-8
    schedule: Literal["exp", "cosine"] = "exp"
    decay_steps: int = 5000
    decay_rate: float | None = None
    smooth: bool = False
    name: Literal["adam"] = "adam"

    def __post_init__(self) -> None:
        if not 0 < self.stop_lr <= self.start_lr:
            raise ValueError(f"start_lr={self.start_lr}, stop_lr={self.stop_lr}; give 0 < stop_lr <= start_lr")
        if self.decay_steps < 1:
            raise ValueError(f"decay_steps={self.decay_steps}; it must be at least 1")
        if self.decay_rate is not None and not 0 < self.decay_rate <= 1:
            raise ValueError(f"decay_rate={self.decay_rate}; it must lie in (0, 1]")


def learning_rate(config: RateConfig, steps: int) -> Callable[[Any], jax.Array]:
    """The learning rate as a function of the steps done; `steps` is the length of the whole training."""
    if config.schedule == "cosine":

        def cosine(step: Any) -> jax.Array:
            share = jnp.minimum(jnp.asarray(step, float) / steps, 1.0)
            return config.stop_lr + (config.start_lr - config.stop_lr) * 0.5 * (1 + jnp.cos(math.pi * share))

        return cosine
    length = config.decay_steps
    if length >= steps:  # as deepmd-kit mends it
        length = 100 if steps // 10 > 100 else steps // 100 + 1
    rate = config.decay_rate or math.exp(math.log(config.stop_lr / config.start_lr) / (steps / length))

    def exponential(step: Any) -> jax.Array:
        drops = jnp.asarray(step, float) / length
        return config.start_lr * rate ** (drops if config.smooth else jnp.floor(drops))

    return exponential


def squares(found: Outputs, batch: dict[str, Any]) -> dict[str, jax.Array]:
    """Per frame [B], the squared error of each label: energy, mean over force components, mean over virial components."""
    real_BN = batch["real"]
    atoms_B = jnp.maximum(jnp.sum(real_BN, axis=1), 1)
    force_BN3 = (found.force - batch["force"]) * real_BN[..., None]
    return {
        "energy": (found.energy - batch["energy"]) ** 2,
        "force": jnp.sum(force_BN3**2, axis=(1, 2)) / (3 * atoms_B),
        "virial": jnp.mean((found.virial - batch["virial"]) ** 2, axis=(1, 2)),
    }


def frame_losses(
    config: LossConfig, errors: dict[str, jax.Array], batch: dict[str, Any], share: jax.Array
) -> jax.Array:
    """The loss [B] of each frame."""
    atoms_B = jnp.maximum(jnp.sum(batch["real"], axis=1), 1)
    total = jnp.zeros_like(errors["energy"])
    for label in LABELS:
        if config.uses(label):
            scale = 1 if label == "force" else 1 / atoms_B
            total += config.weight(label, share) * scale * batch[f"known_{label}"] * errors[label]
    return total


def batch_loss(config: LossConfig, errors: dict[str, jax.Array], batch: dict[str, Any], share: jax.Array) -> jax.Array:
    """The loss of a batch: each label's mean over the frames that have it."""
    atoms_B = jnp.maximum(jnp.sum(batch["real"], axis=1), 1)
    total = jnp.zeros((), errors["energy"].dtype)
    for label in LABELS:
        if config.uses(label):
            scale_B = 1 if label == "force" else 1 / atoms_B
            known_B = batch[f"known_{label}"]
            total += (
                config.weight(label, share)
                * jnp.sum(scale_B * known_B * errors[label])
                / jnp.maximum(jnp.sum(known_B), 1)
            )
    return total


def sums(errors: dict[str, jax.Array], batch: dict[str, Any], weight_B: jax.Array) -> dict[str, jax.Array]:
    """Sums of squares and how many they are of, from which `root_mean_squares` follow; energy and virial per atom."""
    atoms_B = jnp.sum(batch["real"], axis=1)
    safe_B = jnp.maximum(atoms_B, 1)
    found = {}
    for label in LABELS:
        counts_B = weight_B * batch[f"known_{label}"] * (atoms_B if label == "force" else 1)
        scale_B = 1 if label == "force" else 1 / safe_B**2
        found[f"square_{label}"] = jnp.sum(counts_B * scale_B * errors[label])
        found[f"number_{label}"] = jnp.sum(counts_B)
    return found


def root_mean_squares(totals: dict[str, float]) -> dict[str, float]:
    """rmse_e (eV/atom), rmse_f (eV/A) and rmse_v (eV/atom); a label that no frame has is left out."""
    return {
        f"rmse_{label[0]}": math.sqrt(totals[f"square_{label}"] / totals[f"number_{label}"])
        for label in LABELS
        if totals[f"number_{label}"] > 0
    }
