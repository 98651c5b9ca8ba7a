"""Fine-tuning on tables of one's own: words with labels, questions, texts for texts; batches, learning, scores, predictions."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")
pytest.importorskip("seqeval")

from recipes.bert_qa import BertAnswersRecipe
from recipes.bert_tokens import BertTokensRecipe
from recipes.t5_text2text import T5Text2TextRecipe
from zoo.data.vocabulary import SPECIAL, train_sentencepiece
from zoo.training.evaluation import counted

BERT = {"vocabulary_size": 25, "hidden": 16, "num_layers": 1, "num_heads": 2, "intermediate": 16, "dropout": 0.0}
SECTIONS: dict[type, dict[str, Any]] = {
    BertTokensRecipe: {"model": BERT, "data": {"length": 8}},
    BertAnswersRecipe: {"model": BERT, "data": {"length": 12, "stride": 2}},
    T5Text2TextRecipe: {
        "model": {"vocabulary_size": 160, "hidden": 16, "num_layers": 1, "num_heads": 2, "head_size": 8}
        | {"intermediate": 16, "dropout": 0.0},
        "data": {"length": 12, "target_length": 6},
    },
}
EVERY = pytest.mark.parametrize("kind", SECTIONS)


def rows(kind: type) -> list[dict[str, Any]]:
    """Rows with something to learn: odd words are names; the answer is the odd word; the target is the first word."""
    rng = np.random.default_rng(0)
    found: list[dict[str, Any]] = []
    for _ in range(40):
        numbers = 2 * rng.integers(0, 10, 5)
        numbers[rng.integers(5)] += 1
        words = [f"w{number}" for number in numbers]
        odd = next(word for word, number in zip(words, numbers, strict=True) if number % 2)
        if kind is BertTokensRecipe:
            found.append({"tokens": words, "labels": ["B-ODD" if word == odd else "O" for word in words]})
        elif kind is BertAnswersRecipe:
            found.append({"question": "w0", "context": " ".join(words), "answers": [odd]})
        else:
            found.append({"source": " ".join(words), "target": words[0]})
    return found


def made(kind: Any, folder: Path, **training: Any) -> Any:
    sections = {**SECTIONS[kind], "training": {"steps": 60, **training}}
    sections["data"] = {**sections["data"], "global_batch": 8, "readers": 0, "train": f"{kind.__name__}.jsonl"}
    sections["optimizer"] = {"name": "adamw", "learning_rate": 1e-2, "schedule": "constant"}
    return kind(SimpleNamespace(name="tiny", init_from=None, **sections), folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data")
    (place / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{number}" for number in range(20))]) + "\n")
    for kind in SECTIONS:
        (place / f"{kind.__name__}.jsonl").write_text("\n".join(json.dumps(row) for row in rows(kind)))
    texts = [row["source"] for row in rows(T5Text2TextRecipe)]
    (place / "spiece.model").write_bytes(train_sentencepiece(texts, 150).model)
    return place


@EVERY
def test_batches_and_states_are_those_of_the_task(kind: Any, folder: Path) -> None:
    recipe = made(kind, folder)
    task = recipe.task()
    batch = next(recipe.batches("train", 0, 0, 8))
    shapes = {name: (value.shape, value.dtype) for name, value in task.args[1].items()}
    assert {name: (value.shape, value.dtype) for name, value in batch.items()} == shapes
    after, metrics = jax.eval_shape(task.step, *task.args)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), task.args[0], after))
    assert set(metrics) == set(recipe.metrics)


@EVERY
@pytest.mark.slow
def test_the_tables_are_learned_and_scored(kind: Any, folder: Path) -> None:
    recipe = made(kind, folder)
    state, losses, step = jax.jit(recipe.initial_state)(jax.random.key(0)), [], jax.jit(recipe.step)
    for batch in itertools.islice(recipe.batches("train", 0, 0, 8), 60):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    assert set(metrics) == set(recipe.metrics) and np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    totals: dict[str, Any] = {}
    found = []
    evaluate, outputs = jax.jit(recipe.evaluate), jax.jit(recipe.outputs)
    for batch in recipe.batches("test", 0, 0, 8):
        for name, value in evaluate(state, batch).items():
            totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
        found.append(jax.device_get({**outputs(state, batch), "number": batch["number"], "weight": batch["weight"]}))
    figures = recipe.figures(totals)
    figures |= recipe.scores(counted(found))
    assert all(np.isfinite(value) for value in figures.values())
    wanted = {BertTokensRecipe: "recall", BertAnswersRecipe: "f1", T5Text2TextRecipe: "rougeL"}[kind]
    assert wanted in figures and figures["accuracy"] > 0.2


@EVERY
def test_what_stands_in_for_a_missing_table_is_said(kind: Any, folder: Path, tmp_path: Path) -> None:
    recipe = made(kind, tmp_path)
    for name in ("vocab.txt", "spiece.model"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    assert "this rehearsal runs on" in recipe.dataset(rehearsal=True).announcement
    assert {"vocab.txt", "spiece.model"} & set(recipe.companions())
