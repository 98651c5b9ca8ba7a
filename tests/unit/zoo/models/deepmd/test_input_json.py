"""deepmd-kit's input.json as our configuration, and what it may not ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zoo.config import compose
from zoo.errors import UserError
from zoo.models.deepmd.config import potential

INPUT: dict[str, Any] = {
    "_comment": "as deepmd-kit's examples have it",
    "model": {
        "type_map": ["O", "H"],
        "descriptor": {
            "type": "se_e2_a",
            "sel": [46, 92],
            "rcut": 6.0,
            "rcut_smth": 0.5,
            "neuron": [25, 50],
            "seed": 1,
        },
        "fitting_net": {"neuron": [24, 24], "resnet_dt": True, "seed": 1, "_comment": "nothing"},
    },
    "learning_rate": {"type": "exp", "decay_steps": 5000, "start_lr": 0.001, "stop_lr": 3.51e-8},
    "loss": {"type": "ener", "start_pref_e": 0.02, "limit_pref_e": 1, "start_pref_f": 1000, "limit_pref_f": 1},
    "training": {
        "training_data": {"systems": ["../a/", "../b"], "batch_size": "auto"},
        "validation_data": {"systems": ["../c"], "batch_size": 1, "numb_btch": 3},
        "numb_steps": 1000,
        "seed": 10,
        "disp_file": "lcurve.out",
        "disp_freq": 100,
        "save_freq": 200,
    },
}


def composed(tmp_path: Path, *words: str, **changes: Any) -> Any:
    (tmp_path / "input.json").write_text(json.dumps({**INPUT, **changes}))
    return compose(["recipe=dp", "cluster=local", f"input_json={tmp_path / 'input.json'}", *words])


def test_the_file_becomes_the_configuration_and_words_win(tmp_path: Path) -> None:
    config = composed(tmp_path, "recipe.model.descriptor.rcut=5.0", "eval_every=7")
    model = potential(config.recipe.model, "recipe.model")
    assert model.descriptor.sel == (46, 92) and model.descriptor.rcut == 5.0 and model.fitting_net.neuron == (24, 24)
    assert (config.seed, config.log_every, config.eval_every, config.checkpoint_every) == (10, 100, 7, 200)
    assert config.recipe.training["steps"] == 1000 and config.recipe.training["loss"]["start_pref_f"] == 1000.0
    assert config.recipe.optimizer["stop_lr"] == 3.51e-8
    assert config.recipe.data["train"] == [str(Path("../a").absolute()), str(Path("../b").absolute())]
    assert config.recipe.data["test_batches"] == 3


def test_a_hybrid_passes_through(tmp_path: Path) -> None:
    one = INPUT["model"]["descriptor"]
    model = {**INPUT["model"], "descriptor": {"type": "hybrid", "list": [one, one | {"rcut": 4.0}]}}
    config = composed(tmp_path, model=model)
    assert [part.rcut for part in potential(config.recipe.model, "m").descriptor.list] == [6.0, 4.0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"nvnmd": {}}, "input.json.nvnmd={} is not supported"),
        ({"learning_rate": {"type": "wsd"}}, "learning_rate.type='wsd' is not supported"),
        ({"loss": {"start_pref_ae": 1.0}}, "loss.start_pref_ae=1.0 is not supported"),
        ({"training": {"numb_steps": 1}}, "training.training_data.systems is missing"),
        ({"training": {**INPUT["training"], "opt_type": "LKF"}}, "optimizer 'LKF' is not supported"),
        ({"training": {**INPUT["training"], "warm": 1}}, "training.warm=1 is not supported"),
        (
            {"training": {**INPUT["training"], "numb_step": 1}},
            r"numb_step=1 is not supported \(did you mean numb_steps",
        ),
        ({"training": {**INPUT["training"], "disp_freq": "x"}}, "training.disp_freq='x'; expected a whole number"),
        (
            {"training": {**INPUT["training"], "training_data": {"systems": 3}}},
            "systems=3; expected the name of a system",
        ),
        ({"learning_rate": "x"}, "input.json: learning_rate='x'; expected a section"),
        ({"loss": {"start_pref_f": "x"}}, "loss.start_pref_f='x'; expected a number"),
        (
            {"model": {**INPUT["model"], "pair_exclude_types": [[0, 9]]}},
            "exclude_types has type 9; type_map=.* has 0 to 1",
        ),
        ({"model": {**INPUT["model"], "spin": {}}}, "input.json: model.spin is not supported"),
        ({"model": {**INPUT["model"], "type": "dipole"}}, "input.json: model.type='dipole' is not supported"),
        ({"model": {**INPUT["model"], "type_map": ["O"]}}, "input.json: model.descriptor.sel=.* has 2 numbers"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, changes: dict, text: str) -> None:
    with pytest.raises(UserError, match=text):
        composed(tmp_path, **changes)


def test_a_missing_or_broken_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="input_json=.*none.json does not exist"):
        compose(["recipe=dp", "cluster=local", f"input_json={tmp_path / 'none.json'}"])
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UserError, match="is not JSON"):
        compose(["recipe=dp", "cluster=local", f"input_json={tmp_path / 'bad.json'}"])
