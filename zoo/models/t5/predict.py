"""What a T5 writes for texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from zoo.data.vocabulary import SentencePiece
from zoo.errors import UserError
from zoo.models.t5.config import T5Config
from zoo.models.t5.generate import Generation, generate
from zoo.prediction import Predictor, Record, text_of


def method(task: str | None) -> Generation:
    """How a task's text is made: greedy, sample, or beamN.

    Raises:
        UserError: it is none of these.
    """
    beams = re.fullmatch(r"beam([1-9]\d*)", task or "greedy")
    if beams:
        return Generation(beams=int(beams[1]))
    if task not in (None, "greedy", "sample"):
        raise UserError(f"task={task}; this recipe knows greedy, sample and beamN, such as beam4")
    return Generation(sample=task == "sample")


def writer(
    config: T5Config,
    how: Generation,
    params: Any,
    vocabulary: SentencePiece,
    length: int,
    batch: int,
    key: jax.Array,
    source: tuple[str, str] = ("text", ""),
) -> Predictor:
    """{"generated": text}; sources of more than `length` tokens are refused. `source` is its column, and what stands before it."""
    column, prefix = source

    @jax.jit
    def run(params: Any, source: jax.Array, mask: jax.Array, numbers: jax.Array) -> jax.Array:
        keys = jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)
        return generate(config, how, params, source, mask, keys)

    def predict(some: Sequence[Record]) -> list[Record]:
        tokens = np.full((batch, length), config.pad_id, np.int32)
        for row, ids in enumerate(vocabulary.encode([prefix + text_of(record, column) for record in some])):
            if len(ids) + 1 > length:
                raise UserError(
                    f"{len(ids) + 1} tokens are more than {length}; shorten the text or set recipe.data.length"
                )
            tokens[row, : len(ids) + 1] = [*ids, config.end_id]
        # What is drawn for a record depends on its place in the file, not on what is predicted beside it.
        numbers = np.zeros(batch, np.int32)
        numbers[: len(some)] = [getattr(record, "number", row) for row, record in enumerate(some)]
        found = run(params, tokens, (tokens != config.pad_id).astype(np.int32), numbers)
        return [{"generated": vocabulary.decode(ids)} for ids in np.asarray(found)[: len(some)]]

    return predict
