"""BERT with a label for each word, on the user's own table; the numbers are in conf/recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recipes.bert_tuning import BertTuning
from recipes.recipe import Batch
from zoo import scores
from zoo.data import tags
from zoo.data.tables import Row, Table
from zoo.data.vocabulary import WordPiece
from zoo.models.bert import predict
from zoo.prediction import Predictor
from zoo.training.updates import State, correct, cross_entropy


class BertTokensRecipe(BertTuning):
    """Fine-tunes a BERT to label words; a word's label is that of its first piece.

    A batch has besides the texts "label": int32 [B, S], -1 where none counts.
    """

    head = "tokens"
    data_class = tags.TagsConfig
    default_task = "tag"
    heads = ("classifier",)
    stand_in = tags.STAND_IN

    def open(self, rehearsal: bool) -> Table:
        return tags.open_tags(self.named(), self.data_dir, rehearsal)

    def targets(self, global_batch: int) -> Batch:
        return {"label": jax.ShapeDtypeStruct((global_batch, self.data_config.length), np.int32)}

    def texts(self, rows: tuple[Row, ...]) -> list[str]:
        return [" ".join(tags.listed(row, self.data_config.words)) for row in rows]

    def arrays(self, vocabulary: WordPiece, rows: tuple[Row, ...]) -> dict[str, np.ndarray]:
        # The test rows come last, and theirs are the chunks that scores are of.
        self._chunks = tags.chunks(self.data_config, vocabulary, rows, self.labels)
        return tags.arrays(self.data_config, vocabulary, self._chunks)

    def judged(self, logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        """All [B, S]."""
        label_BS = batch["label"]
        weight_BS = (label_BS >= 0).astype(logits.dtype)
        if "weight" in batch:
            weight_BS = weight_BS * batch["weight"][:, None]
        return cross_entropy(logits, label_BS), correct(logits, label_BS), weight_BS

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the words that count."""
        losses, right, weight = self.judged(self.logits(state["params"], batch), batch)
        return {"loss": jnp.sum(weight * losses), "accuracy": jnp.sum(weight * right), "count": jnp.sum(weight)}

    def outputs(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """{"said": the label of each token, int32 [B, S]}, for `scores`."""
        return {"said": jnp.argmax(self.logits(state["params"], batch), axis=-1).astype(jnp.int32)}

    scored = ("precision", "recall", "f1")

    def scores(self, found: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Precision, recall and F1 of whole entities, from the outputs of some test rows."""
        some = [self._chunks[number] for number in found["number"]]
        said = [self._named(row[tags.firsts(chunk)]) for chunk, row in zip(some, found["said"], strict=True)]
        meant = [self._named(chunk.labels) for chunk in some]
        count = 1 + max(chunk.row for chunk in some)
        return scores.entities(tags.by_row(some, said, count), tags.by_row(some, meant, count))

    def _named(self, numbers: Sequence[Any]) -> list[str]:
        return [self.labels[int(number)] for number in numbers]

    def figures(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """Of the whole split: loss and accuracy of a word."""
        count = max(float(totals["count"]), 1.0)
        return {"loss": totals["loss"] / count, "accuracy": totals["accuracy"] / count, "words": count}

    def says(self, params: Any, vocabulary: WordPiece, batch: int) -> Predictor:
        """{"labels": one for each word}."""
        return predict.tagger(self.model_config, params, vocabulary, self.data_config, self.labels, batch)
