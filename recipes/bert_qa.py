"""BERT that finds the answer to a question in a text, on the user's own table; the numbers are in conf/recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recipes.bert_tuning import BertTuning
from recipes.recipe import Batch
from zoo import scores
from zoo.data import questions
from zoo.data.tables import Row, Table
from zoo.data.vocabulary import WordPiece
from zoo.models.bert import predict
from zoo.prediction import Predictor
from zoo.training.updates import State, correct, cross_entropy


class BertAnswersRecipe(BertTuning):
    """Fine-tunes a BERT to find the first and the last token of an answer.

    A batch has besides the texts "start", "end": int32 [B].
    """

    head = "answers"
    data_class = questions.QuestionsConfig
    default_task = "answer"
    heads = ("spans",)
    stand_in = ()

    def find_labels(self) -> tuple[str, ...]:
        """None."""
        return ()

    def open(self, rehearsal: bool) -> Table:
        return questions.open_questions(self.data_config, self.data_dir, rehearsal)

    def targets(self, global_batch: int) -> Batch:
        return {name: jax.ShapeDtypeStruct((global_batch,), np.int32) for name in ("start", "end")}

    def texts(self, rows: tuple[Row, ...]) -> list[str]:
        return [str(row[column]) for row in rows for column in (self.data_config.question, self.data_config.context)]

    def arrays(self, vocabulary: WordPiece, rows: tuple[Row, ...]) -> dict[str, np.ndarray]:
        # The test rows come last, and theirs are the windows that scores are of.
        self._windows = questions.windows(self.data_config, vocabulary, rows)
        return questions.arrays(self.data_config, vocabulary, self._windows)

    def judged(self, logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        """All [B]: the mean of both losses; right where both ends are."""
        pairs = [(logits[..., 0], batch["start"]), (logits[..., 1], batch["end"])]
        losses = sum(cross_entropy(*pair) for pair in pairs) / 2
        right = correct(*pairs[0]) * correct(*pairs[1])
        return losses, right, batch.get("weight", jnp.ones_like(right))

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the windows that count."""
        losses, right, weight = self.judged(self.logits(state["params"], batch), batch)
        return {"loss": jnp.sum(weight * losses), "accuracy": jnp.sum(weight * right), "count": jnp.sum(weight)}

    def outputs(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """{"spans": logits of start and end [B, S, 2]}, for `scores`."""
        return {"spans": self.logits(state["params"], batch)}

    scored = ("exact_match", "f1")

    def scores(self, found: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Exact match and F1 of the answers to those questions all of whose windows are there."""
        config, rows = self.data_config, self.dataset().test
        some = [self._windows[number] for number in found["number"]]
        contexts = [str(row[config.context]) for row in rows]
        best = questions.best_answers(config, some, found["spans"], contexts)
        seen = sorted({window.row for window in some})
        meant = [[text for text, _ in questions.answers_of(config, rows[row])] for row in seen]
        return scores.answers([best[row]["answer"] for row in seen], meant)

    def figures(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """Of the whole split: loss and accuracy of a window."""
        count = float(totals["count"])
        return {"loss": totals["loss"] / count, "accuracy": totals["accuracy"] / count, "windows": count}

    def says(self, params: Any, vocabulary: WordPiece, batch: int) -> Predictor:
        """{"answer", "start", "score"}."""
        return predict.answerer(self.model_config, params, vocabulary, self.data_config, batch)
