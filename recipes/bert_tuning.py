"""What the fine-tunings of BERT share: a table of one's own, the sizes and vocabulary of the weights, one step of training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from recipes.recipe import Batch, Recipe
from zoo.conversion import SETTINGS, TOKENIZER, is_foreign, share_of_tokens, variables_from
from zoo.data.tables import Row, RowBatches
from zoo.data.vocabulary import WordPiece, check_belongs, check_not_learned, read_wordpiece, train_wordpiece
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.models.bert import predict
from zoo.models.bert.config import BertConfig
from zoo.models.bert.convert import SIZES, config_from
from zoo.models.bert.model import Bert, parameter_count
from zoo.models.pretrained import facts_of, folder_of, read_description, remembered, sized_as
from zoo.prediction import Predictor
from zoo.training import adapters
from zoo.training.optimizer import OptimizerConfig, scheduled
from zoo.training.tuning import TuningConfig, tuned
from zoo.training.updates import Metrics, State, initial, updated
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig


# Which recipe uses which kind of head.
RECIPES = {"classification": "bert_classify", "tokens": "bert_tokens", "answers": "bert_qa"}


class BertTuning(Recipe):
    """Fine-tunes a BERT with a head; a recipe says which head, what a batch holds besides the texts, and what the loss is.

    A batch is {"ids", "types", "mask": int32 [B, S]} and what `targets` adds; for evaluation also "weight": float32 [B] and
    "number": int32 [B]. The state is {"params", "opt_state", "step", "rng"}. With `init_from` the sizes are those of the weights
    there, and so is the vocabulary.
    """

    metrics: tuple[str, ...] = ("loss", "accuracy", "learning_rate")
    family = "bert"
    heads = ("classifier", "pooler")
    head: str
    stand_in: tuple[str, ...] = ("no", "yes")  # labels of a rehearsal that has no table
    data_class: type
    default_task: str

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration and reads which labels there are.

        Raises:
            UserError: an option is unknown or has a value that is not allowed, or the table is damaged.
        """
        self.name, self.data_dir = config.name, Path(data_dir)
        self.init_from = getattr(config, "init_from", None)
        self.data_config = typed(self.data_class, config.data, "recipe.data")
        self.optimizer_config = typed(OptimizerConfig, config.optimizer, "recipe.optimizer")
        self.training = typed(TuningConfig, config.training, "recipe.training")
        model = typed(BertConfig, {**config.model, "head": self.head}, "recipe.model")
        self._table: Any = None
        self._predicts = getattr(config, "predicts", False)
        self.labels = self.find_labels()
        model = sized_as(self.init_from, model, SIZES, config_from)
        self.model_config = dataclasses.replace(model, num_labels=max(len(self.labels), 1))
        if self.data_config.length > model.max_positions:
            raise UserError(
                f"recipe.data.length={self.data_config.length} is more than the model's {model.max_positions} positions; shorten it"
            )
        self.learning_rate, inner = scheduled(self.optimizer_config, self.training.steps)
        order = ("embeddings", *(rf"encoder\.layers\.{number}" for number in range(model.num_layers)))
        params = jax.eval_shape(lambda: self._params(jax.random.key(0)))
        self.optimizer = tuned(inner, self.training, params, order, self.heads[:1])

    def _params(self, key: jax.Array) -> Any:
        tokens = jnp.zeros((1, self.data_config.length), jnp.int32)
        params = Bert(self.model_config).init(key, tokens, tokens, tokens)["params"]
        return params if self.training.lora is None else adapters.added(params, self.training.lora, key)

    def find_labels(self) -> tuple[str, ...]:
        """The names of the labels: from the configuration; of the weights, where these predict; else from the table."""
        if self.data_config.labels is not None:
            return self.data_config.labels
        known = tuple(facts_of(self.init_from).get("labels", ()))
        if self._predicts:
            return known  # a table says how it would be learned, not what the outputs of these weights mean
        if not (self.data_dir / self.data_config.train).exists():
            return known or self.stand_in
        self._table = self.open(rehearsal=False)
        # The same names in the order that the head of the weights has them.
        return known if sorted(known) == sorted(self._table.labels) else self._table.labels

    def named(self) -> Any:
        """The section `data` with the labels that are known by now."""
        labels = getattr(self, "labels", ())
        return dataclasses.replace(self.data_config, labels=labels) if labels else self.data_config

    def open(self, rehearsal: bool) -> Any:
        """The table: `train`, `test` (rows), `labels`, `announcement`, `rehearsed`."""
        raise NotImplementedError

    def arrays(self, vocabulary: WordPiece, rows: tuple[Row, ...]) -> dict[str, np.ndarray]:
        """Rows of a table as the model reads them, with their targets."""
        raise NotImplementedError

    def targets(self, global_batch: int) -> Batch:
        """The shapes of what a batch holds besides the texts."""
        raise NotImplementedError

    def judged(self, logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
        """(losses, whether right, how much each counts), all of one shape, of what the head gives for a batch."""
        raise NotImplementedError

    def texts(self, rows: tuple[Row, ...]) -> list[str]:
        """All text of some rows, to learn a vocabulary from in a rehearsal."""
        raise NotImplementedError

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        model = self.model_config
        labels = f"labels {', '.join(self.labels[:8])}, " if self.labels else ""
        return (
            f"BERT: {model.num_layers} layers of {model.hidden}, {labels}texts of {self.data_config.length}, "
            f"{parameter_count(model):,} parameters"
        )

    def for_processor(self) -> None:
        """Takes the form of products that processors are fast at."""
        self.model_config = dataclasses.replace(self.model_config, products="flat")

    def facts(self) -> dict[str, Any]:
        """What is remembered with the weights."""
        lora = self.training.lora
        found = {"family": self.family, "model": remembered(self.model_config), "labels": list(self.labels)}
        return found | ({} if lora is None else {"lora": dataclasses.asdict(lora)})

    def abstract_batch(self, global_batch: int) -> Batch:
        shape = (global_batch, self.data_config.length)
        return {name: jax.ShapeDtypeStruct(shape, np.int32) for name in predict.INPUTS} | self.targets(global_batch)

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        params_key, rng = jax.random.split(key)
        return initial(self._params(params_key), self.optimizer, rng)

    def step(self, state: State, batch: Batch) -> tuple[State, Metrics]:
        """One step of training: the next state, and the metrics (scalars) of this batch before the update."""

        def loss_of(params: Any, key: jax.Array) -> tuple[jax.Array, Metrics]:
            losses, right, weight = self.judged(self.logits(params, batch, key), batch)
            count = jnp.maximum(jnp.sum(weight), 1.0)
            return jnp.sum(weight * losses) / count, {"accuracy": jnp.sum(weight * right) / count}

        return updated(state, loss_of, self.optimizer, self.learning_rate)

    def logits(self, params: Any, batch: Batch, key: jax.Array | None = None) -> jax.Array:
        """What the head gives; with a key, as in training."""
        if self.training.lora is not None:
            params = adapters.merged(params, self.training.lora.alpha)
        model = Bert(self.model_config, train=key is not None)
        inputs = [batch[name] for name in predict.INPUTS]
        found = model.apply({"params": params}, *inputs, rngs=None if key is None else {"dropout": key})
        return found["spans" if self.head == "answers" else "labels"]

    def dataset(self, rehearsal: bool = False) -> Any:
        """Opens the table; its `announcement` is for the user to read.

        Raises:
            UserError: the table or the vocabulary is missing or damaged, or does not fit the model.
        """
        if self._batches is None or self._table is None:
            table = self._table or self.open(rehearsal)
            vocabulary = self.vocabulary(table if table.rehearsed else None)
            parts = [self.arrays(vocabulary, rows) for rows in (table.train, table.test)]
            self._table, self._batches = table, RowBatches(*parts)
        return self._table

    def vocabulary(self, stand_in: Any = None) -> WordPiece:
        """The vocabulary of the weights; where there is none, one learned from the table that stands in."""
        place = self._vocabulary_place()
        if place is not None:
            found = read_wordpiece(place, self.data_config.lowercase)
        elif stand_in is not None:
            found = train_wordpiece(self.texts(stand_in.train), min(8000, self.model_config.vocabulary_size))
        else:
            raise UserError(
                f"no vocab.txt beside init_from or in data_dir={self.data_dir}; name the vocabulary of the weights with "
                "recipe.data.vocabulary=FILE"
            )
        check_belongs(found.size, place, self.model_config.vocabulary_size, share_of_tokens(self.init_from))
        return found

    def _vocabulary_place(self) -> Path | None:
        """The file or folder that the vocabulary is in; None where there is none."""
        named = self.data_config.vocabulary
        check_not_learned(named)
        folder = None
        if self.init_from is not None:
            folder = folder_of(self.init_from)
        places = [Path(named)] if named else [place for place in (folder, self.data_dir) if place]
        return next((place for place in places if named or (place / "vocab.txt").is_file()), None)

    def companions(self) -> dict[str, str]:
        """Files to keep beside the checkpoints, by name, for whoever uses the weights: the vocabulary and what is beside it."""
        vocabulary, place = self.vocabulary(self._table), self._vocabulary_place()
        folder = place if place is None or place.is_dir() else place.parent
        beside = {name: folder / name for name in SETTINGS if folder is not None and (folder / name).is_file()}
        found = {name: file.read_text() for name, file in beside.items()}
        said = json.loads(found.get(TOKENIZER, "{}"))
        if said.get("do_lower_case", True) != vocabulary.lowercase:
            found.pop("tokenizer.json", None)  # it would do otherwise
        said |= {"do_lower_case": vocabulary.lowercase}
        said = {"tokenizer_class": "BertTokenizer", "model_max_length": self.model_config.max_positions} | said
        return found | {"vocab.txt": "\n".join(vocabulary.words) + "\n", TOKENIZER: json.dumps(said, indent=2) + "\n"}

    def predictor(self, place: Path, task: str | None, batch: int, key: jax.Array) -> Predictor:
        """Records with the columns of the table to what the head says of them, or texts to embeddings (task=embed).

        Raises:
            UserError: the task is another, or the weights do not fit.
        """
        del key
        if task not in (None, self.default_task, "embed"):
            raise UserError(f"task={task}; this recipe knows {self.default_task} and embed")
        vocabulary, length = self.vocabulary(), self.data_config.length
        if task == "embed":
            config = predict.as_encoder(self.model_config)
            params = variables_from(place, self.family, config)["params"]
            return predict.embedder(config, params, vocabulary, length, batch)
        kind = self.other_kind(place)
        if kind:
            raise UserError(
                f"init_from={place} has a head for {kind}: use recipe={RECIPES[kind]}, or fine-tune these weights for this one"
            )
        head = self.heads[0]
        try:
            params = variables_from(place, self.family, self.model_config)["params"]
        except UserError:  # a head of another size is better told by its labels
            self._check_labels(place, weight_files.read(place).get(f"{head}.bias") if is_foreign(place) else None)
            raise
        missing = [name for name in self.heads if name not in params]
        if missing:
            raise UserError(
                f"init_from={place} has no head for this ({missing[0]}); fine-tune it first, and name the run"
            )
        self._check_labels(place, params[head]["bias"])
        return self.says(params, vocabulary, batch)

    def _check_labels(self, place: Path, bias: Any) -> None:
        """Raises UserError where nothing names the labels, each its own way, or there are more or fewer than the head's outputs.

        Args:
            bias: of the head; None where it is not known.
        """
        ask = "name them in order with recipe.data.labels=[...]"
        if self.stand_in and not 0 < len(self.labels) == len(set(self.labels)):
            raise UserError(f"init_from={place} does not say what its labels are called; {ask}")
        if self.labels and bias is not None and len(bias) != len(self.labels):
            raise UserError(
                f"init_from={place} knows {len(bias)} labels, and there are {', '.join(self.labels)}; {ask}"
            )

    def other_kind(self, place: Path) -> str:
        """What the head of some weights is for, where they say that it is for another recipe; else empty."""
        described = folder_of(place) / "config.json"
        if described.is_file():
            kind = read_description(described, config_from).head
        else:
            kind = facts_of(place).get("model", {}).get("head", "")
        return kind if kind in RECIPES and kind != self.head else ""

    def says(self, params: Any, vocabulary: WordPiece, batch: int) -> Predictor:
        """The predictor of the head, for parameters that fit."""
        raise NotImplementedError
