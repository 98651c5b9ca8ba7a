"""The state of a training, never whole on one device: born sharded, restored, or begun from other parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental import multihost_utils

from zoo.config import plain
from zoo.conversion import FAMILIES, is_foreign
from zoo.conversion import learned as learned_of
from zoo.models import weight_files
from zoo.models.exchange import flat
from zoo.models.pretrained import facts_of
from zoo.training.adapters import PART
from zoo.training.checkpoints import Checkpoints, locate

LEARNED = ("params", "batch_stats", "statistics")
"""What a fine-tuning takes from the checkpoint that it starts from; optimizer, step and random numbers begin anew."""

NAMED = ("classifier", "fc", "last_linear")
NO_NAME = re.compile(r"LABEL_\d+")
"""Heads whose outputs stand for the recipe's labels, in their order."""


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


def begun_from(
    folder: Path, recipe: Any, seed: int, state: Any, shardings: Any, say: Callable[[str], None] = lambda line: None
) -> Any:
    """An initial state with the parameters of another training in it, or with weights of others.

    Args:
        folder: a run folder, its `checkpoints`, one step in there, or a file of weights or a folder with one. A recipe with `read`
            reads files itself.
        recipe: what it names in `heads` (parts of "params") starts anew where `folder` has none, or one of another shape or
            for other labels.
        say: told which heads start anew.

    Raises:
        UserError: there is no checkpoint, or its parameters do not fit this model.
    """
    if folder.is_file() and hasattr(recipe, "read"):
        learned = jax.device_put(recipe.read(folder), {name: shardings[name] for name in ("params", "statistics")})
        return {**born(recipe, seed, shardings), **learned}
    heads = tuple(getattr(recipe, "heads", ()))
    if is_foreign(folder):
        found = FAMILIES[recipe.family].from_theirs(weight_files.read(folder), recipe.model_config, str(folder), heads)
        for name, shapes in found.renewed.items():
            say(f"{name} starts anew: {shapes}")
        labels, kind = facts_of(folder).get("labels", ()), _other_kind(folder, recipe)
        told = {part for path in found.renewed for part in path.split("/")}
        for name in (one for one in heads if one not in told):
            if name not in found.params["params"]:
                say(f"{name} starts anew: {folder} has none")
            elif name in NAMED and (kind or _others(labels, recipe)):
                del found.params["params"][name]
                say(
                    f"{name} starts anew: "
                    + (f"it was for {kind}" if kind else f"its labels were {', '.join(labels[:8])}")
                )
        return replaced(born(recipe, seed, shardings), found.params, shardings)
    source, step = locate(folder)
    anew = renewed_heads(source, step, recipe, state["params"], (*heads, PART))
    for name in (one for one in heads if one in anew):
        say(f"{name} starts anew: {anew[name]}")
    if merges_lora(source, step, recipe):
        values = {"params": kept(learned_of(source, step)["params"], anew)}
        return replaced(born(recipe, seed, shardings), values, shardings)
    wanted = {name: placed(kept(state[name], anew), kept(shardings[name], anew)) for name in LEARNED if name in state}
    learned, _ = source.restore(step, wanted, partial=True)
    begun = born(recipe, seed, shardings)
    return {**begun, **learned} | ({"params": {**begun["params"], **learned["params"]}} if anew else {})


def check_beginning(source: Checkpoints, step: int, recipe: Any, state: Any) -> None:
    """Raises UserError where the parameters of a checkpoint do not fit the recipe's model; no array is read."""
    if not merges_lora(source, step, recipe):
        heads = (*getattr(recipe, "heads", ()), PART)
        anew = renewed_heads(source, step, recipe, state["params"], heads)
        source.check(step, {name: kept(state[name], anew) for name in LEARNED if name in state}, partial=True)


def merges_lora(source: Checkpoints, step: int, recipe: Any) -> bool:
    """Whether what an earlier LoRA learned goes into the matrices: this training has none, or another."""
    before, own = source.meta(step).get("lora"), getattr(getattr(recipe, "training", None), "lora", None)
    return before is not None and (own is None or plain(own) != before)


def kept(tree: Any, anew: Mapping[str, str]) -> Any:
    """A tree without the heads that start anew."""
    return {name: part for name, part in tree.items() if name not in anew} if anew else tree


def renewed_heads(
    source: Checkpoints, step: int, recipe: Any, params: Mapping[str, Any], heads: Sequence[str]
) -> dict[str, str]:
    """Which heads of the recipe cannot come from a checkpoint, and why."""
    records = source.records(step)
    labels, kind = source.meta(step).get("labels"), _other_kind(source.directory / str(step), recipe)
    found = {}
    for head in (name for name in heads if name in params):
        shapes = {f"params.{head}.{path.replace('/', '.')}": leaf.shape for path, leaf in flat(params[head]).items()}
        lost = [name for name in shapes if name not in records]
        other = [
            name for name, shape in shapes.items() if name in records and tuple(records[name].shape) != tuple(shape)
        ]
        if lost:
            found[head] = f"{source.directory / str(step)} has none"
        elif other:
            found[head] = f"{list(records[other[0]].shape)} there, {list(shapes[other[0]])} here"
        elif kind and head in NAMED:
            found[head] = f"it was for {kind}"
        elif labels and head in NAMED and _others(labels, recipe):
            found[head] = f"its labels were {', '.join(labels[:8])}"
    return found


def _other_kind(place: Path, recipe: Any) -> str:
    """What a head is for, where that is something else than the recipe's; else empty."""
    return str(recipe.other_kind(place)) if hasattr(recipe, "other_kind") else ""


def _others(labels: Sequence[str], recipe: Any) -> bool:
    """Whether a head for these labels says nothing about the recipe's; LABEL_0 and the like are no names."""
    here = list(getattr(recipe, "labels", ()))
    told = [list(names) for names in (labels, here) if names and not all(NO_NAME.fullmatch(name) for name in names)]
    return len(told) == 2 and told[0] != told[1]


def replaced(state: Any, values: Any, shardings: Any) -> Any:
    """The state with NumPy arrays in place of some leaves; each device takes its own shard of them."""
    if not isinstance(values, Mapping):
        return jax.make_array_from_callback(values.shape, shardings, lambda index: values[index])
    return {
        name: replaced(leaf, values[name], shardings[name]) if name in values else leaf for name, leaf in state.items()
    }
