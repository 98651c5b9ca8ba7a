"""Conversions between runs, folders of Hugging Face and files: exact there and back, every key reported."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from zoo.checkpoint import main
from zoo.conversion import convert
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.models.bert import convert as bert_names
from zoo.models.bert.config import BertConfig
from zoo.models.bert.model import abstract_params as bert_params
from zoo.models.t5.config import T5Config
from zoo.models.t5.convert import config_to, to_hugging_face
from zoo.models.t5.model import abstract_params
from zoo.training.checkpoints import Checkpoints, locate

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


def test_a_key_that_the_described_model_does_not_know_is_an_error_for_files_too(folder: Path, tmp_path: Path) -> None:
    strange = {**weight_files.read(folder), "encoder.strange": np.zeros(2, np.float32)}
    weight_files.write(folder / "model.safetensors", strange)
    for place in (folder, folder / "model.safetensors"):
        for to in ("ours", "x.npz"):
            with pytest.raises(UserError, match="has encoder.strange.*, which this model does not know"):
                list(convert(place, tmp_path / to, lambda *_: None))
            assert not (tmp_path / to).exists()


def test_keys_that_are_left_out_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    config = BertConfig(11, 8, 2, 2, 16, head="masked_words")
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), bert_params(config))
    weight_files.write(tmp_path / "theirs/model.safetensors", bert_names.to_hugging_face(params, config.head))
    described = bert_names.config_to(config) | {"architectures": None}
    (tmp_path / "theirs/config.json").write_text(json.dumps(described))
    assert main(["convert", f"from={tmp_path / 'theirs'}", f"to={tmp_path / 'ours'}"]) == 0
    said = capsys.readouterr().out
    left = said.count(" is left out: ")
    assert left and said.splitlines()[-1].endswith(f" keys, {left} of them left out; written to {tmp_path / 'ours'}")


def test_what_cannot_be_converted_is_said(folder: Path, tmp_path: Path) -> None:
    for words, text in (
        (["from=nowhere", "to=x.npz"], "from=nowhere does not exist"),
        ([f"from={folder}"], "convert takes from=PATH to=PATH"),
        ([f"from={folder}", f"to={folder}"], "is there already; name a new folder"),
        ([f"from={folder / 'model.safetensors'}", f"to={folder / 'model.safetensors'}"], "is there already"),
        ([f"from={tmp_path}", "to=x.npz"], "holds no complete checkpoint"),
        ([f"from={folder}", "to=x.foo"], "no file of weights ends in .foo"),
        ([f"from={folder}", "to=x.h5"], "no file of weights ends in .h5"),
        ([f"from={folder}", "to=x.npz."], "the name of a new folder has no ending"),
    ):
        with pytest.raises(UserError, match=text):
            main(["convert", *words])
    weight_files.write(tmp_path / "other" / "model.safetensors", {"a": np.zeros(1, np.float32)})
    with pytest.raises(UserError, match="of no model that is known here"):
        main(["convert", f"from={tmp_path / 'other'}", f"to={tmp_path / 'new'}"])


def test_products_of_lora_are_added_or_written_as_peft_does(tmp_path: Path) -> None:
    config = BertConfig(7, 4, 2, 2, 6, head="classification", num_labels=3, max_positions=5)
    rng = np.random.default_rng(0)
    draw = lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype)
    base = jax.tree.map(draw, bert_params(config))
    products = {"a": np.ones((2, 4, 3), np.float32), "b": rng.normal(size=(2, 3, 4)).astype(np.float32)}
    params = {**base, "lora": {"encoder": {"layers": {"query": products}}}}
    lora = {"rank": 3, "alpha": 6.0, "targets": ["query"]}
    meta = {
        "family": "bert",
        "model": dataclasses.asdict(config),
        "lora": lora,
        "labels": ["x", "y", "z"],
    }
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    for step, score in ((1, 0.5), (2, 0.25)):
        checkpoints.save(step, {"params": params}, {**meta, "score": score})
        checkpoints.wait()
    assert locate(tmp_path / "run" / "best")[1] == 1 and locate(tmp_path / "run")[1] == 2
    assert main(["convert", f"from={tmp_path / 'run' / 'best'}", f"to={tmp_path / 'whole.npz'}"]) == 0
    assert main(["convert", f"from={tmp_path / 'run'}", f"to={tmp_path / 'adapter'}", "adapter=true"]) == 0
    assert main(["convert", f"from={tmp_path / 'run'}", f"to={tmp_path / 'folder'}"]) == 0
    assert json.loads((tmp_path / "folder" / "config.json").read_text())["id2label"] == {"0": "x", "1": "y", "2": "z"}
    whole = weight_files.read(tmp_path / "whole.npz")
    parts = weight_files.read(tmp_path / "adapter" / "adapter_model.safetensors")
    layer = "bert.encoder.layer.1.attention.self.query"
    a, b = (parts[f"base_model.model.{layer}.lora_{which}.weight"] for which in "AB")
    assert a.shape == (3, 4) and b.shape == (4, 3)
    kernel = base["encoder"]["layers"]["query"]["kernel"][1].T
    np.testing.assert_allclose(whole[f"{layer}.weight"], kernel + 2.0 * b @ a, rtol=1e-5)
    np.testing.assert_array_equal(parts["base_model.model.classifier.weight"], base["classifier"]["kernel"].T)
    described = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (described["r"], described["lora_alpha"], described["task_type"]) == (3, 6.0, "SEQ_CLS")
    assert layer in described["target_modules"] and described["modules_to_save"] == ["classifier"]
    with pytest.raises(UserError, match="adapter=true turns a run with LoRA into a folder"):
        main(["convert", f"from={tmp_path / 'run'}", f"to={tmp_path / 'x.npz'}", "adapter=true"])
