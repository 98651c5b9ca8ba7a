"""T5 that writes a text for a text, on the user's own table; the numbers are in conf/recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from recipes.recipe import Batch
from recipes.t5 import T5Recipe
from zoo import scores
from zoo.conversion import share_of_tokens, variables_from
from zoo.data.pairs import PairsConfig, arrays, open_pairs
from zoo.data.tables import RowBatches, Table
from zoo.data.vocabulary import SentencePiece, check_belongs, check_not_learned, read_sentencepiece, train_sentencepiece
from zoo.errors import UserError
from zoo.models.pretrained import folder_of
from zoo.models.t5 import predict
from zoo.models.t5.generate import Generation, generate
from zoo.models.t5.model import T5
from zoo.prediction import Predictor
from zoo.training import adapters
from zoo.training.tuning import TuningConfig, tuned
from zoo.training.updates import State, initial

if TYPE_CHECKING:
    from zoo.config import RecipeConfig


class T5Text2TextRecipe(T5Recipe):
    """Fine-tunes a T5; a batch, the loss and the state are those of `T5Recipe`.

    With `init_from` the sizes are those of the weights there, and so is the vocabulary.
    """

    heads = ()
    data_class = PairsConfig
    scored = ("exact_match", "rouge1", "rouge2", "rougeL", "bleu")
    training_class = TuningConfig

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration; reads no file but the description of `init_from`.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        super().__init__(config, data_dir)
        self.pairs: PairsConfig = self.data_config
        layers = max(self.model_config.num_layers, self.model_config.decoder_layers)
        order = ("embedding", *(rf"(encoder|decoder)\.stack\.layers\.{number}" for number in range(layers)))
        params = jax.eval_shape(lambda: self._params(jax.random.key(0)))
        self.optimizer = tuned(self.optimizer, self.training, params, order, ())
        self._table: Table | None = None

    def _params(self, key: jax.Array) -> Any:
        tokens = jnp.zeros((1, 2), jnp.int32)
        params = T5(self.model_config).init(key, tokens, tokens, tokens)["params"]
        return params if self.training.lora is None else adapters.added(params, self.training.lora, key)

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        params_key, rng = jax.random.split(key)
        return initial(self._params(params_key), self.optimizer, rng)

    def facts(self) -> dict[str, Any]:
        """What is remembered with the weights."""
        lora = self.training.lora
        return super().facts() | ({} if lora is None else {"lora": dataclasses.asdict(lora)})

    def abstract_batch(self, global_batch: int) -> Batch:
        shapes = {"source": self.pairs.length, "target": self.pairs.target_length}
        return {name: jax.ShapeDtypeStruct((global_batch, length), np.int32) for name, length in shapes.items()}

    def _applied(self, params: Any, batch: Batch, key: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        return super()._applied(self._merged(params), batch, key)

    def _merged(self, params: Any) -> Any:
        return params if self.training.lora is None else adapters.merged(params, self.training.lora.alpha)

    def outputs(self, state: State, batch: Batch) -> dict[str, jax.Array]:
        """{"written": tokens int32 [B, T]}, the likeliest each time, for `scores`."""
        if not self.pairs.generate:
            return {}
        how = Generation(max_tokens=self.pairs.target_length)
        source = batch["source"]
        mask = (source != self.model_config.pad_id).astype(jnp.int32)
        params = self._merged(state["params"])
        return {"written": generate(self.model_config, how, params, source, mask, state["rng"])}

    def scores(self, found: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Exact match, ROUGE and BLEU (in percent) of what was written for some test rows."""
        if "written" not in found:
            return {}
        vocabulary, rows = self.vocabulary(self._table), self.dataset().test
        said = [vocabulary.decode(ids) for ids in found["written"]]
        meant = [str(rows[number][self.pairs.target]) for number in found["number"]]
        return {"exact_match": scores.exact_share(said, meant), **scores.overlaps(said, meant)}

    def dataset(self, rehearsal: bool = False) -> Any:
        """Opens the table; its `announcement` is for the user to read.

        Raises:
            UserError: the table or the vocabulary is missing or damaged, or does not fit the model.
        """
        if self._batches is None or self._table is None:
            table = open_pairs(self.pairs, self.data_dir, rehearsal)
            vocabulary = self.vocabulary(table)
            self._batches = RowBatches(*(arrays(self.pairs, vocabulary, rows) for rows in (table.train, table.test)))
            self._table = table
        return self._table

    def vocabulary(self, table: Table | None = None) -> SentencePiece:
        """The vocabulary of the weights; where there is none, one learned from the table that stands in."""
        named = self.pairs.vocabulary
        check_not_learned(named)
        folder = None
        if self.init_from is not None:
            folder = folder_of(self.init_from)
        places = [Path(named)] if named else [place for place in (folder, self.data_dir) if place]
        place = next((place for place in places if named or (place / "spiece.model").is_file()), None)
        if place is not None:
            found = read_sentencepiece(place)
        elif table is not None and table.rehearsed:
            texts = [str(row[self.pairs.source]) for row in table.train]
            found = train_sentencepiece(texts, min(2000, self.model_config.vocabulary_size))
        else:
            raise UserError(
                f"no spiece.model beside init_from or in data_dir={self.data_dir}; name the vocabulary of the weights with "
                "recipe.data.vocabulary=FILE"
            )
        check_belongs(found.size, place, self.model_config.vocabulary_size, share_of_tokens(self.init_from))
        return found

    def companions(self) -> dict[str, bytes]:
        """Files to keep beside the checkpoints, by name: whoever uses the weights needs the vocabulary."""
        return {"spiece.model": self.vocabulary(self._table).model}

    def predictor(self, place: Path, task: str | None, batch: int, key: jax.Array) -> Predictor:
        """Records with the source's column to {"generated"}: task=greedy (the default), sample, or beamN.

        Raises:
            UserError: the task is another, or the weights or the vocabulary do not fit.
        """
        how = dataclasses.replace(predict.method(task), max_tokens=self.pairs.target_length)
        params = variables_from(place, self.family, self.model_config)["params"]
        columns = (self.pairs.source, self.pairs.prefix)
        return predict.writer(self.model_config, how, params, self.vocabulary(), self.pairs.length, batch, key, columns)
