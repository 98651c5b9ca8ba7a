"""Parameters are those of the published models, and every other file is recognised for what it is."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models.alphafold2 import convert
from zoo.models.alphafold2.config import PRESETS, preset
from zoo.models.alphafold2.model import AlphaFold2

S = jax.ShapeDtypeStruct
SHAPES = {
    "alphafold/alphafold_iteration/evoformer/preprocess_1d": {
        "weights": S((22, 8), np.float32),
        "bias": S((8,), np.float32),
    },
    "alphafold/alphafold_iteration/evoformer/relative_encoding/position_activations": {
        "weights": S((4, 8), np.float32)
    },
}


# One of each group that has the same keys and shapes; the others are slow tests.
DIFFERENT = ["model_1", "model_3", "model_1_ptm", "model_3_ptm", "model_1_multimer", "model_1_multimer_v3"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in DIFFERENT else pytest.mark.slow) for name in PRESETS]
)
def test_keys_and_shapes_are_those_of_the_original(name: str, root: Path) -> None:
    # Made by `python tests/parity/alphafold2_reference.py keys MODEL...` with google-deepmind/alphafold c77e5d2.
    expected = json.loads((root / "tests/parity/alphafold2_keys.json").read_text())[name]
    ours = convert.keys_and_shapes(AlphaFold2(preset(name)).parameter_shapes())
    lines = "\n".join(f"{key} {list(shape)}" for key, shape in sorted(ours.items()))
    assert len(ours) == expected["count"]
    assert hashlib.sha256(lines.encode()).hexdigest() == expected["sha256"]


def write(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


def test_a_published_file_is_read_and_written_unchanged(tmp_path: Path) -> None:
    params = convert.draw(SHAPES, 3)
    path = write(tmp_path / "params_model_1.npz", convert.flat(params))
    read, report = convert.load(tmp_path, SHAPES, "model_1")
    assert report.ok and len(report.matched) == 3
    jax.tree.map(np.testing.assert_array_equal, read, params)
    assert (
        "alphafold/alphafold_iteration/evoformer/~_relative_encoding/position_activations//weights"
        in np.load(path).files
    )


def test_every_key_is_accounted_for(tmp_path: Path) -> None:
    arrays = convert.flat(convert.draw(SHAPES, 0))
    arrays["alphafold/alphafold_iteration/evoformer/preprocess_1d//weights"] = np.zeros((21, 8), np.float32)
    del arrays["alphafold/alphafold_iteration/evoformer/preprocess_1d//bias"]
    arrays["alphafold/x//y"] = np.zeros(1)
    with pytest.raises(UserError) as error:
        convert.load(write(tmp_path / "p.npz", arrays), SHAPES, "model_1")
    for part in (
        "1 missing",
        "1 unexpected: alphafold/x//y",
        "(21, 8) in place of (22, 8)",
        "multimer model, v1 or v2",
    ):
        assert part in str(error.value)


def test_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    files = {
        "pickle": pickle.dumps({"a": 1}),
        "HDF5": b"\x89HDF\r\n\x1a\n",
        "gzip": b"\x1f\x8b\x08\0\0\0\0\0",
        "npy": b"\x93NUMPY\x01\0",
        "no npz": b"hello",
    }
    for word, data in files.items():
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(UserError, match=word):
            convert.read(tmp_path / "file")
    with zipfile.ZipFile(tmp_path / "file", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    with pytest.raises(UserError, match="PyTorch checkpoint"):
        convert.read(tmp_path / "file")
    with pytest.raises(UserError, match="not those of a published file"):
        convert.load(write(tmp_path / "p.npz", {"arr_0": np.zeros(1)}), SHAPES, "model_1")
    np.savez(tmp_path / "o.npz", a=np.array([None]))
    with pytest.raises(UserError, match="pickled objects"):
        convert.read(tmp_path / "o.npz")


def test_without_parameters_the_user_reads_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"5.3 GB, CC BY 4.0.*params=random"):
        convert.load(tmp_path / "none.npz", SHAPES, "model_1")


def test_drawn_parameters_depend_on_their_name_and_the_seed_alone() -> None:
    one = convert.draw_one("a/evoformer_iteration/b//weights", (4, 100, 50), 0)
    assert abs(one.std() - 0.1) < 0.005  # fan-in 100, not the 4 blocks
    assert convert.draw_one("a//bias", (1000,), 0).std() < 0.12
    assert (one == convert.draw_one("a/evoformer_iteration/b//weights", (4, 100, 50), 0)).all()
    assert (one != convert.draw_one("a/evoformer_iteration/b//weights", (4, 100, 50), 1)).any()
