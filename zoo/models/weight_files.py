"""Weights in files of others: safetensors, NumPy's npz, PyTorch's state files. Nothing is unpickled.

A safetensors file is 8 bytes (little-endian length of the header), a header in JSON (name -> dtype, shape, byte range), and
the values one after the other. A large model is several such files and `*.index.json`, which says where each name is.
"""

from __future__ import annotations

import json
import math
import pickle  # for the name of torch's error alone
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from zoo.errors import UserError

DTYPES = {
    **{"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(jnp.bfloat16)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(bool),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SUFFIXES = (".safetensors", ".npz", ".pt", ".pth", ".bin")
# What a folder of weights may hold, the first that is there is read.
IN_FOLDERS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.npz",
)

Arrays = dict[str, np.ndarray]


def read(path: Path) -> Arrays:
    """All arrays of a file, or of the folder that holds one.

    Raises:
        UserError: there is no such file, or it is damaged or of a kind that is not known.
    """
    if path.is_dir():
        found = next((path / name for name in IN_FOLDERS if (path / name).exists()), None)
        if found is None:
            raise UserError(f"{path} holds no weights; it should have one of {', '.join(IN_FOLDERS)}")
        path = found
    if not path.is_file():
        raise UserError(f"{path} does not exist; name a file of weights ({', '.join(SUFFIXES)}) or a folder with one")
    if path.name.endswith(".index.json"):
        return _sharded(path)
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix == ".npz":
        return _npz(path)
    if path.suffix in (".pt", ".pth", ".bin"):
        return _torch(path)
    raise UserError(f"{path} has the ending {path.suffix!r}; known are {', '.join(SUFFIXES)}")


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a file of the kind that its ending names.

    Raises:
        UserError: the ending is not known, or PyTorch is needed and not installed.
    """
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path} has the ending {path.suffix!r}; known are {', '.join(SUFFIXES)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")  # whole or not there at all
    if path.suffix == ".safetensors":
        _write_safetensors(part, arrays)
    elif path.suffix == ".npz":
        with part.open("wb") as file:
            # npz knows no bfloat16, so those go out as float32, which loses nothing.
            np.savez(file, **{name: _plain(array) for name, array in arrays.items()})  # type: ignore[arg-type]
    else:
        torch = _imported_torch(path)
        torch.save({name: torch.from_numpy(np.array(_plain(array))) for name, array in arrays.items()}, part)
    part.replace(path)


def _plain(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == DTYPES["BF16"] else array


def _safetensors(path: Path) -> Arrays:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise UserError(f"{path} is no safetensors file, or its beginning is damaged; get it again")
        try:
            header = json.loads(file.read(length))
        except ValueError:
            raise UserError(f"{path} is no safetensors file, or its header is damaged; get it again") from None
    header.pop("__metadata__", None)
    needed = 8 + length + max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if size < needed:
        raise UserError(f"{path} is cut off: it has {size:,} bytes and should have {needed:,}; get it again")
    values = np.memmap(path, np.uint8, mode="r", offset=0)
    return {name: _tensor(path, name, entry, values[8 + length :]) for name, entry in header.items()}


def _tensor(path: Path, name: str, entry: Mapping[str, Any], values: np.ndarray) -> np.ndarray:
    if entry["dtype"] not in DTYPES:
        raise UserError(f"{path}: {name} is of dtype {entry['dtype']}; known are {', '.join(DTYPES)}")
    dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if end - begin != dtype.itemsize * math.prod(shape):
        raise UserError(f"{path} is damaged: {name} of shape {list(shape)} has {end - begin} bytes; get it again")
    return np.asarray(values[begin:end]).view(dtype).reshape(shape)


def _write_safetensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(arrays):
        array = arrays[name]
        if array.dtype not in NAMES:
            raise UserError(f"{name} is of dtype {array.dtype}, which safetensors does not know")
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(arrays):
            file.write(np.ascontiguousarray(arrays[name]).tobytes())


def _sharded(path: Path) -> Arrays:
    try:
        where = json.loads(path.read_text())["weight_map"]
    except (ValueError, KeyError):
        raise UserError(f"{path} is no index of weights; it should have a weight_map") from None
    arrays: Arrays = {}
    for name in sorted(set(where.values())):
        if not (path.parent / name).is_file():
            raise UserError(f"{path} names {name}, which is not beside it; get the missing part")
        arrays |= read(path.parent / name)
    missing = sorted(set(where) - set(arrays))
    if missing:
        raise UserError(f"{path} names {missing[0]}, which is in none of its parts; get them again")
    return arrays


def _npz(path: Path) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError, OSError):  # NumPy's advice is to unpickle
        raise UserError(
            f"{path} is no npz file of plain arrays, or is damaged; write it with numpy.savez, or get it again"
        ) from None


def _torch(path: Path) -> Arrays:
    torch = _imported_torch(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its advice is to unpickle
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(
            f"{path} holds more than plain weights, or is damaged; objects are never unpickled: where the file is trusted, save "
            "model.state_dict() alone, or safetensors"
        ) from None
    except Exception as error:  # its own errors are of many kinds, and all say that the file is not what it should be
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{path} cannot be read as plain weights: {reason}") from None
    state = state.get("state_dict", state)
    tensors = {name: value for name, value in state.items() if hasattr(value, "numpy")}
    wide = {name: value.float() if value.dtype == torch.bfloat16 else value for name, value in tensors.items()}
    return {name: value.detach().numpy() for name, value in wide.items()}


def _imported_torch(path: Path) -> Any:
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} is a file of PyTorch, which is not installed here; pip install torch, or use .safetensors"
        ) from None
    return torch
