"""Words of the prediction command that belong to a recipe's section."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zoo import predict
from zoo.config import compose
from zoo.errors import UserError
from zoo.models.pretrained import facts_of
from zoo.predict import as_trained, sectioned


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("models=model_1_ptm,model_3_ptm", "model_1_ptm,model_3_ptm"),
        ("models=[model_1_ptm,model_3_ptm]", "model_1_ptm,model_3_ptm"),
        ("models=multimer", "multimer"),
        ("templates=/a b/c,d=e", "/a b/c,d=e"),
        ("params=null", None),
    ],
)
def test_values_reach_the_recipe_as_they_were_typed(word: str, value: str | None) -> None:
    config = compose(sectioned(["recipe=alphafold2", "cluster=local", word]))
    assert config.recipe.predict[word.partition("=")[0]] == value


def trained(monkeypatch: pytest.MonkeyPatch, **data: object) -> None:
    before = compose(["recipe=bert_classify", "cluster=local"]).recipe
    meta = {"recipe": {"target": before.target, "data": {**before.data, "train": "mine.csv", **data}}}
    monkeypatch.setattr(predict, "facts_of", lambda place: meta)


def test_texts_are_read_as_the_run_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    trained(monkeypatch, pair="second", kind="several", length=32)
    words = ["recipe=bert_classify", "cluster=local", f"init_from={Path('runs/mine')}"]
    found = as_trained(compose(words), words).data
    assert (found["pair"], found["kind"], found["length"], found["train"]) == ("second", "several", 32, "train.csv")
    words += ["recipe.data.pair=other", "recipe.data.length=16"]
    found = as_trained(compose(words), words).data
    assert (found["pair"], found["length"]) == ("other", 16)


@pytest.mark.parametrize("word", ["recipe.data.kind=classes", "recipe.data.pair=null"])
def test_what_the_run_was_not_trained_for_is_refused(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    trained(monkeypatch, pair="second", kind="several")
    words = ["recipe=bert_classify", "cluster=local", "init_from=runs/mine", word]
    with pytest.raises(UserError, match=f"{word}, and runs/mine was trained with .*; leave it out"):
        as_trained(compose(words), words)


def test_a_folder_of_hugging_face_says_what_kind_its_labels_are(tmp_path: Path) -> None:
    described = {"id2label": {"1": "good", "0": "bad", "2": "odd"}, "problem_type": "multi_label_classification"}
    (tmp_path / "config.json").write_text(json.dumps(described))
    words = ["recipe=bert_classify", "cluster=local", f"init_from={tmp_path}"]
    assert as_trained(compose(words), words).data["kind"] == "several"
    assert facts_of(tmp_path) == {"labels": ["bad", "good", "odd"], "kind": "several"}
    (tmp_path / "config.json").write_text(json.dumps(described | {"max_position_embeddings": 64}))
    assert as_trained(compose(words), words).data["length"] == 64
    assert (
        as_trained(compose(words), [*words, "recipe.data.length=32"]).data["length"] == 128
    )  # what the word set stays
    with pytest.raises(UserError, match="recipe.data.kind=classes, and .* was trained with kind=several; leave it out"):
        as_trained(compose(words), [*words, "recipe.data.kind=classes"])
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "LABEL_0"}}))
    assert facts_of(tmp_path)["kind"] == "regression"  # as transformers takes a single output


def test_what_does_not_exist_is_named_before_anything_else(tmp_path: Path) -> None:
    words = ["recipe=bert_classify", f"input={tmp_path}/no.jsonl", f"output={tmp_path}/out.jsonl"]
    with pytest.raises(UserError, match="init_from=.*nope does not exist; name a run of the zoo"):
        predict.main([*words, f"init_from={tmp_path}/nope"])
    with pytest.raises(UserError, match="input=.*no.jsonl does not exist"):
        predict.inputs(tmp_path / "no.jsonl", pictures=False)
    with pytest.raises(UserError, match=r"is a folder; name a file of records$"):
        predict.inputs(tmp_path, pictures=False)


def test_another_recipe_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    trained(monkeypatch, length=32)
    words = ["recipe=bert_tiny", "cluster=local", "init_from=runs/mine"]
    assert as_trained(compose(words), words).data["length"] == compose(words).recipe.data["length"]


def test_weights_of_another_family_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(predict, "facts_of", lambda place: {"family": "t5"})
    words = ["recipe=bert_tiny", f"init_from={tmp_path}", f"input={tmp_path}/a", f"output={tmp_path}/b"]
    with pytest.raises(UserError, match="init_from=.* is of family t5, and recipe=bert_tiny of bert$"):
        predict.main(words)


def test_the_vocabulary_is_known_by_its_content(tmp_path: Path) -> None:
    for name, word in (("one", "a"), ("two", "b"), ("three", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vocab.txt").write_text(word)
    found = {}
    for name in ("one", "two", "three"):
        config = compose(["recipe=bert_classify", "cluster=local", f"data_dir={tmp_path / name}"])
        found[name] = predict.vocabulary_of(config, config.recipe)
    config = compose(["recipe=bert_classify", "cluster=local", f"recipe.data.vocabulary={tmp_path}/one/vocab.txt"])
    assert found["one"] == found["three"] == predict.vocabulary_of(config, config.recipe) != found["two"]
