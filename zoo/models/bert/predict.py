"""What a BERT says of texts: words for masks, embeddings, labels of texts or words, answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.data import questions, tags
from zoo.data.questions import QuestionsConfig
from zoo.data.tables import TableConfig, encoded
from zoo.data.tags import TagsConfig
from zoo.data.vocabulary import WordPiece
from zoo.errors import UserError
from zoo.models.bert.config import BertConfig
from zoo.models.bert.model import Bert, mean_pooled
from zoo.prediction import Predictor, Record, text_of

INPUTS = ("ids", "types", "mask")
MASK = "[MASK]"
TOP = 5

Inputs = dict[str, np.ndarray]


def filler(config: BertConfig, params: Any, vocabulary: WordPiece, length: int, batch: int) -> Predictor:
    """{"fills": for each [MASK] of the text the likeliest words, [{"word", "probability"}]}."""

    @jax.jit
    def likeliest(params: Any, ids: jax.Array, types: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        found: Any = Bert(config).apply({"params": params}, ids, types, mask)
        shares, words = jax.lax.top_k(jax.nn.softmax(found["words"], axis=-1), TOP)
        return shares, words

    def predict(some: Sequence[Record]) -> list[Record]:
        texts = [text_of(record, "text") for record in some]
        inputs = masked_inputs(texts, vocabulary, length)
        shares, words = applied(lambda *arrays: likeliest(params, *arrays), inputs, batch)
        return [
            {
                "fills": [
                    [
                        {"word": vocabulary.words[int(word)], "probability": round(float(share), 6)}
                        for word, share in zip(words[row, place], shares[row, place], strict=True)
                    ]
                    for place in np.flatnonzero(inputs["ids"][row] == vocabulary.mask_id)
                ]
            }
            for row in range(len(texts))
        ]

    return predict


def masked_inputs(texts: Sequence[str], vocabulary: WordPiece, length: int) -> Inputs:
    """Texts as the model reads them; [MASK] in them is the mask. Raises UserError where a text has none or is too long."""
    rows = []
    for text in texts:
        parts = vocabulary.encode([part.strip() for part in text.split(MASK)])
        ids = [number for part in parts for number in (*part, vocabulary.mask_id)][:-1]
        if len(parts) < 2:
            raise UserError(f"no {MASK} in the text; write it where a word is to be filled in")
        if len(ids) + 2 > length:
            raise UserError(f"{len(ids) + 2} tokens are more than {length}; shorten the text")
        rows.append([vocabulary.class_id, *ids, vocabulary.separator_id])
    found = {name: np.zeros((len(rows), length), np.int32) for name in ("ids", "types", "mask")}
    found["ids"][:] = vocabulary.pad_id
    for number, row in enumerate(rows):
        found["ids"][number, : len(row)] = row
        found["mask"][number, : len(row)] = 1
    return found


def embedder(config: BertConfig, params: Any, vocabulary: WordPiece, length: int, batch: int) -> Predictor:
    """{"embedding": the mean of the tokens' representations, of length 1}."""

    @jax.jit
    def embedded(params: Any, ids: jax.Array, types: jax.Array, mask: jax.Array) -> tuple[jax.Array]:
        hidden: Any = Bert(config).apply({"params": params}, ids, types, mask, method="hidden")
        return (mean_pooled(hidden, mask),)

    def predict(some: Sequence[Record]) -> list[Record]:
        inputs = encoded(TableConfig(1, length), vocabulary, [text_of(record, "text") for record in some], None)
        (vectors,) = applied(lambda *arrays: embedded(params, *arrays), inputs, batch)
        return [{"embedding": [float(value) for value in vector]} for vector in vectors]

    return predict


def classifier(
    config: BertConfig, params: Any, vocabulary: WordPiece, table: TableConfig, labels: Sequence[str], batch: int
) -> Predictor:
    """{"label", "probabilities"} by the labels' names, {"labels", "probabilities"} for several, or {"value"}."""

    @jax.jit
    def judged(params: Any, ids: jax.Array, types: jax.Array, mask: jax.Array) -> tuple[jax.Array]:
        found: Any = Bert(config).apply({"params": params}, ids, types, mask)
        logits = found["labels"]
        if table.kind == "regression":
            return (logits,)
        return (jax.nn.softmax(logits) if table.kind == "classes" else jax.nn.sigmoid(logits),)

    def predict(some: Sequence[Record]) -> list[Record]:
        texts = [text_of(record, table.text) for record in some]
        pairs = None if table.pair is None else [text_of(record, table.pair) for record in some]
        (found,) = applied(lambda *arrays: judged(params, *arrays), encoded(table, vocabulary, texts, pairs), batch)
        return [_named(row, table.kind, labels) for row in found]

    return predict


def _named(values: np.ndarray, kind: str, labels: Sequence[str]) -> Record:
    if kind == "regression":
        return {"value": float(values[0])}
    shares = {name: round(float(value), 6) for name, value in zip(labels, values, strict=True)}
    if kind == "several":
        return {"labels": [name for name, share in shares.items() if share > 0.5], "probabilities": shares}
    return {"label": labels[int(np.argmax(values))], "probabilities": shares}


def applied(function: Callable[..., Any], inputs: Mapping[str, np.ndarray], batch: int) -> list[np.ndarray]:
    """The results for some rows, computed with rows that fill up to `batch`, so that one shape is compiled."""
    count = len(inputs["ids"])
    filled = [np.concatenate([inputs[name], np.repeat(inputs[name][-1:], batch - count, axis=0)]) for name in INPUTS]
    return [np.asarray(jnp.asarray(result))[:count] for result in function(*filled)]


def as_encoder(config: BertConfig) -> BertConfig:
    """The same without a head of its own."""
    return dataclasses.replace(config, head="encoder")


def tagger(
    config: BertConfig, params: Any, vocabulary: WordPiece, table: TagsConfig, labels: Sequence[str], batch: int
) -> Predictor:
    """{"labels": one for each word}; the words may also be a text, which is cut at its spaces."""
    run = _heads(config, params)

    def predict(some: Sequence[Record]) -> list[Record]:
        rows = []
        for record in some:
            if table.words not in record and not isinstance(record.get("text"), str):
                raise UserError(f"no {table.words} or text; the record has {', '.join(record) or 'nothing'}")
            rows.append({table.words: record.get(table.words, record.get("text"))})
        chunks = tags.chunks(table, vocabulary, rows, ())
        logits = in_batches(lambda *inputs: (run(*inputs),), tags.arrays(table, vocabulary, chunks), batch)
        said = [row[tags.firsts(chunk)].argmax(axis=-1) for chunk, row in zip(chunks, logits, strict=True)]
        named = [[labels[int(one)] for one in numbers] for numbers in said]
        found = tags.by_row(chunks, named, len(rows))
        if tags.OUTSIDE in labels:  # what has no letter to read is no part of anything
            empty = [[not ids for ids in vocabulary.encode(tags.listed(row, table.words))] for row in rows]
            found = [
                [tags.OUTSIDE if blank else label for label, blank in zip(*both, strict=True)]
                for both in zip(found, empty, strict=True)
            ]
        return [{"labels": row} for row in found]

    return predict


def answerer(config: BertConfig, params: Any, vocabulary: WordPiece, table: QuestionsConfig, batch: int) -> Predictor:
    """{"answer", "start": its first character in the context, "score"}."""
    run = _heads(config, params)

    def predict(some: Sequence[Record]) -> list[Record]:
        rows = [{column: text_of(one, column) for column in (table.question, table.context)} for one in some]
        windows = questions.windows(table, vocabulary, rows, answered=False)
        spans = in_batches(lambda *inputs: (run(*inputs),), questions.arrays(table, vocabulary, windows), batch)
        return questions.best_answers(table, windows, spans, [row[table.context] for row in rows])

    return predict


def _heads(config: BertConfig, params: Any) -> Callable[..., jax.Array]:
    """A compiled function from the inputs to what the head gives."""
    name = "spans" if config.head == "answers" else "labels"

    @jax.jit
    def run(params: Any, *inputs: jax.Array) -> jax.Array:
        found: Any = Bert(config).apply({"params": params}, *inputs)
        return found[name]

    return lambda *inputs: run(params, *inputs)


def in_batches(function: Callable[..., Any], inputs: Mapping[str, np.ndarray], batch: int) -> np.ndarray:
    """The first result for any number of rows, `batch` at a time."""
    parts = [
        applied(function, {name: array[begin : begin + batch] for name, array in inputs.items()}, batch)[0]
        for begin in range(0, len(inputs["ids"]), batch)
    ]
    return np.concatenate(parts)
