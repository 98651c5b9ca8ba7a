"""Files of weights, there and back, and what is said of damaged ones."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models import weight_files

ARRAYS = {
    "a.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.asarray([1.5, -2.0], jnp.bfloat16),
    "c": np.asarray(7, np.int64),
    "d": np.zeros((0, 3), np.float16),
}


def assert_equal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape, name
        np.testing.assert_array_equal(found[name], value)


def test_safetensors_there_and_back(tmp_path: Path) -> None:
    weight_files.write(tmp_path / "model.safetensors", ARRAYS)
    assert_equal(weight_files.read(tmp_path), ARRAYS)


def test_the_library_reads_ours_and_we_read_its(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    plain = {name: value for name, value in ARRAYS.items() if name != "b"}
    weight_files.write(tmp_path / "ours.safetensors", plain)
    assert_equal(library.load_file(tmp_path / "ours.safetensors"), plain)
    library.save_file(plain, tmp_path / "its.safetensors")
    assert_equal(weight_files.read(tmp_path / "its.safetensors"), plain)


def test_npz_there_and_back(tmp_path: Path) -> None:
    plain = {name: value for name, value in ARRAYS.items() if name != "b"}
    weight_files.write(tmp_path / "x.npz", plain)
    assert_equal(weight_files.read(tmp_path / "x.npz"), plain)


def test_several_files_and_their_index(tmp_path: Path) -> None:
    weight_files.write(tmp_path / "1.safetensors", {"a": np.ones(2, np.float32)})
    weight_files.write(tmp_path / "2.safetensors", {"b": np.zeros(1, np.float32)})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    assert set(weight_files.read(tmp_path)) == {"a", "b"}
    (tmp_path / "2.safetensors").unlink()
    with pytest.raises(UserError, match="names 2.safetensors, which is not beside it"):
        weight_files.read(tmp_path)


def test_damage_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    weight_files.write(file, ARRAYS)
    whole = file.read_bytes()
    for content, text in (
        (whole[:-3], "is cut off"),
        (b"no", "is no safetensors"),
        (b"\xff" * 40, "is no safetensors"),
    ):
        file.write_bytes(content)
        with pytest.raises(UserError, match=text):
            weight_files.read(file)
    with pytest.raises(UserError, match="does not exist; name a file of weights"):
        weight_files.read(tmp_path / "none.npz")
    with pytest.raises(UserError, match="ending '.h5'; known are .safetensors"):
        weight_files.write(tmp_path / "x.h5", ARRAYS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no weights; it should have one of model.safetensors"):
        weight_files.read(tmp_path / "empty")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "model.npz", a=np.asarray([{}], object))
    with pytest.raises(UserError, match="model.npz is no npz file of plain arrays"):
        weight_files.read(tmp_path / "model.npz")
    (tmp_path / "model.ckpt").write_bytes(pickle.dumps({}))
    with pytest.raises(UserError, match="ending '.ckpt'"):
        weight_files.read(tmp_path / "model.ckpt")
