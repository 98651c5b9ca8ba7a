"""BERT with a head for labels, on the user's own table; the numbers are in conf/recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core.task import Task
from zoo.conversion import variables_from
from zoo.data.tables import RowBatches, Table, TableConfig, encoded, open_table, targets
from zoo.data.vocabulary import WordPiece, read_wordpiece, train_wordpiece
from zoo.errors import UserError
from zoo.models.bert import predict
from zoo.models.bert.config import BertConfig
from zoo.models.bert.convert import SIZES, config_from
from zoo.models.bert.model import Bert, parameter_count
from zoo.models.pretrained import facts_of, sized_as
from zoo.prediction import Predictor
from zoo.training.optimizer import OptimizerConfig, learning_rate, optimizer
from zoo.training.updates import Metrics, State, TrainingConfig, correct, cross_entropy, initial, updated
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig

Batch = dict[str, Any]


class BertClassifyRecipe:
    """Fine-tunes a BERT to label texts, or pairs of texts.

    A batch is {"ids", "types", "mask": int32 [B, S]; "label": int32 [B], float32 [B, K] for several labels, or float32 [B] for a
    number}; for evaluation also "weight": float32 [B]. The state is {"params", "opt_state", "step", "rng"}. With `init_from`
    the sizes are those of the weights there, and so is the vocabulary.
    """

    metrics = ("loss", "accuracy", "learning_rate")
    family = "bert"
    heads = ("classifier", "pooler")

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration and reads which labels there are.

        Raises:
            UserError: an option is unknown or has a value that is not allowed, or the table is damaged.
        """
        self.name, self.data_dir = config.name, Path(data_dir)
        self.init_from = getattr(config, "init_from", None)
        self.data_config = typed(TableConfig, config.data, "recipe.data")
        self.optimizer_config = typed(OptimizerConfig, config.optimizer, "recipe.optimizer")
        self.training = typed(TrainingConfig, config.training, "recipe.training")
        model = typed(BertConfig, {**config.model, "head": "classification"}, "recipe.model")
        self._table: Table | None = None
        self.labels = self._find_labels()
        model = sized_as(self.init_from, model, SIZES, config_from)
        self.model_config = dataclasses.replace(model, num_labels=len(self.labels))
        if self.data_config.length > model.max_positions:
            raise UserError(
                f"recipe.data.length={self.data_config.length} is more than the model's {model.max_positions} positions; shorten it"
            )
        try:
            self.learning_rate = learning_rate(self.optimizer_config, self.training.steps)
            self.optimizer = optimizer(self.optimizer_config, self.training.steps)
        except ValueError as error:
            raise UserError(f"recipe.optimizer: {error}") from None
        self._batches: RowBatches | None = None

    def _find_labels(self) -> tuple[str, ...]:
        config = self.data_config
        if config.kind == "regression":
            return ("value",)
        if config.labels is not None:
            return config.labels
        if not (self.data_dir / config.train).exists():
            # Those of the run that this one starts from, or of what stands in for the table in a rehearsal.
            return tuple(facts_of(self.init_from).get("labels", ("no", "yes")))
        self._table = open_table(config, self.data_dir, rehearsal=False)
        return self._table.labels

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        model = self.model_config
        return (
            f"BERT: {model.num_layers} layers of {model.hidden}, labels {', '.join(self.labels[:8])}, texts of "
            f"{self.data_config.length}, {parameter_count(model):,} parameters"
        )

    def facts(self) -> dict[str, Any]:
        """What is remembered with the weights."""
        return {"family": self.family, "model": dataclasses.asdict(self.model_config), "labels": list(self.labels)}

    def task(self, global_batch: int | None = None) -> Task:
        """One training step on `global_batch` examples (by default the recipe's), for the engine to plan."""
        state = jax.eval_shape(lambda: self.initial_state(jax.random.key(0)))
        batch = self.abstract_batch(global_batch or self.data_config.global_batch)
        return Task(self.step, (state, batch), mode="training", carried={0: 0}, batch=(1,), name=self.name)

    def abstract_batch(self, global_batch: int) -> Batch:
        shape = (global_batch, self.data_config.length)
        batch = {name: jax.ShapeDtypeStruct(shape, np.int32) for name in ("ids", "types", "mask")}
        kind = self.data_config.kind
        labels = (global_batch, len(self.labels)) if kind == "several" else (global_batch,)
        batch["label"] = jax.ShapeDtypeStruct(labels, np.int32 if kind == "classes" else np.float32)
        return batch

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        params_key, rng = jax.random.split(key)
        tokens = jnp.zeros((1, self.data_config.length), jnp.int32)
        params = Bert(self.model_config).init(params_key, tokens, tokens, tokens)["params"]
        return initial(params, self.optimizer, rng)

    def step(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One step of training: the next state, and the metrics (scalars) of this batch before the update."""

        def loss_of(params: Any, key: jax.Array) -> tuple[jax.Array, Metrics]:
            losses, right = self._judged(self.logits(params, batch, key), batch["label"])
            return jnp.mean(losses), {"accuracy": jnp.mean(right)}

        return updated(state, loss_of, self.optimizer, self.learning_rate)

    def logits(self, params: Any, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """One number for each label [B, K]; with a key, as in training."""
        model = Bert(self.model_config, train=key is not None)
        inputs = [batch[name] for name in ("ids", "types", "mask")]
        return model.apply({"params": params}, *inputs, rngs=None if key is None else {"dropout": key})["labels"]

    def _judged(self, logits_BK: jax.Array, label: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The loss and whether it is right, of each example [B]; a number is right within a half."""
        if self.data_config.kind == "classes":
            return cross_entropy(logits_BK, label), correct(logits_BK, label)
        if self.data_config.kind == "regression":
            error_B = logits_BK[:, 0] - label
            return jnp.square(error_B), (jnp.abs(error_B) < 0.5).astype(jnp.float32)
        losses_BK = jax.nn.softplus(logits_BK) - label * logits_BK
        right_B = jnp.all((logits_BK > 0) == (label > 0.5), axis=-1)
        return jnp.mean(losses_BK, axis=-1), right_B.astype(jnp.float32)

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the rows that count; for labels also, of each, {"hits", "said", "meant"} [K]; for numbers, their moments."""
        logits_BK, weight_B = self.logits(state["params"], batch), batch["weight"]
        losses, right = self._judged(logits_BK, batch["label"])
        sums = {"loss": jnp.sum(weight_B * losses), "accuracy": jnp.sum(weight_B * right), "count": jnp.sum(weight_B)}
        if self.data_config.kind == "regression":
            x, y = logits_BK[:, 0], batch["label"]
            moments = {"x": x, "y": y, "xx": x * x, "yy": y * y, "xy": x * y}
            return sums | {name: jnp.sum(weight_B * value) for name, value in moments.items()}
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
        """Of the whole split: loss, accuracy, and F1 (mean over labels, and over all) or the correlation of numbers."""
        count = totals["count"]
        found = {"loss": totals["loss"] / count, "accuracy": totals["accuracy"] / count}
        if self.data_config.kind == "regression":
            mean_x, mean_y = totals["x"] / count, totals["y"] / count
            spread = (totals["xx"] / count - mean_x**2) * (totals["yy"] / count - mean_y**2)
            found["pearson"] = (totals["xy"] / count - mean_x * mean_y) / np.sqrt(max(spread, 1e-12))
        else:
            hits, both = np.asarray(totals["hits"]), np.asarray(totals["said"]) + np.asarray(totals["meant"])
            found["f1"] = float(np.mean(2 * hits / np.maximum(both, 1)))
            found["f1_micro"] = float(2 * hits.sum() / max(both.sum(), 1))
        return {**{name: float(value) for name, value in found.items()}, "examples": float(count)}

    def dataset(self, rehearsal: bool = False) -> Table:
        """Opens the table; its `announcement` is for the user to read.

        Raises:
            UserError: the table or the vocabulary is missing or damaged, or does not fit the model.
        """
        if self._batches is None or self._table is None:
            table = self._table or open_table(self.data_config, self.data_dir, rehearsal)
            vocabulary = self.vocabulary(table if table.rehearsed else None)
            parts = [self.arrays(vocabulary, rows) for rows in (table.train, table.test)]
            self._table, self._batches = table, RowBatches(*parts)
        return self._table

    def arrays(self, vocabulary: WordPiece, rows: Any) -> dict[str, np.ndarray]:
        """Rows of a table as the model reads them."""
        config = self.data_config
        pairs = [str(row[config.pair]) for row in rows] if config.pair else None
        inputs = encoded(config, vocabulary, [str(row[config.text]) for row in rows], pairs)
        return {**inputs, "label": targets(config, self.labels, rows)}

    def vocabulary(self, stand_in: Table | None = None) -> WordPiece:
        """The vocabulary of the weights; where there is none, one learned from the table that stands in."""
        named = self.data_config.vocabulary
        folder = (
            None if self.init_from is None else self.init_from if self.init_from.is_dir() else self.init_from.parent
        )
        places = [Path(named)] if named else [place for place in (folder, self.data_dir) if place]
        place = next((place for place in places if named or (place / "vocab.txt").is_file()), None)
        if place is not None:
            found = read_wordpiece(place, self.data_config.lowercase)
        elif stand_in is not None:
            texts = [str(row[self.data_config.text]) for row in stand_in.train]
            found = train_wordpiece(texts, min(8000, self.model_config.vocabulary_size))
        else:
            raise UserError(
                f"no vocab.txt beside init_from or in data_dir={self.data_dir}; name the vocabulary of the weights with "
                "recipe.data.vocabulary=FILE"
            )
        if found.size > self.model_config.vocabulary_size:
            raise UserError(
                f"the vocabulary {place} has {found.size} tokens and the model {self.model_config.vocabulary_size}; "
                "take the vocabulary that belongs to the weights"
            )
        return found

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, slice_of: tuple[int, int] = (0, 1)
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches of a split from `start_step` on; "train" never ends, "test" ends when all was seen once."""
        self._batches or self.dataset()
        assert self._batches is not None
        return self._batches.batches(split, seed, start_step, global_batch, self.data_config.readers, slice_of)

    def predictor(self, place: Path, task: str | None, batch: int, key: jax.Array) -> Predictor:
        """Records with the columns of the table to labels (task=classify), or texts to embeddings (task=embed).

        Raises:
            UserError: the task is another, or the weights do not fit.
        """
        del key
        vocabulary, length = self.vocabulary(), self.data_config.length
        if task == "embed":
            config = predict.as_encoder(self.model_config)
            params = variables_from(place, self.family, config)["params"]
            return predict.embedder(config, params, vocabulary, length, batch)
        if task not in (None, "classify"):
            raise UserError(f"task={task}; this recipe knows classify and embed")
        params = variables_from(place, self.family, self.model_config)["params"]
        if "classifier" not in params:
            raise UserError(f"init_from={place} has no head for labels; fine-tune it first, and name the run")
        if len(params["classifier"]["bias"]) != len(self.labels):
            raise UserError(
                f"init_from={place} knows {len(params['classifier']['bias'])} labels, and there are {', '.join(self.labels)}; "
                "name them in order with recipe.data.labels=[...]"
            )
        return predict.classifier(self.model_config, params, vocabulary, self.data_config, self.labels, batch)
