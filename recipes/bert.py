"""BERT on text: masked words and the next sentence; the numbers are in conf/recipe."""

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
from zoo.data.pretraining import bert_examples
from zoo.data.text import CACHE, Text, TextConfig, open_text, open_vocabulary
from zoo.data.vocabulary import WordPiece, read_wordpiece
from zoo.errors import UserError
from zoo.models.bert import predict
from zoo.models.bert.config import BertConfig
from zoo.models.bert.convert import SIZES, config_from
from zoo.models.bert.model import Bert, parameter_count
from zoo.models.pretrained import folder_of, remembered, sized_as
from zoo.prediction import Predictor
from zoo.training.optimizer import OptimizerConfig, scheduled
from zoo.training.updates import State, TrainingConfig, correct, cross_entropy, initial
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig

HEADS = ("pretraining", "masked_words")


class BertRecipe(Recipe):
    """Pretrains a BERT.

    A batch is {"ids", "types", "mask": int32 [B, S]; "positions", "words": int32 [B, P], where masked words are and what stood
    there; "word_weight": float32 [B, P], 0 where there are fewer; "next_sentence": int32 [B], 0 if the second text follows};
    for evaluation also "weight": float32 [B]. The state is {"params", "opt_state", "step", "rng"}.
    """

    metrics = ("loss", "accuracy", "next_sentence_accuracy", "learning_rate")
    family = "bert"  # of zoo.conversion, for weights of others

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration; makes no array and reads no file.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        self.name, self.data_dir = config.name, Path(data_dir)
        self.init_from = getattr(config, "init_from", None)
        model = typed(BertConfig, config.model, "recipe.model")
        self.model_config = sized_as(self.init_from, model, SIZES, config_from)
        self.data_config = typed(TextConfig, config.data, "recipe.data")
        self.optimizer_config = typed(OptimizerConfig, config.optimizer, "recipe.optimizer")
        self.training = typed(TrainingConfig, config.training, "recipe.training")
        check(self.model_config, self.data_config)
        self.learning_rate, self.optimizer = scheduled(self.optimizer_config, self.training.steps)
        self._text: Text | None = None
        self._learned: WordPiece | None = None

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        model = self.model_config
        return (
            f"BERT: {model.num_layers} layers of {model.hidden}, {model.num_heads} heads, {model.vocabulary_size:,} tokens, "
            f"texts of {self.data_config.length}, {parameter_count(model):,} parameters"
        )

    def for_processor(self) -> None:
        """Takes the form of products that processors are fast at."""
        self.model_config = dataclasses.replace(self.model_config, products="flat")

    def facts(self) -> dict[str, Any]:
        """What is remembered with the weights."""
        return {"family": self.family, "model": remembered(self.model_config)}

    def abstract_batch(self, global_batch: int) -> Batch:
        length, masked = self.data_config.length, self.data_config.num_masked
        shapes = {"ids": (length,), "types": (length,), "mask": (length,), "positions": (masked,), "words": (masked,)}
        batch = {name: jax.ShapeDtypeStruct((global_batch, *shape), np.int32) for name, shape in shapes.items()}
        batch["word_weight"] = jax.ShapeDtypeStruct((global_batch, masked), np.float32)
        batch["next_sentence"] = jax.ShapeDtypeStruct((global_batch,), np.int32)
        return batch

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        params_key, rng = jax.random.split(key)
        tokens = jnp.zeros((1, self.data_config.length), jnp.int32)
        params = Bert(self.model_config).init(params_key, tokens, tokens, tokens)["params"]
        return initial(params, self.optimizer, rng)

    @property
    def trained(self) -> Training:
        """Both terms are means, over masked words and over examples, so the engine may split the batch."""
        return Training(self._loss, self.optimizer, splits=True, record={"learning_rate": self.learning_rate})

    def _loss(self, params: Any, extra: None, batch: Batch, key: jax.Array) -> Outcome:
        del extra
        found = self._applied(params, batch, key)
        weight = batch["word_weight"]
        words, count = batch["words"], jnp.sum(weight)
        terms = {"words": Mean(jnp.sum(weight * cross_entropy(found["words"], words)), count)}
        metrics = {"accuracy": Mean(jnp.sum(weight * correct(found["words"], words)), count)}
        if "next_sentence" in found:
            answers, examples = batch["next_sentence"], jnp.float32(len(batch["next_sentence"]))
            losses = cross_entropy(found["next_sentence"], answers)
            terms["next_sentence"] = Mean(jnp.sum(losses), examples)
            metrics["next_sentence_accuracy"] = Mean(jnp.sum(correct(found["next_sentence"], answers)), examples)
        return Outcome(terms, metrics)

    def _applied(self, params: Any, batch: Batch, key: jax.Array | None = None) -> dict[str, jax.Array]:
        model = Bert(self.model_config, train=key is not None)
        inputs = [batch[name] for name in ("ids", "types", "mask", "positions")]
        return model.apply({"params": params}, *inputs, rngs=None if key is None else {"dropout": key})

    def evaluate(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """Sums: over masked words {"loss", "accuracy", "count"}, over examples {"next_sentence_accuracy", "examples"}."""
        found = self._applied(state["params"], batch)
        weight = batch["weight"][:, None] * batch["word_weight"]
        sums = {
            "loss": jnp.sum(weight * cross_entropy(found["words"], batch["words"])),
            "accuracy": jnp.sum(weight * correct(found["words"], batch["words"])),
            "count": jnp.sum(weight),
            "examples": jnp.sum(batch["weight"]),
        }
        if "next_sentence" in found:
            right = correct(found["next_sentence"], batch["next_sentence"])
            sums["next_sentence_accuracy"] = jnp.sum(batch["weight"] * right)
        return sums

    def figures(self, totals: Mapping[str, float]) -> dict[str, float]:
        """Of the whole split: loss and perplexity of masked words, and the shares that were right."""
        words, examples = max(totals["count"], 1.0), totals["examples"]
        found = {"loss": totals["loss"] / words, "accuracy": totals["accuracy"] / words}
        found["perplexity"] = math.exp(min(found["loss"], 700.0))
        if "next_sentence_accuracy" in totals:
            found["next_sentence_accuracy"] = totals["next_sentence_accuracy"] / examples
        return found | {"examples": examples}

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
            vocabulary = open_vocabulary(WordPiece, config, self.data_dir, text, size)
            self._learned = vocabulary
            self._text, self._batches = text, bert_examples(config, text, vocabulary, self.data_dir / CACHE)
        return self._text

    def companions(self) -> dict[str, str]:
        """Files to keep beside the checkpoints, by name: whoever uses the weights needs the vocabulary."""
        return {} if self._learned is None else {"vocab.txt": "\n".join(self._learned.words) + "\n"}

    def _vocabulary(self, place: Path) -> WordPiece:
        """The vocabulary beside the weights, else that of the configuration."""
        folder = folder_of(place)
        if self.data_config.vocabulary is None and (folder / "vocab.txt").is_file():
            return read_wordpiece(folder, self.data_config.lowercase)
        text = Text((), (), "")
        return open_vocabulary(WordPiece, self.data_config, self.data_dir, text, self.model_config.vocabulary_size)

    default_task = "fill-mask"

    def predictor(self, place: Path, task: str | None, batch: int, key: jax.Array) -> Predictor:
        """{"text"} to words for each [MASK] (task=fill-mask) or to embeddings (task=embed).

        Raises:
            UserError: the task is another, or the weights or the vocabulary do not fit.
        """
        del key
        if task not in (None, "fill-mask", "embed"):
            raise UserError(f"task={task}; this recipe knows fill-mask and embed")
        head = "encoder" if task == "embed" else "masked_words"  # whatever else the weights have
        config = dataclasses.replace(self.model_config, head=head)
        params = variables_from(place, self.family, config)["params"]
        if task != "embed" and "transform" not in params:
            raise UserError(f"init_from={place} has no head for masked words; ask for task=embed")
        make = predict.embedder if task == "embed" else predict.filler
        return make(config, params, self._vocabulary(place), self.data_config.length, batch)


def check(model: BertConfig, data: TextConfig) -> None:
    """Raises UserError where model and data do not fit together."""
    if model.head not in HEADS:
        raise UserError(f"recipe.model.head={model.head}; pretraining knows {' and '.join(HEADS)}")
    if data.length > model.max_positions:
        raise UserError(
            f"recipe.data.length={data.length} is more than recipe.model.max_positions={model.max_positions}; "
            "set recipe.data.length, or for a new model recipe.model.max_positions"
        )
    if data.next_sentence != (model.head == "pretraining"):
        raise UserError(
            f"recipe.data.next_sentence={str(data.next_sentence).lower()} and recipe.model.head={model.head} do not fit; "
            "next sentences go with pretraining, single texts with masked_words"
        )
