"""BERT and T5 trained for real on WikiText-2 and C4: a batch is learned by heart, and texts better than by their words' shares."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from recipes.bert import BertRecipe
from recipes.t5 import T5Recipe
from zoo.config import compose

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
KINDS: dict[str, Any] = {"bert_tiny": BertRecipe, "t5_tiny": T5Recipe}
# Of the targets: where they stand in a batch, and which of them count.
TARGETS = {
    "bert_tiny": lambda batch: batch["words"][batch["word_weight"] > 0],
    "t5_tiny": lambda batch: batch["target"].ravel(),
}


def made(name, folder, *words):
    config = compose([f"recipe={name}", "cluster=local", f"data_dir={folder / 'text'}", *words])
    return KINDS[name](config.recipe, config.data_dir)


def losses(recipe, batches):
    state: Any = jax.jit(recipe.initial_state)(jax.random.key(0))
    step = jax.jit(recipe.step, donate_argnums=0)
    for batch in batches:
        state, metrics = step(state, batch)
        yield float(metrics["loss"])


@pytest.mark.parametrize("name", KINDS)
def test_one_batch_is_learned_by_heart(name, reference_data):
    words = ["recipe.model.dropout=0", "recipe.data.length=64", "recipe.data.global_batch=8", "recipe.data.readers=0"]
    words += [
        "recipe.optimizer.schedule=constant",
        "recipe.optimizer.warmup_steps=0",
        "recipe.optimizer.weight_decay=0",
    ]
    words += ["recipe.model.attention_dropout=0"] if name == "bert_tiny" else ["recipe.optimizer.learning_rate=0.003"]
    recipe = made(name, reference_data, *words)
    batch = next(recipe.batches("train", 0, 0, 8))
    found = list(losses(recipe, itertools.repeat(batch, 400)))
    print(f"{name}: {found[::50]}, {found[-1]}")
    assert found[0] > 5 and found[-1] < 0.1


@pytest.mark.parametrize(("name", "steps"), [("bert_tiny", 2000), ("t5_tiny", 1500)])
def test_texts_are_known_better_than_by_the_shares_of_their_words(name, steps, reference_data):
    words = ["recipe.model.dropout=0", "recipe.data.length=64", f"recipe.training.steps={steps}"]
    words += ["recipe.optimizer.warmup_steps=100"]
    if name == "bert_tiny":
        words += [
            "recipe.model.attention_dropout=0",
            "recipe.model.head=masked_words",
            "recipe.data.next_sentence=false",
        ]
    recipe = made(name, reference_data, *words)
    counts = np.zeros(recipe.model_config.vocabulary_size)

    def counted(batches):
        for batch in batches:
            np.add.at(counts, TARGETS[name](batch), 1)
            yield batch

    source = recipe.batches("train", 0, 0, recipe.data_config.global_batch)
    found = list(losses(recipe, counted(itertools.islice(source, steps))))
    shares = counts[counts > 0] / counts.sum()
    entropy = float(-np.sum(shares * np.log(shares)))
    print(f"{name}: unigram entropy {entropy:.3f}, every 100th loss {[round(one, 3) for one in found[::100]]}")
    assert np.mean(found[-100:]) < entropy - 0.5
