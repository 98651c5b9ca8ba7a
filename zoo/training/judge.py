"""Which evaluation was the best so far, and whether waiting for a better one has gone on long enough."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from zoo.errors import UserError
from zoo.training.evaluation import COUNT, means

LOWER_IS_BETTER = ("loss", "perplexity")


@dataclasses.dataclass
class Judge:
    """Judges one evaluation after the other; all processes see the same figures and so say the same.

    Attributes:
        metric: the figure that counts; None: none does, and nothing is judged.
        patience: evaluations in a row that may be no better; None: any number.
        best, best_step: the best value so far and its step.
        waited: evaluations since then.
        last: what the latest evaluation gave, higher is better; None between evaluations.
    """

    metric: str | None = None
    patience: int | None = None
    best: float | None = None
    best_step: int = 0
    waited: int = 0
    last: float | None = None

    @classmethod
    def of(cls, training: Any, meta: Mapping[str, Any]) -> Judge:
        """For a recipe's section `training`, going on from the meta of a checkpoint."""
        judge = cls(getattr(training, "best", None), getattr(training, "patience", None))
        before = meta.get("judged", {})
        if before and before.get("metric") == judge.metric:
            judge.best, judge.best_step, judge.waited = before["best"], before["step"], before["waited"]
        return judge

    def improved(self, step: int, figures: Mapping[str, float]) -> bool:
        """Takes the figures of an evaluation; whether they are the best so far.

        Raises:
            UserError: the figure that counts is not among them.
        """
        if self.metric is None:
            return False
        if self.metric not in figures:
            raise UserError(
                f"recipe.training.best={self.metric} is no figure of this recipe; it has {', '.join(figures)}"
            )
        value = figures[self.metric]
        self.last = -value if self.metric in LOWER_IS_BETTER else value
        better = self.best is None or (value < self.best if self.metric in LOWER_IS_BETTER else value > self.best)
        self.waited = 0 if better else self.waited + 1
        if better:
            self.best, self.best_step = value, step
        return better

    @property
    def is_enough(self) -> bool:
        return self.patience is not None and self.waited >= self.patience

    def meta(self) -> dict[str, Any]:
        """For the meta of a checkpoint that is saved now; "score" only where this very state was evaluated."""
        if self.metric is None:
            return {}
        found: dict[str, Any] = {
            "judged": {"metric": self.metric, "best": self.best, "step": self.best_step, "waited": self.waited}
        }
        found |= {} if self.last is None else {"score": self.last}
        found |= {"ended_early": True} if self.is_enough else {}
        self.last = None
        return found


def check_metric(recipe: Any, state: Any, batch: Mapping[str, Any]) -> None:
    """Raises UserError where the figure by which a checkpoint is the best is none that the recipe's evaluation gives.

    Args:
        state, batch: abstract.
    """
    metric = getattr(getattr(recipe, "training", None), "best", None)
    if metric is None:
        return
    rows = jax.tree.leaves(batch)[0].shape[:1]
    counted = {"weight": jax.ShapeDtypeStruct(rows, np.float32), "number": jax.ShapeDtypeStruct(rows, np.int32)}
    sums = jax.eval_shape(recipe.evaluate, state, {**batch, **counted})
    figures = getattr(recipe, "figures", means)({name: np.ones(leaf.shape) for name, leaf in sums.items()})
    names = [*(name for name in figures if name not in ("examples", COUNT)), *getattr(recipe, "scored", ())]
    if metric not in names:
        raise UserError(f"recipe.training.best={metric} is no figure of this recipe; it has {', '.join(names)}")


def score(meta: Mapping[str, Any]) -> float | None:
    """Of a checkpoint, for choosing the best one; None where it was not evaluated."""
    return meta.get("score")
