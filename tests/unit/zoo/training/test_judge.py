"""The best evaluation, the end of waiting, and both across a restart."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from zoo.errors import UserError
from zoo.training.judge import Judge, check_metric, score


def test_the_best_is_found_and_waiting_ends() -> None:
    judge = Judge("loss", patience=2)
    assert [judge.improved(step, {"loss": loss}) for step, loss in enumerate((3.0, 2.0, 2.5))] == [True, True, False]
    assert not judge.is_enough and judge.meta()["score"] == -2.5
    assert "score" not in judge.meta()  # what is saved between evaluations was not judged
    assert not judge.improved(3, {"loss": 2.0}) and judge.is_enough and judge.meta()["ended_early"]
    assert (judge.best, judge.best_step) == (2.0, 1)


def test_a_restart_goes_on_waiting() -> None:
    before = Judge("f1", patience=3)
    for step, value in enumerate((0.5, 0.4, 0.3)):
        before.improved(step, {"f1": value})
    meta = before.meta()
    after = Judge.of(SimpleNamespace(best="f1", patience=3), meta)
    assert (after.best, after.best_step, after.waited) == (0.5, 0, 2)
    assert Judge.of(SimpleNamespace(best="loss", patience=3), meta).best is None
    assert score(meta) == 0.3 and score({}) is None


def test_figures_that_are_not_there_are_named() -> None:
    with pytest.raises(UserError, match="recipe.training.best=f2 is no figure of this recipe; it has loss, f1"):
        Judge("f2").improved(1, {"loss": 1.0, "f1": 0.5})
    assert not Judge().improved(1, {"loss": 1.0}) and Judge().meta() == {}


def test_a_figure_is_checked_before_anything_runs() -> None:
    def recipe(best: str | None) -> SimpleNamespace:
        return SimpleNamespace(
            training=SimpleNamespace(best=best),
            evaluate=lambda state, batch: {
                "loss": jnp.sum(batch["weight"] * batch["x"]),
                "count": jnp.sum(batch["weight"]),
            },
            scored=("bleu",),
        )

    batch = {"x": jax.ShapeDtypeStruct((4,), jnp.float32)}
    for fine in (None, "loss", "bleu"):
        check_metric(recipe(fine), {}, batch)
    with pytest.raises(UserError, match="best=f1 is no figure of this recipe; it has loss, bleu"):
        check_metric(recipe("f1"), {}, batch)
