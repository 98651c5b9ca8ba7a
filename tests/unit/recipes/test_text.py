"""The recipes of BERT and T5: tasks, steps, evaluation, data that stands in, and errors."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from recipes.bert import BertRecipe
from recipes.t5 import T5Recipe
from zoo.conversion import FAMILIES
from zoo.data.vocabulary import SPECIAL
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.models.bert.config import BertConfig
from zoo.models.bert.model import abstract_params

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

OPTIMIZER = {"name": "adamw", "learning_rate": 5e-3, "schedule": "constant"}
SECTIONS: dict[type, dict[str, dict[str, Any]]] = {
    BertRecipe: {
        "model": {
            "vocabulary_size": 400,
            "hidden": 16,
            "num_layers": 2,
            "num_heads": 2,
            "intermediate": 32,
            "dropout": 0.0,
        }
        | {"attention_dropout": 0.0, "max_positions": 32},
        "data": {"name": "pydoc", "vocabulary": "train", "length": 32, "global_batch": 4},
        "optimizer": OPTIMIZER,
        "training": {"steps": 10},
    },
    T5Recipe: {
        "model": {
            "vocabulary_size": 500,
            "hidden": 16,
            "num_layers": 1,
            "num_heads": 2,
            "head_size": 8,
            "intermediate": 32,
        }
        | {"dropout": 0.0},
        "data": {"name": "pydoc", "vocabulary": "train", "length": 32, "global_batch": 4},
        "optimizer": OPTIMIZER,
        "training": {"steps": 10},
    },
}
BOTH = pytest.mark.parametrize("family", SECTIONS)


def made(family: Any, folder: Path = Path("nowhere"), **changes: dict[str, Any]) -> Any:
    sections = {name: section | changes.get(name, {}) for name, section in SECTIONS[family].items()}
    return family(SimpleNamespace(name="tiny", **sections), folder)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    folder = tmp_path_factory.mktemp("data")
    recipes = {family: made(family, folder) for family in SECTIONS}
    for recipe in recipes.values():
        recipe.dataset(rehearsal=True)
    return recipes


@BOTH
def test_task_is_abstract_and_agrees_with_batches(family: Any, opened: dict) -> None:
    recipe = opened[family]
    task = recipe.task()
    after, metrics = jax.eval_shape(task.step, *task.args)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), task.args[0], after))
    assert set(metrics) == set(recipe.metrics) and all(value.shape == () for value in metrics.values())
    batch = next(recipe.batches("train", 0, 0, 4))
    shapes = {name: (value.shape, value.dtype) for name, value in batch.items()}
    assert shapes == {name: (value.shape, value.dtype) for name, value in task.args[1].items()}
    assert recipe.task(global_batch=2).args[1]["source" if family is T5Recipe else "ids"].shape[0] == 2


@pytest.mark.slow
@BOTH
def test_one_batch_is_learned_by_heart(family: Any, opened: dict) -> None:
    recipe = opened[family]
    state = jax.jit(recipe.initial_state)(jax.random.key(0))
    batch = next(recipe.batches("train", 0, 0, 4))
    step = jax.jit(recipe.step)
    losses = []
    for _ in range(60):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < 0.25 * losses[0]
    assert int(state["step"]) == 60


@BOTH
def test_figures_of_the_test_split_do_not_depend_on_its_batches(family: Any, opened: dict) -> None:
    recipe = opened[family]
    state = jax.jit(recipe.initial_state)(jax.random.key(0))
    evaluate = jax.jit(recipe.evaluate)

    def figures(size: int, batches: int) -> dict[str, float]:
        totals: dict[str, float] = {}
        for batch in itertools.islice(recipe.batches("test", 0, 0, size), batches):
            for name, value in evaluate(state, batch).items():
                totals[name] = totals.get(name, 0.0) + float(value)
        return recipe.figures(totals)

    one, two = figures(4, 3), figures(6, 2)
    assert one["examples"] == two["examples"] == 12
    for name in one:
        assert math.isclose(one[name], two[name], rel_tol=1e-4, abs_tol=1e-6), name
    assert math.isclose(one["perplexity"], math.exp(one["loss"]), rel_tol=1e-9)


@BOTH
def test_a_rehearsal_says_what_it_runs_on(family: Any, tmp_path: Path) -> None:
    recipe = made(family, tmp_path, data={"name": "wikitext2" if family is BertRecipe else "c4", "vocabulary": None})
    with pytest.raises(UserError, match="in data_dir="):
        recipe.dataset()
    assert (
        "this rehearsal runs on the documentation of the Python language" in recipe.dataset(rehearsal=True).announcement
    )
    assert np.all(next(recipe.batches("train", 0, 0, 2))["source" if family is T5Recipe else "ids"] < 500)


@pytest.mark.parametrize(
    ("family", "changes", "text"),
    [
        (BertRecipe, {"model": {"hiden": 3}}, "recipe.model.hiden is not known.*hidden"),
        (BertRecipe, {"data": {"length": 64}}, "recipe.data.length=64 is more than recipe.model.max_positions=32"),
        (
            BertRecipe,
            {"data": {"next_sentence": False}},
            "next_sentence=false and recipe.model.head=pretraining do not fit",
        ),
        (BertRecipe, {"model": {"head": "tokens"}}, "recipe.model.head=tokens; pretraining knows"),
        (T5Recipe, {"optimizer": {"name": "adam"}}, "recipe.optimizer.name"),
        (T5Recipe, {"data": {"length": 4}}, "recipe.data.length=4"),
        (T5Recipe, {"model": {"dtype": "float16"}}, "recipe.model.dtype"),
    ],
)
def test_bad_options_name_the_section(family: Any, changes: dict, text: str) -> None:
    with pytest.raises(UserError, match=text):
        made(family, **changes)


def test_masked_words_need_nothing_else_of_the_weights(tmp_path: Path) -> None:
    """A folder of BertForMaskedLM has no pooler and no answers about next sentences."""
    config = BertConfig(30, 8, 1, 2, 12, max_positions=32, head="masked_words")
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), dict(abstract_params(config)))
    weight_files.write(tmp_path / "model.safetensors", FAMILIES["bert"].to_theirs({"params": params}, config))
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["bert"].config_to(config)))
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(30 - len(SPECIAL)))]))
    sections = {"model": {"vocabulary_size": 9, "hidden": 4, "num_layers": 1, "num_heads": 1, "intermediate": 4}}
    sections["training"] = {"steps": 1}
    data = {"name": "text", "length": 16, "global_batch": 4}
    one = SimpleNamespace(name="bert", init_from=tmp_path, data=data, optimizer={"learning_rate": 0.1}, **sections)
    predict = BertRecipe(one, tmp_path).predictor(tmp_path, None, 2, jax.random.key(0))
    (found,) = predict([{"text": "w1 [MASK] w2"}])
    assert len(found["fills"]) == 1 and found["fills"][0][0]["probability"] > 0
