"""Parameters by the names of others: which of theirs is which of ours, and how the axes lie.

A table of `Name`s holds both directions. Theirs may have `{i}` for the number of a layer; ours then has a leading dimension
for the layers.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from zoo.errors import UserError

Layout = Literal["same", "linear", "convolution"]
# What the line says of a key that is not taken.
LEFT_OUT = "is left out"
# From our axes to theirs: PyTorch keeps (out, in) and (out, in, height, width).
AXES: dict[str, tuple[int, ...] | None] = {"same": None, "linear": (1, 0), "convolution": (3, 2, 0, 1)}


@dataclasses.dataclass(frozen=True)
class Name:
    """One parameter: "encoder/layers/query/kernel" is "bert.encoder.layer.{i}.attention.self.query.weight"."""

    ours: str
    theirs: str
    layout: Layout = "same"


@dataclasses.dataclass(frozen=True)
class Imported:
    """What came of foreign arrays.

    Attributes:
        params: our tree, without what is missing.
        used: their name -> ours.
        ignored: their name -> why it is not needed.
        missing: our names that no array is for.
        renewed: our names of a head whose array has another shape: they start anew -> the two shapes.
    """

    params: dict[str, Any]
    used: dict[str, str]
    ignored: dict[str, str]
    missing: tuple[str, ...]
    renewed: dict[str, str] = dataclasses.field(default_factory=dict)

    def report(self) -> Iterator[str]:
        """A line for every key."""
        yield from (f"{theirs} -> {ours}" for theirs, ours in self.used.items())
        yield from (f"{theirs} {LEFT_OUT}: {reason}" for theirs, reason in self.ignored.items())
        yield from (f"{ours} is in none of the arrays and starts anew" for ours in self.missing)
        yield from (f"{ours} starts anew: {shapes}" for ours, shapes in self.renewed.items())


def imported(
    arrays: Mapping[str, np.ndarray],
    names: Sequence[Name],
    wanted: Mapping[str, Any],
    ignored: Mapping[str, str],
    source: str,
    heads: Sequence[str] = (),
) -> Imported:
    """Our parameters from foreign arrays, in the dtypes of `wanted`.

    Args:
        arrays: by their names.
        names: the table.
        wanted: our tree of shapes and dtypes.
        ignored: patterns of their names that are not needed -> why.
        source: where the arrays are from, for messages.
        heads: parts of our paths that start anew where the shape is another, as a head for other labels has.

    Raises:
        UserError: a name is unknown, only some layers of a parameter are there, a shape is another, or a value is not finite.
    """
    left = dict(arrays)
    params: dict[str, Any] = {}
    used: dict[str, str] = {}
    renewed: dict[str, str] = {}
    missing = []
    table = {name.ours: name for name in names}
    for ours, leaf in flat(wanted).items():
        name = table[ours]
        keys = [name.theirs.format(i=i) for i in range(leaf.shape[0])] if "{i}" in name.theirs else [name.theirs]
        there = [key for key in keys if key in left]
        if not there:
            missing.append(ours)
            continue
        if len(there) < len(keys):
            lost = next(key for key in keys if key not in left)
            raise UserError(f"{source} has {there[0]} but not {lost}; the model has {len(keys)} layers")
        parts = [_ours(left.pop(key), name) for key in keys]
        for key, part in zip(keys, parts, strict=True):
            if part.shape != parts[0].shape:
                raise UserError(
                    f"{source}: {key} is of shape {list(part.shape)}, and {keys[0]} of {list(parts[0].shape)}"
                )
            _check_values(part, leaf, key, source)
        value = np.stack(parts) if "{i}" in name.theirs else parts[0]
        if value.shape != leaf.shape and not set(heads).isdisjoint(ours.split("/")):
            renewed[ours] = f"{list(value.shape)} there, {list(leaf.shape)} here"
            continue
        if value.shape != leaf.shape:
            raise UserError(
                f"{source}: {keys[0]} gives {ours} of shape {list(value.shape)}, and the model has {list(leaf.shape)}; "
                "set the options of recipe.model to the sizes that the weights were made with"
            )
        used |= dict.fromkeys(keys, ours)
        _put(params, ours, value.astype(leaf.dtype))
    reasons = {key: reason for key in left for pattern, reason in ignored.items() if re.fullmatch(pattern, key)}
    unknown = sorted(set(left) - set(reasons))
    if unknown:
        known = sorted({key for name in names for key in (name.theirs.format(i=0), name.theirs.format(i=1))})
        close = difflib.get_close_matches(unknown[0], known, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        raise UserError(f"{source} has {unknown[0]}{hint}{more}, which this model does not know")
    return Imported(params, used, reasons, tuple(missing), renewed)


def _check_values(value: np.ndarray, leaf: Any, key: str, source: str) -> None:
    """Raises UserError for weights that are whole numbers, or not all finite."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise UserError(f"{source}: {key} is of dtype {value.dtype}; weights are floating-point numbers")
    if not np.isfinite(value).all():
        raise UserError(f"{source}: {key} has values that are not finite; get the weights again")


def exported(params: Mapping[str, Any], names: Sequence[Name]) -> dict[str, np.ndarray]:
    """Our parameters by their names, in their layout."""
    table = {name.ours: name for name in names}
    arrays: dict[str, np.ndarray] = {}
    for ours, leaf in flat(params).items():
        name, value = table[ours], np.asarray(leaf)
        if "{i}" in name.theirs:
            arrays |= {name.theirs.format(i=i): _theirs(part, name) for i, part in enumerate(value)}
        else:
            arrays[name.theirs] = _theirs(value, name)
    return arrays


def _theirs(value: np.ndarray, name: Name) -> np.ndarray:
    axes = AXES[name.layout]
    return value if axes is None else np.ascontiguousarray(value.transpose(axes))


def _ours(value: np.ndarray, name: Name) -> np.ndarray:
    axes = AXES[name.layout]
    return value if axes is None or value.ndim != len(axes) else value.transpose(np.argsort(axes))


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of nested dicts by their paths, "a/b/c"."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        leaves |= flat(value, f"{path}/") if isinstance(value, Mapping) else {path: value}
    return leaves


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The opposite of `flat`."""
    tree: dict[str, Any] = {}
    for path, value in leaves.items():
        _put(tree, path, value)
    return tree


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *folders, last = path.split("/")
    for folder in folders:
        tree = tree.setdefault(folder, {})
    tree[last] = value
