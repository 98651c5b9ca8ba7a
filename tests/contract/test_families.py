"""BERT, T5 and image networks under every strategy: sharded is single-device, in float64 and in float32."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import flowaware_core as fa
from recipes.bert import BertRecipe
from recipes.bert_classify import BertClassifyRecipe
from recipes.bert_qa import BertAnswersRecipe
from recipes.bert_tokens import BertTokensRecipe
from recipes.image_finetune import ImageFinetuneRecipe
from recipes.pnasnet import PNASNetRecipe
from recipes.t5 import T5Recipe
from recipes.t5_text2text import T5Text2TextRecipe
from tests.contract.test_strategies import run
from zoo.config import RecipeConfig, Rehearsal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
BATCH = 16
OPTIMIZER = {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "schedule": "constant"}
BERT = {"vocabulary_size": 64, "hidden": 32, "num_layers": 2, "num_heads": 4, "intermediate": 64, "max_positions": 16}
BERT |= {"dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.2}
T5 = {"vocabulary_size": 64, "hidden": 32, "num_layers": 2, "num_heads": 4, "head_size": 8, "intermediate": 64}
TEXT = {"name": "pydoc", "length": 16, "global_batch": BATCH}
TABLE = {"length": 16, "global_batch": BATCH}
IMAGES = {"name": "digits", "image_size": 8, "global_batch": BATCH}
KINDS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "bert": (BertRecipe, {**BERT, "repeat": "unrolled"}, TEXT),
    "bert, scanned": (BertRecipe, {**BERT, "repeat": "scan"}, TEXT),
    "labels of texts": (BertClassifyRecipe, BERT, {**TABLE, "labels": ["a", "b"]}),
    "labels of words": (BertTokensRecipe, BERT, {**TABLE, "labels": ["O", "B-A"]}),
    "answers": (BertAnswersRecipe, BERT, {**TABLE, "stride": 4}),
    "t5": (T5Recipe, {**T5, "dropout": 0.0, "gated": True, "tied": False, "repeat": "unrolled"}, TEXT),
    "t5 1.0, scanned": (T5Recipe, {**T5, "dropout": 0.0, "gated": False, "tied": True, "repeat": "scan"}, TEXT),
    "text to text": (T5Text2TextRecipe, {**T5, "dropout": 0.0}, {**TABLE, "target_length": 8}),
    "pnasnet": (
        PNASNetRecipe,
        {"cells": [1], "filters": 8, "stem": "cifar", "stem_width": 8, "num_classes": 10},
        IMAGES,
    ),
    "images of one's own": (
        ImageFinetuneRecipe,
        {"blocks": [1, 1], "width": 8, "stem": "cifar", "num_classes": 2},
        IMAGES,
    ),
}


def made(kind: str, dtype: str) -> Any:
    target, model, data = KINDS[kind]
    sections = ({**model, "dtype": dtype}, data, OPTIMIZER, {"steps": 10})
    return target(RecipeConfig(kind, target.__name__, *sections, Rehearsal(3, 1)), Path("nowhere"))


def batches(task: fa.Task, count: int) -> list[dict[str, np.ndarray]]:
    """Numbers that every input takes: tokens and labels are small, weights 0 or 1."""
    random = np.random.default_rng(0)

    def drawn(name: str, leaf: Any) -> np.ndarray:
        if name == "image":
            return random.normal(size=leaf.shape).astype(leaf.dtype)
        most = {"ids": 64, "source": 64, "target": 64, "words": 64, "positions": 16, "label": 2}.get(name, 2)
        return random.integers(0, most, leaf.shape).astype(leaf.dtype)

    return [{name: drawn(name, leaf) for name, leaf in task.args[1].items()} for _ in range(count)]


@functools.cache
def plain(kind: str, dtype: str) -> tuple[list[float], Any]:
    """A run in plain JAX on one device."""
    ours = made(kind, dtype)
    return run(jax.jit(ours.step), jax.jit(ours.initial_state)(jax.random.key(0)), batches(ours.task(), 3))


def through(kind: str, dtype: str, strategy: str, cluster: fa.Cluster) -> tuple[list[float], Any]:
    """The same run, sharded."""
    ours = made(kind, dtype)
    task = ours.task()
    plan = fa.plan(task, cluster, strategy=strategy)
    step = fa.apply(plan, task)
    born = jax.jit(ours.initial_state, out_shardings=step.in_shardings[0])(jax.random.key(0))
    return run(step.compile(optimise=False), born, batches(task, 3), step.in_shardings)


@pytest.mark.parametrize("strategy", ["auto", "data", "fsdp", "tensor"])
@pytest.mark.parametrize("kind", KINDS)
def test_float64_sharded_equals_single_device(kind: str, strategy: str, nested: fa.Cluster, x64: None) -> None:
    losses, gradient = through(kind, "float64", strategy, nested)
    expected, expected_gradient = plain(kind, "float64")
    assert abs(losses[0] - expected[0]) <= 1e-10 * abs(expected[0])
    # Against the largest: some gradients, as of the keys' biases, are zero but for rounding.
    largest = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(expected_gradient))
    for one, two in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected_gradient), strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-10 * largest)
    assert np.allclose(losses, expected, rtol=1e-8, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_begins_with_the_same_loss(kind: str, flat: fa.Cluster) -> None:
    losses, _ = through(kind, "float32", "auto", flat)
    expected, _ = plain(kind, "float32")
    assert abs(losses[0] - expected[0]) <= 1e-5 * abs(expected[0])
