"""Words with a label each, such as names in a sentence: rows of two lists of equal length, as arrays that a model reads.

A word's label stands at its first piece; other pieces and special tokens have -1. A row of more pieces than fit becomes several
examples, so no word is lost.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.tables import Row, Table, TableFiles, announced, is_missing, paragraphs, split_rows
from zoo.data.vocabulary import WordPiece
from zoo.errors import UserError

NO_LABEL = -1
OUTSIDE = "O"
"""The label of words that are part of nothing."""
STAND_IN = ("B-CAPITAL", "O")
"""Labels of what stands in for a table in a rehearsal."""
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TagsConfig(TableFiles):
    """A table of words and labels.

    Attributes:
        words, tags: columns: a list each (JSON lines, Parquet, or a JSON list in a field), or text with spaces between.
    """

    words: str = "tokens"
    tags: str = "labels"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Words of a row that make one example.

    Attributes:
        row: number of the row.
        first: number of the first word.
        pieces: the tokens of each word.
        labels: a number for each word; empty where there are none.
    """

    row: int
    first: int
    pieces: tuple[tuple[int, ...], ...]
    labels: tuple[int, ...]


def open_tags(config: TagsConfig, data_dir: Path, rehearsal: bool) -> Table:
    """Reads the table.

    Raises:
        UserError: a file or a column is missing, a row has not as many labels as words, or a label is not known.
    """
    place = data_dir / config.train
    if rehearsal and is_missing(config, data_dir):
        return _stand_in(config, place)
    train, test = split_rows(config, data_dir, (config.words, config.tags))
    naming = train if config.test else (*train, *test)
    labels = config.labels or tuple(sorted({tag for row in naming for tag in listed(row, config.tags)}))
    for rows, file in ((train, place), (test, data_dir / (config.test or config.train))):
        for row in rows:
            words, tags = (listed(row, column) for column in (config.words, config.tags))
            if len(words) != len(tags):
                raise UserError(
                    f"{file}: {len(words)} {config.words} and {len(tags)} {config.tags} in {' '.join(words)!r}"
                )
            for tag in tags:
                if tag not in labels:
                    raise UserError(
                        f"{file}: {config.tags} has {tag!r}, which is no label; known are {', '.join(labels)}"
                    )
    return Table(train, test, labels, announced(train, test, place))


def listed(row: Row, column: str) -> list[str]:
    """The parts of a field: of a list, of a JSON list, or of text with spaces between."""
    value = row[column]
    if isinstance(value, str):
        if value.startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                value = value.split()
        else:
            value = value.split()
    if not isinstance(value, list):
        raise UserError(f"{column}={value!r} is neither a list nor text with spaces between")
    return [str(one) for one in value]


def _stand_in(config: TagsConfig, place: Path) -> Table:
    """Words of Python's documentation, labelled by whether they begin with a capital."""
    names = config.labels or STAND_IN
    rows = {}
    for split in ("train", "test"):
        words = [text.split() for text in paragraphs(split)]
        rows[split] = tuple(
            {config.words: some, config.tags: [names[0 if word[0].isupper() else -1] for word in some]}
            for some in words
        )
    said = (
        f"data: no {place}, so this rehearsal runs on words of Python's documentation (do they begin with a capital?)"
    )
    return Table(rows["train"], rows["test"], tuple(names), said, rehearsed=True)


def chunks(config: TagsConfig, vocabulary: WordPiece, rows: Sequence[Row], labels: Sequence[str]) -> list[Chunk]:
    """The examples that rows become, in order; with no `labels`, words alone."""
    numbers = {name: number for number, name in enumerate(labels)}
    found: list[Chunk] = []
    for number, row in enumerate(rows):
        words = listed(row, config.words)
        tags = [numbers[tag] for tag in listed(row, config.tags)] if labels else []
        # A word that the vocabulary makes nothing of still has a label.
        pieces = [tuple(ids) or (vocabulary.unknown_id,) for ids in vocabulary.encode(words)]
        for first, last in _ranges([len(ids) for ids in pieces], config.length - 2):
            cut = tuple(ids[: config.length - 2] for ids in pieces[first:last])
            found.append(Chunk(number, first, cut, tuple(tags[first:last])))
    return found


def _ranges(lengths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Ranges of neighbours, each of at most `room` in all (or one that is longer)."""
    first, taken = 0, 0
    for number, length in enumerate(lengths):
        if taken + length > room and number > first:
            yield first, number
            first, taken = number, 0
        taken += length
    yield first, len(lengths)


def arrays(config: TagsConfig, vocabulary: WordPiece, some: Sequence[Chunk]) -> Arrays:
    """{"ids", "types", "mask", "label": int32 [N, length]} of chunks."""
    found = {name: np.zeros((len(some), config.length), np.int32) for name in ("ids", "types", "mask")}
    found["ids"][:] = vocabulary.pad_id
    found["label"] = np.full((len(some), config.length), NO_LABEL, np.int32)
    for row, chunk in enumerate(some):
        ids = [vocabulary.class_id, *(one for word in chunk.pieces for one in word), vocabulary.separator_id]
        found["ids"][row, : len(ids)] = ids
        found["mask"][row, : len(ids)] = 1
        if chunk.labels:
            found["label"][row, firsts(chunk)] = chunk.labels
    return found


def firsts(chunk: Chunk) -> np.ndarray:
    """Where the first piece of each word stands in the example."""
    lengths = [len(word) for word in chunk.pieces]
    return (1 + np.cumsum([0, *lengths])[:-1]).astype(np.int64)


def by_row(some: Sequence[Chunk], said: Sequence[Any], count: int) -> list[list[str]]:
    """The labels of each of `count` rows, from those of their chunks in order."""
    found: list[list[str]] = [[] for _ in range(count)]
    for chunk, labels in zip(some, said, strict=True):
        found[chunk.row] += list(labels)
    return found
