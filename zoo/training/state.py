"""The state of a training, never whole on one device: born sharded, restored, or begun from other parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from jax.experimental import multihost_utils

from zoo.conversion import FAMILIES, is_foreign
from zoo.models import weight_files
from zoo.training.checkpoints import Checkpoints, locate

LEARNED = ("params", "batch_stats", "statistics")
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


def gathered(state: Any) -> Any:
    """The state as numpy arrays, whole on every process; leaves out what is no array of numbers (random keys)."""

    def whole(leaf: jax.Array) -> Any:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return None
        return (
            jax.device_get(leaf) if leaf.is_fully_addressable else multihost_utils.process_allgather(leaf, tiled=True)
        )

    return jax.tree.map(whole, state)


def resumed(source: Checkpoints, step: int, state: Any, shardings: Any) -> Any:
    """The state of a checkpoint, whatever devices and plan it was saved on.

    Raises:
        UserError: the checkpoint is damaged or holds another model.
    """
    return source.restore(step, placed(state, shardings))[0]


def begun_from(folder: Path, recipe: Any, seed: int, state: Any, shardings: Any) -> Any:
    """An initial state with the parameters of another training in it, or with weights of others.

    Args:
        folder: a run folder, its `checkpoints`, one step in there, or a file of weights or a folder with one. What a recipe
            names in `begins_anew` (parts of "params") is not taken from a run. A recipe with `read` reads files itself.

    Raises:
        UserError: there is no checkpoint, or its parameters do not fit this model.
    """
    if folder.is_file() and hasattr(recipe, "read"):
        learned = jax.device_put(recipe.read(folder), {name: shardings[name] for name in ("params", "statistics")})
        return {**born(recipe, seed, shardings), **learned}
    if is_foreign(folder):
        family = FAMILIES[recipe.family]
        found = family.from_theirs(weight_files.read(folder), recipe.model_config, str(folder)).params
        return replaced(born(recipe, seed, shardings), found, shardings)
    source, step = locate(folder)
    anew = getattr(recipe, "begins_anew", ())
    if anew:
        keep = lambda tree: {name: part for name, part in tree.items() if name not in anew}
        wanted = placed(keep(state["params"]), keep(shardings["params"]))
        learned, _ = source.restore(step, {"params": wanted}, partial=True)
        begun = born(recipe, seed, shardings)
        return {**begun, "params": {**begun["params"], **learned["params"]}}
    wanted = {name: placed(state[name], shardings[name]) for name in LEARNED if name in state}
    learned, _ = source.restore(step, wanted, partial=True)
    return {**born(recipe, seed, shardings), **learned}


def replaced(state: Any, values: Any, shardings: Any) -> Any:
    """The state with NumPy arrays in place of some leaves; each device takes its own shard of them."""
    if not isinstance(values, Mapping):
        return jax.make_array_from_callback(values.shape, shardings, lambda index: values[index])
    return {
        name: replaced(leaf, values[name], shardings[name]) if name in values else leaf for name, leaf in state.items()
    }
