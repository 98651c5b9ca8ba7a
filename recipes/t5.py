"""T5 on text: spans that were taken out; the numbers are in conf/recipe."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core.training import Mean, Outcome, Training
from recipes.recipe import Batch, Recipe
from zoo.conversion import variables_from
from zoo.data.pretraining import t5_examples, t5_lengths
from zoo.data.text import CACHE, Text, TextConfig, open_text, open_vocabulary
from zoo.data.vocabulary import SentencePiece, read_sentencepiece
from zoo.errors import UserError
from zoo.models.pretrained import folder_of, remembered, sized_as
from zoo.models.t5 import predict
from zoo.models.t5.config import T5Config
from zoo.models.t5.convert import SIZES, config_from
from zoo.models.t5.model import T5, parameter_count, shifted
from zoo.prediction import Predictor
from zoo.training.optimizer import OptimizerConfig, scheduled
from zoo.training.updates import State, TrainingConfig, correct, cross_entropy, initial
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig


class T5Recipe(Recipe):
    """Pretrains a T5.

    A batch is {"source": int32 [B, S], "target": int32 [B, T]}; for evaluation also "weight": float32 [B]. The state is
    {"params", "opt_state", "step", "rng"}.
    """

    metrics = ("loss", "accuracy", "learning_rate")
    family = "t5"  # of zoo.conversion, for weights of others
    data_class: type = TextConfig
    training_class: type = TrainingConfig

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration; reads no file but the description of `init_from`.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        self.name, self.data_dir = config.name, Path(data_dir)
        self.init_from = getattr(config, "init_from", None)
        model = typed(T5Config, config.model, "recipe.model")
        self.model_config = sized_as(self.init_from, model, SIZES, config_from)
        self.data_config: Any = typed(self.data_class, config.data, "recipe.data")
        self.optimizer_config = typed(OptimizerConfig, config.optimizer, "recipe.optimizer")
        self.training: Any = typed(self.training_class, config.training, "recipe.training")
        self.learning_rate, self.optimizer = scheduled(self.optimizer_config, self.training.steps)
        self._text: Text | None = None
        self._learned: SentencePiece | None = None

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        model = self.model_config
        return (
            f"T5: {model.num_layers} + {model.decoder_layers} layers of {model.hidden}, {model.num_heads} heads of "
            f"{model.head_size}, {model.vocabulary_size:,} tokens, sources of {self.data_config.length}, "
            f"{parameter_count(model):,} parameters"
        )

    def for_processor(self) -> None:
        """Takes the form of products that processors are fast at."""
        self.model_config = dataclasses.replace(self.model_config, products="flat")

    def facts(self) -> dict[str, Any]:
        """What is remembered with the weights."""
        return {"family": self.family, "model": remembered(self.model_config)}

    def abstract_batch(self, global_batch: int) -> Batch:
        _, source, target = t5_lengths(self.data_config)
        shapes = {"source": (global_batch, source), "target": (global_batch, target)}
        return {name: jax.ShapeDtypeStruct(shape, np.int32) for name, shape in shapes.items()}

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        params_key, rng = jax.random.split(key)
        tokens = jnp.zeros((1, 2), jnp.int32)
        params = T5(self.model_config).init(params_key, tokens, tokens, tokens)["params"]
        return initial(params, self.optimizer, rng)

    @property
    def trained(self) -> Training:
        """The loss is a mean over the target's tokens, so the engine may split the batch."""
        return Training(self._loss, self.optimizer, splits=True, record={"learning_rate": self.learning_rate})

    def _loss(self, params: Any, extra: None, batch: Batch, key: jax.Array) -> Outcome:
        del extra
        logits, weight = self._applied(params, batch, key)
        count = jnp.sum(weight)
        loss = Mean(jnp.sum(weight * cross_entropy(logits, batch["target"])), count)
        return Outcome({"loss": loss}, {"accuracy": Mean(jnp.sum(weight * correct(logits, batch["target"])), count)})

    def _applied(self, params: Any, batch: Batch, key: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Logits [B, T, V] of the target's tokens, and 1 for those that count [B, T]."""
        model, pad = T5(self.model_config, train=key is not None), self.model_config.pad_id
        mask = (batch["source"] != pad).astype(jnp.int32)
        inputs = shifted(batch["target"], pad)
        rngs = None if key is None else {"dropout": key}
        logits = model.apply({"params": params}, batch["source"], mask, inputs, rngs=rngs)
        return logits, (batch["target"] != pad).astype(jnp.float32)

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums over the target's tokens: {"loss", "accuracy", "count"}, and the number of "examples"."""
        logits, weight = self._applied(state["params"], batch)
        weight = batch["weight"][:, None] * weight
        return {
            "loss": jnp.sum(weight * cross_entropy(logits, batch["target"])),
            "accuracy": jnp.sum(weight * correct(logits, batch["target"])),
            "count": jnp.sum(weight),
            "examples": jnp.sum(batch["weight"]),
        }

    def figures(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Of the whole split: loss and perplexity of a token, and the share that was right."""
        tokens = max(totals["count"], 1.0)
        loss = totals["loss"] / tokens
        accuracy = totals["accuracy"] / tokens
        perplexity = math.exp(min(loss, 700.0))
        return {"loss": loss, "accuracy": accuracy, "perplexity": perplexity, "examples": totals["examples"]}

    def dataset(self, rehearsal: bool = False) -> Text:
        """Opens the text; its `announcement` is for the user to read.

        Args:
            rehearsal: where the text is missing, take Python's own documentation in its place and announce it.

        Raises:
            UserError: the text or the vocabulary is missing or damaged, or does not fit the model.
        """
        if self._text is None or self._text.rehearsed < rehearsal:
            config, size = self.data_config, self.model_config.vocabulary_size
            text = open_text(config, self.data_dir, rehearsal)
            vocabulary = open_vocabulary(SentencePiece, config, self.data_dir, text, size)
            for name in ("pad_id", "end_id"):
                if getattr(vocabulary, name) != getattr(self.model_config, name):
                    raise UserError(f"recipe.model.{name} must be {getattr(vocabulary, name)}, as in the vocabulary")
            self._learned = vocabulary
            self._text, self._batches = text, t5_examples(config, text, vocabulary, self.data_dir / CACHE)
        return self._text

    def companions(self) -> dict[str, bytes]:
        """Files to keep beside the checkpoints, by name: whoever uses the weights needs the vocabulary."""
        return {} if self._learned is None else {"spiece.model": self._learned.model}

    default_task = "greedy"

    def predictor(self, place: Path, task: str | None, batch: int, key: jax.Array) -> Predictor:
        """{"text"} to {"generated"}: task=greedy (the default), sample, or beam4 for four beams and beamN for N.

        Raises:
            UserError: the task is another, or the weights or the vocabulary do not fit.
        """
        how = predict.method(task)
        params = variables_from(place, self.family, self.model_config)["params"]
        folder = folder_of(place)
        if self.data_config.vocabulary is None and (folder / "spiece.model").is_file():
            vocabulary = read_sentencepiece(folder)
        else:
            text, size = Text((), (), ""), self.model_config.vocabulary_size
            vocabulary = open_vocabulary(SentencePiece, self.data_config, self.data_dir, text, size)
        return predict.writer(self.model_config, how, params, vocabulary, self.data_config.length, batch, key)
