"""Runs of the commands on the text and image networks: restarts are exact, early stopping ends a run."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.test_train import saved
from zoo import train
from zoo.training.checkpoints import locate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SMALL = (
    "recipe.model.hidden=16",
    "recipe.model.num_layers=1",
    "recipe.model.num_heads=2",
    "recipe.model.intermediate=16",
)
TEXT = (
    "recipe.model.vocabulary_size=400",
    "recipe.data.length=16",
    "recipe.data.global_batch=8",
    "recipe.data.readers=0",
)
WORDS = {
    "bert_tiny": (*SMALL, *TEXT),
    "t5_tiny": (*SMALL, *TEXT, "recipe.model.head_size=8"),
    "bert_classify": (*SMALL, *TEXT),
    "bert_tokens": (*SMALL, *TEXT),
    "bert_qa": (*SMALL, *TEXT, "recipe.data.stride=4"),
    "t5_text2text": (*SMALL, *TEXT, "recipe.model.head_size=8", "recipe.data.target_length=8"),
    "pnasnet_cifar10": (
        *("recipe.model.cells=[1]", "recipe.model.filters=4", "recipe.model.stem_width=4"),
        *("recipe.data.image_size=8", "recipe.data.global_batch=8", "recipe.data.readers=0"),
    ),
    "image_finetune": (
        *("recipe.model.blocks=[1,1]", "recipe.model.width=8", "recipe.model.stem=cifar"),
        *("recipe.data.image_size=8", "recipe.data.global_batch=8", "recipe.data.readers=0"),
    ),
}


def ran(command, recipe, *words):
    base = (f"recipe={recipe}", "cluster=emulated", "cluster.n=2", "log_every=1", "eval_every=100")
    return command(train.main, *base, *WORDS[recipe], *words, bare=True)


@pytest.mark.parametrize("recipe", WORDS)
def test_four_steps_are_two_and_two_more_bit_for_bit(recipe, command, lines, tmp_path):
    for folder, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
        result = ran(command, recipe, f"run_dir={tmp_path / folder}", f"data_dir={tmp_path / 'none'}", f"steps={steps}")
        assert result.code == 0, result.err
    assert "resumed after step 2" in result.out and "this rehearsal runs on" in result.out
    assert lines(tmp_path / "whole") == lines(tmp_path / "parts")
    whole, parts = (saved(tmp_path / folder, 4) for folder in ("whole", "parts"))
    assert set(whole) == set(parts)
    for name, value in whole.items():
        np.testing.assert_array_equal(value, parts[name], err_msg=name)


def test_a_run_that_no_longer_improves_ends_early_and_stays_ended(command, lines, tmp_path):
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *(f"word {n},{'ab'[n % 2]}" for n in range(40))]))
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "word", *"0123456789"])
    )
    words = (
        *(
            "recipe=bert_classify",
            "cluster=local",
            *SMALL,
            *TEXT,
            f"data_dir={tmp_path}",
            f"run_dir={tmp_path / 'run'}",
        ),
        *("eval_every=2", "steps=40", "recipe.training.best=f1", "recipe.training.patience=2"),
        # So slow that no evaluation is better than the first.
        *("recipe.optimizer.learning_rate=1e-9", "recipe.optimizer.warmup_steps=0"),
    )
    result = command(train.main, *words, bare=True)
    assert result.code == 0, result.err
    assert "ended early: f1 was no better than" in result.out and "finished 6 steps" in result.out
    assert [line["step"] for line in lines(tmp_path / "run", "test")] == [2, 4, 6]
    assert locate(tmp_path / "run" / "best")[1] == 2 and "is of step 2: " in result.out
    again = command(train.main, *(word for word in words if not word.startswith("steps=")), bare=True)
    assert again.code == 0 and "finished" in again.out and len(lines(tmp_path / "run", "test")) == 3
