"""Fine-tuning on a table from a folder of Hugging Face: sizes, vocabulary, labels, learning, predictions, export."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("tokenizers")

from recipes.bert_classify import BertClassifyRecipe
from zoo.data.tables import TableConfig
from zoo.data.vocabulary import SPECIAL
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.models.bert.config import BertConfig
from zoo.models.bert.convert import config_to, to_hugging_face
from zoo.models.bert.model import abstract_params
from zoo.training.state import begun_from

ENCODER = BertConfig(25, 16, 1, 2, 24, max_positions=12, head="encoder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: 0.2 * rng.normal(size=leaf.shape).astype(leaf.dtype), abstract_params(ENCODER))
    weight_files.write(place / "model.safetensors", to_hugging_face(params, "encoder"))
    (place / "config.json").write_text(json.dumps(config_to(ENCODER)))
    (place / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(20))]))
    rows = [f"w{n % 20} w{(7 * n) % 20},{'even' if n % 2 else 'odd'}" for n in range(40)]
    (place / "train.csv").write_text("\n".join(["text,label", *rows]))
    return place


def made(
    folder: Path, init_from: Path | None = None, predicts: bool = False, **changes: dict[str, Any]
) -> BertClassifyRecipe:
    sections: dict[str, dict[str, Any]] = {
        "model": {
            "vocabulary_size": 30,
            "hidden": 8,
            "num_layers": 1,
            "num_heads": 1,
            "intermediate": 8,
            "dropout": 0.0,
        },
        "data": {"length": 8, "global_batch": 8},
        "optimizer": {"name": "adamw", "learning_rate": 1e-2, "schedule": "constant"},
        "training": {"steps": 10},
    }
    sections = {name: section | changes.get(name, {}) for name, section in sections.items()}
    config: Any = SimpleNamespace(name="tiny", init_from=init_from, predicts=predicts, **sections)
    return BertClassifyRecipe(config, folder)


def test_sizes_labels_and_vocabulary_are_those_of_the_weights_and_the_table(folder: Path) -> None:
    recipe = made(folder, folder)
    assert recipe.labels == ("even", "odd") and recipe.model_config.hidden == 16 and recipe.model_config.num_labels == 2
    assert recipe.model_config.dropout == 0.0
    assert "36 rows to train on and 4 to test" in recipe.dataset().announcement
    batch = next(recipe.batches("train", 0, 0, 8))
    shapes = {name: (value.shape, value.dtype) for name, value in recipe.task().args[1].items()}
    assert {name: (value.shape, value.dtype) for name, value in batch.items()} == shapes


def test_the_labels_are_learned_and_said(folder: Path, tmp_path: Path) -> None:
    recipe = made(folder, folder)
    state = jax.jit(recipe.initial_state)(jax.random.key(0))
    step = jax.jit(recipe.step)
    for batch in itertools.islice(recipe.batches("train", 0, 0, 8), 60):
        state, metrics = step(state, batch)
    assert float(metrics["accuracy"]) >= 0.75
    totals: dict[str, Any] = {}
    for batch in recipe.batches("test", 0, 0, 8):
        for name, value in jax.jit(recipe.evaluate)(state, batch).items():
            totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
    figures = recipe.figures(totals)
    assert figures["examples"] == 4 and 0 <= figures["f1"] <= 1
    tuned = recipe.model_config
    weight_files.write(tmp_path / "model.safetensors", to_hugging_face(state["params"], tuned.head))
    (tmp_path / "config.json").write_text(json.dumps(config_to(tuned)))
    (tmp_path / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    predict = made(folder, tmp_path).predictor(tmp_path, None, 4, jax.random.key(0))
    found = predict([{"text": "w1 w7"}, {"text": "w2 w14"}])
    assert set(found[0]["probabilities"]) == {"even", "odd"} and found[0]["label"] in ("even", "odd")
    embedded = made(folder, tmp_path).predictor(tmp_path, "embed", 4, jax.random.key(0))([{"text": "w1 w7"}])
    assert np.isclose(np.linalg.norm(embedded[0]["embedding"]), 1, atol=1e-5)


def renewed(place: Path, recipe: BertClassifyRecipe) -> Iterator[str]:
    """What a training from some weights says of its heads."""
    said: list[str] = []
    state = jax.eval_shape(lambda: recipe.initial_state(jax.random.key(0)))
    one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    begun_from(place, recipe, 0, state, jax.tree.map(lambda leaf: one, state), said.append)
    yield from said


def test_predictions_name_labels_as_the_weights_do_whatever_table_lies_about(folder: Path, tmp_path: Path) -> None:
    tuned = made(folder, folder)
    state = jax.jit(tuned.initial_state)(jax.random.key(0))
    weight_files.write(tmp_path / "model.safetensors", to_hugging_face(state["params"], tuned.model_config.head))
    described = config_to(tuned.model_config)
    (tmp_path / "vocab.txt").write_text((folder / "vocab.txt").read_text())
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(f"w1,{name}" for name in ("a", "b", "c") * 5))
    for names in ({"0": "zebra", "1": "ape"}, {"0": "ape", "1": "zebra"}):
        (tmp_path / "config.json").write_text(json.dumps({**described, "id2label": names}))
        predict = made(tmp_path, tmp_path, predicts=True).predictor(tmp_path, None, 4, jax.random.key(0))
        (found,) = predict([{"text": "w1 w7"}])
        assert list(found["probabilities"]) == list(names.values())
    (tmp_path / "config.json").write_text(
        json.dumps({name: described[name] for name in described if name[:2] not in ("id", "la")})
    )
    with pytest.raises(UserError, match=r"does not say what its labels are called; .* recipe.data.labels=\[...\]"):
        made(tmp_path, tmp_path, predicts=True).predictor(tmp_path, None, 4, jax.random.key(0))
    with pytest.raises(UserError, match="knows 2 labels, and there are a, b, c"):
        made(tmp_path, tmp_path, predicts=True, data={"labels": ("a", "b", "c")}).predictor(
            tmp_path, None, 4, jax.random.key(0)
        )
    with pytest.raises(ValueError, match="labels=a, b, a; a is there 2 times"):
        TableConfig(8, 8, labels=("a", "b", "a"))
    with pytest.raises(ValueError, match="readers=-1; it must be at least 0"):
        TableConfig(8, 8, readers=-1)
    described |= {"architectures": ["BertForTokenClassification"], "id2label": {"0": "O", "1": "B-X"}}
    (tmp_path / "train.csv").write_text("")
    (tmp_path / "config.json").write_text(json.dumps(described))
    assert made(folder, tmp_path).other_kind(tmp_path) == "tokens"
    assert list(renewed(tmp_path, made(folder, tmp_path))) == ["classifier starts anew: it was for tokens"]
    with pytest.raises(UserError, match="has a head for tokens: use recipe=bert_tokens, or"):
        made(tmp_path, tmp_path, predicts=True).predictor(tmp_path, None, 4, jax.random.key(0))
    (tmp_path / "config.json").unlink()
    part = to_hugging_face(state["params"], tuned.model_config.head)
    weight_files.write(
        tmp_path / "tags.safetensors", {name: leaf for name, leaf in part.items() if "pooler" not in name}
    )
    sizes = {
        "hidden": 16,
        "num_layers": 1,
        "num_heads": 2,
        "intermediate": 24,
        "vocabulary_size": 25,
        "max_positions": 12,
    }
    with pytest.raises(UserError, match=r"has no head for this \(pooler\)"):
        made(tmp_path, predicts=True, data={"labels": ("b", "a")}, model=sizes).predictor(
            tmp_path / "tags.safetensors", None, 4, jax.random.key(0)
        )
    (tmp_path / "config.json").write_text(json.dumps(config_to(tuned.model_config)))
    predict = made(tmp_path, tmp_path, predicts=True, data={"labels": ("b", "a")})
    (found,) = predict.predictor(tmp_path, None, 4, jax.random.key(0))([{"text": "w1 w7"}])
    assert list(found["probabilities"]) == ["b", "a"]


def test_the_correlation_of_large_numbers_is_one(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n" + "\n".join(f"w{n % 20},{1e5 + n}" for n in range(20)))
    recipe = made(tmp_path, folder, data={"kind": "regression"})
    assert recipe.scored == ("pearson",) and recipe.labels == ("value",)
    numbers = np.float32(1e5) + np.arange(20, dtype=np.float32)
    assert np.isclose(recipe.scores({"said": 2 * numbers, "meant": numbers})["pearson"], 1)
    assert np.isclose(recipe.scores({"said": -numbers, "meant": numbers})["pearson"], -1)
    assert recipe.scores({"said": 0 * numbers, "meant": numbers}) == {"pearson": 0.0}
    state = jax.jit(recipe.initial_state)(jax.random.key(0))
    batch = next(recipe.batches("test", 0, 0, 8))
    assert "accuracy" not in jax.jit(recipe.step)(state, next(recipe.batches("train", 0, 0, 8)))[1]
    assert {name: len(value) for name, value in recipe.outputs(state, batch).items()} == {"said": 8, "meant": 8}
    totals = {name: np.asarray(value) for name, value in recipe.evaluate(state, batch).items()}
    assert set(recipe.figures(totals)) == {"loss", "examples"}


def test_tokenizer_settings_travel_and_say_what_the_run_did(folder: Path, tmp_path: Path) -> None:
    said = json.loads(made(folder, folder).companions()["tokenizer_config.json"])
    assert said == {"tokenizer_class": "BertTokenizer", "model_max_length": 12, "do_lower_case": True}
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max_length": 10}')
    (tmp_path / "tokenizer.json").write_text("{}")
    kept = made(folder, tmp_path).companions()
    assert json.loads(kept["tokenizer_config.json"])["model_max_length"] == 10 and kept["tokenizer.json"] == "{}"
    assert not made(folder, tmp_path).vocabulary().lowercase
    other = made(folder, tmp_path, data={"lowercase": True}).companions()
    assert json.loads(other["tokenizer_config.json"])["do_lower_case"] and "tokenizer.json" not in other


def test_other_weights_tables_and_tasks_are_refused(folder: Path, tmp_path: Path) -> None:
    recipe = made(folder, folder)
    with pytest.raises(UserError, match=r"has no head for this \(classifier\); fine-tune it first"):
        recipe.predictor(folder, None, 4, jax.random.key(0))
    with pytest.raises(UserError, match="task=translate; this recipe knows classify and embed"):
        recipe.predictor(folder, "translate", 4, jax.random.key(0))
    with pytest.raises(UserError, match="recipe.data.length=13 is more than the model's 12 positions"):
        made(folder, folder, data={"length": 13})
    with pytest.raises(UserError, match="has no column body; it has text, label"):
        made(folder, folder, data={"text": "body"})
    with pytest.raises(UserError, match="no vocab.txt beside init_from or in data_dir"):
        (tmp_path / "train.csv").write_text((folder / "train.csv").read_text())
        made(tmp_path).dataset()
