"""The state of a training, never whole on one device: born sharded, restored, or begun from other parameters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax

from zoo.training.checkpoints import Checkpoints, locate

LEARNED = ("params", "batch_stats")
"""What a fine-tuning takes from the checkpoint that it starts from; optimizer, step and random numbers begin anew."""


def placed(state: Any, shardings: Any) -> Any:
    """The abstract state with a sharding on every leaf: what a restore or an ahead-of-time compilation wants."""
    return jax.tree.map(
        lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), state, shardings
    )


def num_bytes(tree: Any) -> int:
    """Bytes of all leaves, each counted once however many devices hold it."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def born(recipe: Any, seed: int, shardings: Any) -> Any:
    """The initial state; each device computes its own shards."""
    return jax.jit(lambda: recipe.initial_state(jax.random.key(seed)), out_shardings=shardings)()


def resumed(source: Checkpoints, step: int, state: Any, shardings: Any) -> Any:
    """The state of a checkpoint, whatever devices and plan it was saved on.

    Raises:
        UserError: the checkpoint is damaged or holds another model.
    """
    return source.restore(step, placed(state, shardings))[0]


def begun_from(folder: Path, recipe: Any, seed: int, state: Any, shardings: Any) -> Any:
    """An initial state with the parameters of another training in it.

    Args:
        folder: a run folder, its `checkpoints`, or one step in there.

    Raises:
        UserError: there is no checkpoint, or its parameters do not fit this model.
    """
    source, step = locate(folder)
    wanted = {name: placed(state[name], shardings[name]) for name in LEARNED if name in state}
    learned, _ = source.restore(step, wanted, partial=True)
    return {**born(recipe, seed, shardings), **learned}
