"""Files of named arrays: both formats, every dtype, damage, and the pickles that are never opened."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models.weights import read

ARRAYS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.asarray([1.5, -2.25], ml_dtypes.bfloat16),
    "count": np.asarray(7, np.int64),
}
NAMES = {"float32": "F32", "bfloat16": "BF16", "int64": "I64"}


def safetensors(arrays: dict[str, np.ndarray]) -> bytes:
    header: dict = {"__metadata__": {"format": "pt"}}
    values = b""
    for name, array in arrays.items():
        place = [len(values), len(values) + array.nbytes]
        header[name] = {"dtype": NAMES[str(array.dtype)], "shape": array.shape, "data_offsets": place}
        values += array.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


def test_safetensors_is_read_with_every_dtype(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors(ARRAYS))
    for name, array in read(path).items():
        assert array.dtype == ARRAYS[name].dtype and array.shape == ARRAYS[name].shape
        np.testing.assert_array_equal(array, ARRAYS[name])
    assert set(read(path)) == set(ARRAYS)


def test_npz_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", **{"a.weight": ARRAYS["a.weight"]})
    np.testing.assert_array_equal(read(tmp_path / "model.npz")["a.weight"], ARRAYS["a.weight"])


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".ckpt"])
def test_pickles_are_not_opened(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_bytes(pickle.dumps({}))
    with pytest.raises(UserError, match="safetensors.torch.save_file"):
        read(path)


def test_an_npz_with_a_pickle_inside_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", a=np.asarray([{}], object))
    with pytest.raises(UserError, match="model.npz is not a whole .npz file"):
        read(tmp_path / "model.npz")


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 20, safetensors(ARRAYS)[:-1], safetensors(ARRAYS).replace(b"F32", b"F99")]
)
def test_damage_is_told_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UserError, match="model.safetensors is not a whole .safetensors file"):
        read(path)
