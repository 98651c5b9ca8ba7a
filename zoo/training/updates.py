"""The part of a training step that all recipes with a gradient share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

State = dict[str, Any]
Metrics = dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How long, and which checkpoint is the best.

    Attributes:
        steps: length of the whole training, which the learning-rate schedule spans, also when a run stops earlier.
        best: the figure of the test split by which a checkpoint is the best, which is then kept; null: none is.
        patience: end after so many evaluations in a row that were no better; null: go on to the last step.
    """

    steps: int
    best: str | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps={self.steps}; it must be at least 1")
        if self.patience is not None and (self.patience < 1 or self.best is None):
            raise ValueError(
                f"patience={self.patience}, best={self.best}; patience is at least 1, and best names the figure that counts"
            )


def initial(params: Any, optimizer: optax.GradientTransformation, rng: jax.Array) -> State:
    """The state before the first step."""
    return {"params": params, "opt_state": optimizer.init(params), "step": jnp.zeros((), jnp.int32), "rng": rng}


def updated(
    state: State,
    loss_of: Callable[[Any, jax.Array], tuple[jax.Array, Metrics]],
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
) -> tuple[State, Metrics]:
    """One step along the gradient.

    Args:
        state: "params", "opt_state", "step", "rng"; the last stays, and each step's numbers follow from it and the step.
        loss_of: parameters and a key -> loss and further metrics.
        optimizer, schedule: the schedule is for the record.
    """
    key = jax.random.fold_in(state["rng"], state["step"])
    (loss, metrics), grads = jax.value_and_grad(loss_of, has_aux=True)(state["params"], key)
    updates, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
    after = {
        **state,
        "params": optax.apply_updates(state["params"], updates),
        "opt_state": opt_state,
        "step": state["step"] + 1,
    }
    return after, {"loss": loss, **metrics, "learning_rate": schedule(state["step"])}


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The loss [...] of each prediction [..., K], for whole-number labels [...]; float32 at least."""
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    # A comparison in place of a gather: it splits over any dimension.
    chosen = labels[..., None] == jnp.arange(logits.shape[-1])
    return jax.nn.logsumexp(logits, axis=-1) - jnp.sum(jnp.where(chosen, logits, 0), axis=-1)


def correct(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """1 for each prediction [...] whose largest logit [..., K] is at its label, else 0; float32."""
    return (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
