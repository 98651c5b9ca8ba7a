"""Parameters: the published `params_*.npz` read unchanged, every key accounted for; or drawn at random for a rehearsal."""

from __future__ import annotations

import contextlib
import dataclasses
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from zoo.errors import UserError

Shapes = Mapping[str, Mapping[str, jax.ShapeDtypeStruct]]
Params = dict[str, dict[str, np.ndarray]]

WHERE = (
    "The parameters (15 models, 5.3 GB, CC BY 4.0) are at "
    "https://storage.googleapis.com/alphafold/alphafold_params_2022-12-06.tar; unpack them and give params=FOLDER, "
    "or params=random to rehearse with random ones, whose structures mean nothing"
)
# A method of a class in the published names; a scope may not start with this sign.
PUBLISHED = {"/relative_encoding/": "/~_relative_encoding/"}
STACKS = ("/extra_msa_stack/", "/evoformer_iteration/", "/__layer_stack_no_state/", "/template_embedding_iteration/")
# First bytes of files that people give in place of an npz.
OTHER_KINDS = (
    (b"\x80", "a pickle, which is never read"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a single numpy array (npy)"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
)


@dataclasses.dataclass(frozen=True)
class KeyReport:
    """Which parameters of a model a file holds; keys are `scope//name` as published.

    Attributes:
        matched: read.
        missing: of the model, but not in the file.
        unexpected: in the file, but not of the model.
        wrong_shape: in both: (key, shape in the file, shape of the model).
    """

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shape: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]

    @property
    def ok(self) -> bool:
        return not (self.missing or self.unexpected or self.wrong_shape)

    def __str__(self) -> str:
        parts = [f"{len(self.matched)} matched"]
        parts += [
            f"{len(keys)} {word}: {some(keys)}"
            for word, keys in (("missing", self.missing), ("unexpected", self.unexpected))
            if keys
        ]
        if self.wrong_shape:
            texts = [f"{key} {found} in place of {wanted}" for key, found, wanted in self.wrong_shape]
            parts.append(f"{len(texts)} of a wrong shape: {some(texts)}")
        return "; ".join(parts)


def some(items: Iterable[str], count: int = 10) -> str:
    listed = list(items)
    return ", ".join(listed[:count]) + (f" and {len(listed) - count} more" if len(listed) > count else "")


def published_key(scope: str, name: str) -> str:
    for ours, theirs in PUBLISHED.items():
        scope = f"{scope}/".replace(ours, theirs)[:-1]
    return f"{scope}//{name}"


def keys_and_shapes(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """{published key: shape} of a model's parameters."""
    return {
        published_key(scope, name): tuple(leaf.shape)
        for scope, leaves in shapes.items()
        for name, leaf in leaves.items()
    }


def load(path: Path, shapes: Shapes, name: str) -> tuple[Params, KeyReport]:
    """Reads a published file for a model.

    Args:
        path: `params_MODEL.npz`, or a folder that holds it, itself or in `params`.
        shapes: what the model reads (`AlphaFold2.parameter_shapes`).
        name: the model's name.

    Raises:
        UserError: there is no such file, it is of another kind, or it is not of this model; says what it is.
    """
    report = check(path, shapes, name)
    arrays = read(found(path, name))
    return tree(shapes, {key: array.astype(np.float32, copy=False) for key, array in arrays.items()}), report


def check(path: Path, shapes: Shapes, name: str) -> KeyReport:
    """Whether a file is of a model, by the headers of its arrays; raises as `load` does."""
    have = array_shapes(found(path, name))
    report = compare(have, keys_and_shapes(shapes))
    if not report.ok:
        nearly = len(report.matched) > 0.9 * len(have) and not report.unexpected
        kind = " The file is of this model, but not whole; fetch it again." if nearly else recognised(have)
        raise UserError(f"{path}: not the parameters of {name}: {report}.{kind}")
    return report


def found(path: Path, name: str) -> Path:
    candidates = [path] if not path.is_dir() else [path / f"params_{name}.npz", path / "params" / f"params_{name}.npz"]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(f"{candidates[0]}: no such file. {WHERE}")


def read(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an npz by their keys."""
    with opened(path) as file:
        return {key: file[key] for key in file.files}


def array_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all arrays of an npz by their keys; only headers are read."""
    with opened(path) as file:
        shapes = {}
        for key in file.files:
            with file.zip.open(f"{key}.npy") as entry:
                version = np.lib.format.read_magic(entry)
                reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                shape, _, dtype = reader[version](entry)
                if dtype.hasobject:
                    raise ValueError(key)
                shapes[key] = shape
        return shapes


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An npz; whatever is wrong with it, also while it is read, becomes a UserError."""
    with path.open("rb") as file:
        start = file.read(8)
    if not start.startswith(b"PK"):
        other = "a safetensors file" if start[4:8] == b"\0\0\0\0" else "no npz"
        kind = next((text for magic, text in OTHER_KINDS if start.startswith(magic)), other)
        raise UserError(f"{path}: this is {kind}; expected an npz of parameters. {WHERE}")
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.endswith("data.pkl") for entry in archive.namelist()):
                raise UserError(
                    f"{path}: this is a PyTorch checkpoint, which is never unpickled; expected an npz. {WHERE}"
                )
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays
    except (zipfile.BadZipFile, EOFError, KeyError, zlib.error) as error:
        raise UserError(f"{path}: damaged ({error}); fetch it again") from None
    except ValueError:
        raise UserError(f"{path}: holds pickled objects, which are never read; expected arrays only") from None


def compare(found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> KeyReport:
    both = [key for key in wanted if key in found]
    return KeyReport(
        matched=tuple(key for key in both if found[key] == wanted[key]),
        missing=tuple(key for key in wanted if key not in found),
        unexpected=tuple(key for key in found if key not in wanted),
        wrong_shape=tuple((key, found[key], wanted[key]) for key in both if found[key] != wanted[key]),
    )


def recognised(arrays: Mapping[str, Any]) -> str:
    """What a file of parameters seems to be, in a sentence; empty where nothing is known."""
    if not any(key.startswith("alphafold/") for key in arrays):
        return " Its keys are not those of a published file (scope//name below alphafold/)."
    has = lambda part: any(part in key for key in arrays)
    if has("~_relative_encoding"):
        return f" It is of a multimer model, {'v3' if has('/projection//') else 'v1 or v2'}."
    templates = "1 or 2, with templates" if has("template_embedding") else "3, 4 or 5, without templates"
    return (
        f" It is of a monomer model {'_ptm ' if has('predicted_aligned_error_head') else 'without pTM '}({templates})."
    )


def tree(shapes: Shapes, arrays: Mapping[str, np.ndarray]) -> Params:
    """Arrays by published key as haiku's tree."""
    return {scope: {name: arrays[published_key(scope, name)] for name in leaves} for scope, leaves in shapes.items()}


def flat(params: Mapping[str, Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """The other way: what `np.savez` writes as a published file."""
    return {
        published_key(scope, name): np.asarray(array)
        for scope, leaves in params.items()
        for name, array in leaves.items()
    }


def draw(shapes: Shapes, seed: int) -> Params:
    """Random parameters at which every part of the network acts: weights N(0, 1/fan-in), biases and offsets N(0, 0.1^2),
    scales within 10 % of 1. The network's own initial values, with many zeros, would hide mistakes."""
    return tree(shapes, {key: draw_one(key, shape, seed) for key, shape in keys_and_shapes(shapes).items()})


def draw_one(key: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, zlib.crc32(key.encode())])  # by name: the same whatever else the model has
    name = key.rpartition("//")[2]
    own = shape[1:] if any(stack in key for stack in STACKS) else shape
    if name == "scale":
        return (1 + rng.uniform(-0.1, 0.1, shape)).astype(np.float32)
    values = rng.standard_normal(shape).astype(np.float32)
    if name in ("bias", "offset", "output_b", "gating_b", "trainable_point_weights"):
        return values * np.float32(0.1)
    if name == "output_w":
        fan_in = own[0] * own[1]
    else:
        fan_in = own[0] if len(own) > 1 else 1
    return values * np.float32(fan_in**-0.5)
