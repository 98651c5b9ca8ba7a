"""Fine-tuning: what stays as it is, how fast each layer learns, LoRA, which checkpoint is the best, and when to end."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import optax

from zoo.errors import UserError
from zoo.models.exchange import flat, nested
from zoo.training.adapters import PART, Lora
from zoo.training.updates import TrainingConfig

STACKED = "layers"
"""The part of a path below which every parameter has a leading dimension for the layers."""


@dataclasses.dataclass(frozen=True)
class TuningConfig(TrainingConfig):
    """How long, and which parameters how fast.

    Attributes:
        frozen: patterns (regular expressions) of parameters that stay as they are. Names are such as embeddings.word.embedding,
            encoder.layers.0.query.kernel; the name of a part stands for all in it.
        layer_decay: factor of the learning rate from each layer to the one below it; 1 treats all alike.
        lora: train small products beside the matrices and the head, and nothing else; null trains the matrices.
    """

    frozen: tuple[str, ...] = ()
    layer_decay: float = 1.0
    lora: Lora | None = None
    best: str | None = "loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "frozen", tuple(self.frozen))
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay={self.layer_decay}; it must be above 0 and at most 1")
        for pattern in self.frozen:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"frozen={pattern!r} is no regular expression: {error}") from None


def tuned(
    optimizer: optax.GradientTransformation,
    config: TuningConfig,
    params: Mapping[str, Any],
    order: Sequence[str],
    heads: Sequence[str],
) -> optax.GradientTransformation:
    """The optimizer, for the parameters that are trained, each at its own speed; it keeps no state for the others.

    Args:
        optimizer: of all alike.
        config: says which.
        params: abstract; may have products of LoRA.
        order: patterns of the layers' names, from the input on; what is none of them is above all.
        heads: parts that are trained beside the products of LoRA.

    Raises:
        UserError: a pattern fits nothing, or nothing is trained.
    """
    speeds = speeds_of(params, config, order, heads)
    if all(np.all(speed == 1) for speed in speeds.values()):
        return optimizer
    if not any(np.any(speed > 0) for speed in speeds.values()):
        raise UserError(f"recipe.training.frozen={list(config.frozen)} freezes everything; leave something to train")
    kinds = nested({path: "trained" if np.any(speed > 0) else "frozen" for path, speed in speeds.items()})
    of_kind = optax.multi_transform({"trained": optimizer, "frozen": optax.set_to_zero()}, kinds)
    # A layer that is frozen among others of one array must not count in the norm that clips.
    return optax.chain(_times({path: (speed > 0) * 1.0 for path, speed in speeds.items()}), of_kind, _times(speeds))


def speeds_of(
    params: Mapping[str, Any], config: TuningConfig, order: Sequence[str], heads: Sequence[str]
) -> dict[str, np.ndarray]:
    """The factor of the learning rate of every parameter by its path; of layers in one array, one each [L, 1, ...]."""
    unused = set(config.frozen)
    found = {}
    for path, leaf in flat(params).items():
        parts = path.split("/")
        count = leaf.shape[0] if STACKED in parts else 1
        speeds = []
        for number in range(count):
            name = ".".join(f"{part}.{number}" if part == STACKED else part for part in parts)
            hits = {pattern for pattern in config.frozen if stands_for(pattern, name)}
            unused -= hits
            still = bool(hits) or (config.lora is not None and parts[0] not in (PART, *heads))
            below = next((place for place, pattern in enumerate(order) if stands_for(pattern, name)), len(order))
            speeds.append(0.0 if still else config.layer_decay ** (len(order) - below))
        shape = (count, *[1] * (len(leaf.shape) - 1)) if STACKED in parts else ()
        found[path] = np.asarray(speeds).reshape(shape)
    if unused:
        raise UserError(
            f"recipe.training.frozen has {min(unused)}, which fits no parameter; their first parts are "
            f"{', '.join(sorted(params))}"
        )
    return found


def stands_for(pattern: str, name: str) -> bool:
    """Whether a pattern is of this name or of a part that holds it."""
    return re.fullmatch(rf"(?:lora\.)?(?:{pattern})(?:\..*)?", name) is not None


def _times(factors: Mapping[str, np.ndarray]) -> optax.GradientTransformation:
    tree = nested(factors)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        return jax.tree.map(lambda one, by: one * by.astype(one.dtype), updates, tree), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
