"""A rehearsal that is long enough learns: handwritten digits, on emulated devices."""

from __future__ import annotations

import statistics

import pytest

from zoo import train


@pytest.mark.slow
def test_sixty_steps_on_the_digits_halve_the_loss(command, tmp_path, lines):
    result = command(
        train.main,
        "recipe=resnet50",
        "cluster=emulated",
        "steps=60",
        "recipe.model.blocks=[1,1,1,1]",
        "recipe.model.width=16",
        "recipe.data.image_size=16",
        "recipe.data.global_batch=64",
        "recipe.rehearsal.examples_per_device=16",
        "recipe.optimizer.learning_rate=0.05",
        "recipe.optimizer.warmup_steps=10",
        f"run_dir={tmp_path}",
        bare=True,
    )
    assert result.code == 0, result.err
    losses = [line["loss"] for line in lines(tmp_path)]
    assert len(losses) == 60
    assert statistics.mean(losses[-10:]) < statistics.mean(losses[:10]) / 2
