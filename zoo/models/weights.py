"""Parameters from files of other projects: named arrays, and a report on what became of every name."""

from __future__ import annotations

import dataclasses
import json
import math
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np

from zoo.errors import UserError

# Names of the safetensors format; numpy has no bfloat16 of its own.
SAFETENSORS_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
LARGEST_HEADER_BYTES = 100_000_000


@dataclasses.dataclass(frozen=True)
class KeyReport:
    """What became of every name of a file and of every parameter of a model.

    Attributes:
        matched: names whose values were taken.
        missing: parameters, by the name they have in such files, that the file does not have.
        unexpected: names of the file that no parameter has.
        wrong_shape: (name, shape that the model needs, shape in the file).
        ignored: names that hold nothing a model needs, such as counters of batches.
    """

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    wrong_shape: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
    ignored: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every parameter got its value and no value is left over."""
        return not (self.missing or self.unexpected or self.wrong_shape)

    def describe(self) -> str:
        """Counts on the first line, then every name that did not match, a line each."""
        lines = [
            f"{len(self.matched)} matched, {len(self.missing)} missing, {len(self.unexpected)} unexpected, "
            f"{len(self.wrong_shape)} of a wrong shape, {len(self.ignored)} ignored"
        ]
        lines += [f"missing: {name}" for name in self.missing]
        lines += [f"unexpected: {name}" for name in self.unexpected]
        lines += [
            f"wrong shape: {name} is {found}, the model needs {needed}" for name, needed, found in self.wrong_shape
        ]
        return "\n".join(lines)


def read(path: Path) -> dict[str, np.ndarray]:
    """The named arrays of a .npz or .safetensors file; bfloat16 stays bfloat16.

    Raises:
        UserError: the file is of another kind or is damaged. Pickles (.pt, .pth, .bin, .ckpt) are never opened.
    """
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        if path.suffix == ".safetensors":
            return _safetensors(path.read_bytes())
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a whole {path.suffix} file: {error}; get it again") from None
    raise UserError(
        f"{path}: weights are read from .npz and .safetensors files; a PyTorch file is a program, so save its state "
        "dictionary with safetensors.torch.save_file first"
    )


def _safetensors(content: bytes) -> dict[str, np.ndarray]:
    """Reads: 8 bytes, the length of a JSON header; the header, name -> dtype, shape, place; the values, little-endian."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(LARGEST_HEADER_BYTES, len(content) - 8):
        raise ValueError(f"its header would have {length} bytes")
    header = json.loads(content[8 : 8 + length])
    values = memoryview(content)[8 + length :]
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, (start, end) = np.dtype(SAFETENSORS_DTYPES[entry["dtype"]]), entry["shape"], entry["data_offsets"]
        if not 0 <= start <= end <= len(values) or end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{name} of shape {shape} lies at bytes {start} to {end} of {len(values)}")
        arrays[name] = np.frombuffer(values[start:end], dtype).reshape(shape)
    return arrays
