"""Conversions between runs, folders of Hugging Face and files: exact there and back, every key reported."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from zoo.checkpoint import main
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.models.t5.config import T5Config
from zoo.models.t5.convert import config_to, to_hugging_face
from zoo.models.t5.model import abstract_params

TINY = T5Config(11, 8, 2, 2, 3, 12, num_decoder_layers=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "theirs"
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), abstract_params(TINY))
    weight_files.write(place / "model.safetensors", to_hugging_face(params, TINY))
    (place / "config.json").write_text(json.dumps(config_to(TINY)))
    return place


def test_a_folder_becomes_a_checkpoint_and_comes_back(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["convert", f"from={folder}", f"to={tmp_path / 'ours'}"]) == 0
    weights = weight_files.read(folder)
    assert capsys.readouterr().out.count(" -> ") == len(weights)
    assert main(["convert", f"from={tmp_path / 'ours'}", f"to={tmp_path / 'back'}"]) == 0
    back = weight_files.read(tmp_path / "back")
    assert set(back) == set(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(back[name], value, err_msg=name)
    assert json.loads((tmp_path / "back/config.json").read_text()) == json.loads((folder / "config.json").read_text())


def test_files_of_one_kind_become_another(folder: Path, tmp_path: Path) -> None:
    assert main(["convert", f"from={folder}", f"to={tmp_path / 'x.npz'}"]) == 0
    assert main(["convert", f"from={tmp_path / 'x.npz'}", f"to={tmp_path / 'y.safetensors'}"]) == 0
    for name, value in weight_files.read(folder).items():
        np.testing.assert_array_equal(weight_files.read(tmp_path / "y.safetensors")[name], value)


def test_what_cannot_be_converted_is_said(folder: Path, tmp_path: Path) -> None:
    for words, text in (
        (["from=nowhere", "to=x.npz"], "from=nowhere does not exist"),
        ([f"from={folder}"], "convert takes from=PATH to=PATH"),
        ([f"from={folder}", f"to={folder}"], "is there already; name a new folder"),
        ([f"from={folder / 'model.safetensors'}", f"to={folder / 'model.safetensors'}"], "is there already"),
        ([f"from={tmp_path}", "to=x.npz"], "holds no complete checkpoint"),
    ):
        with pytest.raises(UserError, match=text):
            main(["convert", *words])
    weight_files.write(tmp_path / "other" / "model.safetensors", {"a": np.zeros(1, np.float32)})
    with pytest.raises(UserError, match="of no model that is known here"):
        main(["convert", f"from={tmp_path / 'other'}", f"to={tmp_path / 'new'}"])
