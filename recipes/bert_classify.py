"""BERT with a head for labels, on the user's own table; the numbers are in conf/recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recipes.bert_tuning import BertTuning
from recipes.recipe import Batch
from zoo.data.tables import Row, Table, TableConfig, encoded, open_table, targets
from zoo.data.vocabulary import WordPiece
from zoo.models.bert import predict
from zoo.prediction import Predictor
from zoo.training.updates import Metrics, State, correct, cross_entropy


class BertClassifyRecipe(BertTuning):
    """Fine-tunes a BERT to label texts, or pairs of texts.

    A batch has besides the texts "label": int32 [B], float32 [B, K] for several labels, or float32 [B] for a number.
    """

    head = "classification"
    data_class = TableConfig
    default_task = "classify"

    def find_labels(self) -> tuple[str, ...]:
        """("value",) for a number."""
        return ("value",) if self.data_config.kind == "regression" else super().find_labels()

    def open(self, rehearsal: bool) -> Table:
        return open_table(self.named(), self.data_dir, rehearsal)

    def targets(self, global_batch: int) -> Batch:
        kind = self.data_config.kind
        shape = (global_batch, len(self.labels)) if kind == "several" else (global_batch,)
        return {"label": jax.ShapeDtypeStruct(shape, np.int32 if kind == "classes" else np.float32)}

    def texts(self, rows: tuple[Row, ...]) -> list[str]:
        return [str(row[self.data_config.text]) for row in rows]

    def arrays(self, vocabulary: WordPiece, rows: tuple[Row, ...]) -> dict[str, np.ndarray]:
        config = self.data_config
        pairs = [str(row[config.pair]) for row in rows] if config.pair else None
        return {**encoded(config, vocabulary, self.texts(rows), pairs), "label": targets(config, self.labels, rows)}

    def judged(self, logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        """All [B]; a number is right within a half."""
        label, weight_B = batch["label"], batch.get("weight", jnp.ones(logits.shape[:1], logits.dtype))
        if self.data_config.kind == "classes":
            return cross_entropy(logits, label), correct(logits, label), weight_B
        if self.data_config.kind == "regression":
            error_B = logits[:, 0] - label
            return jnp.square(error_B), (jnp.abs(error_B) < 0.5).astype(jnp.float32), weight_B
        losses_BK = jax.nn.softplus(logits) - label * logits
        right_B = jnp.all((logits > 0) == (label > 0.5), axis=-1)
        return jnp.mean(losses_BK, axis=-1), right_B.astype(jnp.float32), weight_B

    def step(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """As of `BertTuning`; of numbers without an accuracy."""
        state, metrics = super().step(state, batch)
        if self.data_config.kind == "regression":
            metrics = {name: value for name, value in metrics.items() if name != "accuracy"}
        return state, metrics

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the rows that count; for labels also, of each, {"hits", "said", "meant"} [K]."""
        logits_BK = self.logits(state["params"], batch)
        losses, right, weight_B = self.judged(logits_BK, batch)
        sums = {"loss": jnp.sum(weight_B * losses), "accuracy": jnp.sum(weight_B * right), "count": jnp.sum(weight_B)}
        if self.data_config.kind == "regression":
            return sums
        if self.data_config.kind == "classes":
            numbers = jnp.arange(len(self.labels))
            said = jnp.argmax(logits_BK, axis=1)[:, None] == numbers
            meant = batch["label"][:, None] == numbers
        else:
            said, meant = logits_BK > 0, batch["label"] > 0.5
        counted = weight_B[:, None]
        return sums | {
            "hits": jnp.sum(counted * (said & meant), axis=0),
            "said": jnp.sum(counted * said, axis=0),
            "meant": jnp.sum(counted * meant, axis=0),
        }

    def figures(self, totals: Mapping[str, Any]) -> dict[str, float]:
        """Of the whole split: loss, and of labels accuracy and F1 (mean over labels, and over all)."""
        count = totals["count"]
        found = {"loss": totals["loss"] / count}
        if self.data_config.kind != "regression":
            found["accuracy"] = totals["accuracy"] / count
            hits, both = np.asarray(totals["hits"]), np.asarray(totals["said"]) + np.asarray(totals["meant"])
            there = both > 0  # a label that no row has and none was given says nothing
            found["f1"] = float(np.mean(2 * hits[there] / both[there])) if there.any() else 0.0
            found["f1_micro"] = float(2 * hits.sum() / max(both.sum(), 1))
        return {**{name: float(value) for name, value in found.items()}, "examples": float(count)}

    @property
    def scored(self) -> tuple[str, ...]:
        return ("pearson",) if self.data_config.kind == "regression" else ()

    def outputs(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """{"said", "meant"} [B] of numbers, for `scores`."""
        if self.data_config.kind != "regression":
            return {}
        return {"said": self.logits(state["params"], batch)[:, 0], "meant": batch["label"]}

    def scores(self, found: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The correlation of numbers; 0 where either side is constant."""
        if "said" not in found:
            return {}
        sides = [np.asarray(found[name], np.float64) for name in ("said", "meant")]
        x, y = (side - side.mean() for side in sides)
        spread = float(np.sqrt((x @ x) * (y @ y)))
        return {"pearson": float(x @ y) / spread if spread > 0 else 0.0}

    def says(self, params: Any, vocabulary: WordPiece, batch: int) -> Predictor:
        """{"label", "probabilities"}, {"labels", "probabilities"} for several, or {"value"}."""
        return predict.classifier(self.model_config, params, vocabulary, self.data_config, self.labels, batch)
