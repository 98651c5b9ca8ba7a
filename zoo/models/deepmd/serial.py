"""The tree that deepmd-kit writes a model as, in .dp (HDF5) and .yaml files: nested sections whose leaves may be arrays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from zoo.errors import UserError

Tree = dict[str, Any]

ELSEWHERE = {
    ".pb": "is a TensorFlow graph; convert it with: dp convert-backend {file} {stem}.dp",
    ".pth": "is a TorchScript program; convert it with: dp convert-backend {file} {stem}.dp",
    ".pt2": "is a compiled program; convert the model it was made from with: dp convert-backend MODEL {stem}.dp",
    ".savedmodel": "is a TensorFlow program; convert it with: dp convert-backend {file} {stem}.dp",
    ".hlo": "is a compiled program; convert it with: dp convert-backend {file} {stem}.dp",
    ".jax": "is a checkpoint of deepmd-kit's JAX backend; convert it with: dp convert-backend {file} {stem}.dp",
}


def load(file: Path) -> Tree:
    """Reads a .dp or .yaml file; arrays come as numpy arrays.

    Raises:
        UserError: the file is missing, of another format, or damaged.
    """
    suffix = file.suffix.lower()
    if suffix in ELSEWHERE:
        raise UserError(f"{file} {ELSEWHERE[suffix].format(file=file, stem=file.with_suffix(''))}")
    if suffix not in (".dp", ".yaml", ".yml"):
        raise UserError(f"{file}: models are read from .dp, .yaml and .pt files")
    if not file.is_file():
        raise UserError(f"{file} does not exist")
    tree = _load_hdf5(file) if suffix == ".dp" else _load_yaml(file)
    if not isinstance(tree, dict) or "model" not in tree:
        raise UserError(f"{file} holds no model: the section `model` is missing")
    return tree


def save(file: Path, tree: Tree) -> None:
    """Writes a .dp or .yaml file, whole or not at all."""
    if file.suffix.lower() not in (".dp", ".yaml", ".yml"):
        raise UserError(f"{file}: models are written as .dp or .yaml files")
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    (_save_hdf5 if file.suffix.lower() == ".dp" else _save_yaml)(part, tree)
    part.replace(file)


def mapped(node: Any, change: Callable[[Any], tuple[bool, Any]]) -> Any:
    """The tree with some nodes replaced: `change` gives (whether it replaces this node, by what)."""
    done, value = change(node)
    if done:
        return value
    if isinstance(node, dict):
        return {key: mapped(part, change) for key, part in node.items()}
    if isinstance(node, list | tuple):
        return [mapped(part, change) for part in node]
    return node


def _load_hdf5(file: Path) -> Any:
    import h5py  # here, so that importing this module stays cheap

    try:
        with h5py.File(file, "r") as opened:
            tree = json.loads(opened.attrs["json"])

            def dataset(node: Any) -> tuple[bool, Any]:
                found = isinstance(node, str) and node.startswith("/variable_")
                return found, opened[node][()] if found else None

            return mapped(tree, dataset)
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{file} is not a .dp model, or is damaged: {error}") from None


def _load_yaml(file: Path) -> Any:
    try:
        tree = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())[:200]}") from None
    return mapped(tree, _array)


def _array(node: Any) -> tuple[bool, Any]:
    if not isinstance(node, dict) or node.get("@class") != "np.ndarray":
        return False, None
    # Numbers such as 1.2e02 are text to YAML 1.1; numpy reads them.
    return True, np.asarray(node["value"]).astype(node["dtype"])


def _save_hdf5(file: Path, tree: Tree) -> None:
    import h5py

    with h5py.File(file, "w") as opened:
        count = 0

        def dataset(node: Any) -> tuple[bool, Any]:
            nonlocal count
            if not isinstance(node, np.ndarray):
                return False, None
            name = opened.create_dataset(f"variable_{count:04d}", data=node).name
            count += 1
            return True, name

        opened.attrs["json"] = json.dumps(mapped(tree, dataset), separators=(",", ":"))


def _save_yaml(file: Path, tree: Tree) -> None:
    def listed(node: Any) -> tuple[bool, Any]:
        if not isinstance(node, np.ndarray):
            return False, None
        return True, {
            "@class": "np.ndarray",
            "@is_variable": True,
            "@version": 1,
            "dtype": node.dtype.name,
            "value": node.tolist(),
        }

    file.write_text(yaml.safe_dump(mapped(tree, listed), sort_keys=False))
