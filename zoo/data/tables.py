"""Labelled texts of one's own, from JSON lines, CSV, TSV or Parquet, as arrays that a model reads."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import grain
import numpy as np

from zoo.data import pydoc
from zoo.data.corpus import records
from zoo.data.vocabulary import WordPiece
from zoo.errors import UserError

KINDS = ("classes", "several", "regression")
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class TableFiles:
    """Which table, and how its rows become batches.

    Attributes:
        global_batch: examples per step, over all devices.
        length: tokens of an example.
        train, test: files (.jsonl, .csv, .tsv, .parquet, plain or .gz), in data_dir unless they begin with "/"; without
            `test`, every tenth row of `train` tests.
        labels: names of the labels in the order of their numbers; null: those of the training file, sorted.
        vocabulary: vocab.txt, or the folder with it; null: beside the weights of init_from, else in data_dir.
        lowercase: texts are made lower-case and lose their accents; null: as tokenizer_config.json beside the vocabulary says,
            else they are.
        readers: threads that prepare batches; 0 prepares each one when it is asked for.
    """

    global_batch: int
    length: int
    train: str = "train.csv"
    test: str | None = None
    labels: tuple[str, ...] | None = None
    vocabulary: str | None = None
    lowercase: bool | None = None
    readers: int = 2

    def __post_init__(self) -> None:
        for name, least in (("global_batch", 1), ("length", 4), ("readers", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least {least}")
        if self.labels is not None:
            object.__setattr__(self, "labels", tuple(self.labels))
            twice = [name for name in self.labels if self.labels.count(name) > 1]
            if twice:
                raise ValueError(
                    f"labels={', '.join(self.labels)}; {twice[0]} is there {self.labels.count(twice[0])} times"
                )


@dataclasses.dataclass(frozen=True)
class TableConfig(TableFiles):
    """A table of labelled texts; longer texts are cut.

    Attributes:
        text, pair, label: columns: the text, a second text (null: none) and the label.
        kind: "classes" (one of several labels), "several" (any of several labels, as a list or with | between them) or
            "regression" (a number).
    """

    text: str = "text"
    pair: str | None = None
    label: str = "label"
    kind: Literal["classes", "several", "regression"] = "classes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}; allowed are {', '.join(KINDS)}")


Row = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of both splits, the names of their labels, and what the user must be told."""

    train: tuple[Row, ...]
    test: tuple[Row, ...]
    labels: tuple[str, ...]
    announcement: str
    rehearsed: bool = False


def open_table(config: TableConfig, data_dir: Path, rehearsal: bool) -> Table:
    """Reads the table.

    Args:
        config: names it.
        data_dir: where it is.
        rehearsal: where it is missing, paragraphs of Python's documentation take its place.

    Raises:
        UserError: a file or a column is missing, a file is empty, or a label is not one of those allowed.
    """
    place = data_dir / config.train
    if rehearsal and is_missing(config, data_dir):
        return _stand_in(config, place)
    texts = (config.text, *([config.pair] if config.pair else []))
    train, test = split_rows(config, data_dir, (*texts, config.label), texts)
    labels = config.labels or _labels(config, train if config.test else (*train, *test))
    for rows, file in ((train, place), (test, data_dir / (config.test or config.train))):
        for row in rows:
            check_label(config, labels, row, file)
    if config.kind == "classes" and len(labels) < 2:
        raise UserError(f"{place}: every {config.label} is {labels[0]!r}; there is nothing to tell apart")
    return Table(train, test, labels, announced(train, test, place))


def split_rows(
    config: TableFiles, data_dir: Path, columns: tuple[str, ...], texts: tuple[str, ...] = ()
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The rows to train on and those to test on; each has the columns, those of `texts` with a text that is not empty.

    Raises:
        UserError: a file or a column is missing, a value is no text, or a file has too few rows.
    """
    place = data_dir / config.train
    train = _rows(place, columns, texts)
    if config.test is not None:
        return train, _rows(data_dir / config.test, columns, texts)
    test, train = train[::10], tuple(row for number, row in enumerate(train) if number % 10)
    if not train:
        raise UserError(f"{place} has {len(test)} row; give more, so that some train and some test")
    return train, test


def _rows(place: Path, columns: tuple[str, ...], texts: tuple[str, ...]) -> tuple[Row, ...]:
    rows = tuple(records(place, columns))
    for number, row in enumerate(rows, start=1):
        for column in texts:
            value = row[column]
            if not isinstance(value, str):
                raise UserError(f"{place}, record {number}: {column}={value!r} is no text; put texts into this column")
            if not value.strip():
                raise UserError(f"{place}, record {number}: {column} is empty; give it a text, or take the record out")
    return rows


def announced(train: Sequence[Row], test: Sequence[Row], place: Path) -> str:
    """What the user reads about a table."""
    return f"data: {len(train):,} rows to train on and {len(test):,} to test on from {place}"


def is_missing(config: TableFiles, data_dir: Path) -> bool:
    """Whether there is nothing to train on, so that a rehearsal needs something else."""
    return not (data_dir / config.train).exists()


def paragraphs(split: str, most: int = 200) -> list[str]:
    """Paragraphs of Python's documentation, which stand in for a table in a rehearsal."""
    found = (line for document in pydoc.documents(split) for line in document.split("\n") if len(line) > 40)
    return list(itertools.islice(found, most))


def _labels(config: TableConfig, rows: Sequence[Row]) -> tuple[str, ...]:
    if config.kind == "regression":
        return ("value",)
    return tuple(sorted({one for row in rows for one in labels_of(config, row)}))


def labels_of(config: TableConfig, row: Row) -> list[str]:
    """The names of a row's labels."""
    value = row[config.label]
    if config.kind == "several":
        return [str(one) for one in value] if isinstance(value, list) else [one for one in str(value).split("|") if one]
    return [str(value)]


def check_label(config: TableConfig, labels: Sequence[str], row: Row, place: Path) -> None:
    """Raises UserError for a label that is not known, or a value that is no number."""
    if config.kind == "regression":
        try:
            finite = math.isfinite(float(row[config.label]))
        except (TypeError, ValueError):
            finite = False
        if not finite:
            raise UserError(
                f"{place}: {config.label}={row[config.label]!r} is no finite number, as kind=regression wants, beside "
                f"{config.text}={str(row[config.text])[:60]!r}"
            )
        return
    if config.kind == "classes" and isinstance(row[config.label], list):
        raise UserError(f"{place}: {config.label} is a list; recipe.data.kind=several takes several labels")
    if config.kind == "classes" and not labels_of(config, row)[0].strip():
        raise UserError(f"{place}: {config.label} is empty beside {config.text}={str(row[config.text])[:60]!r}")
    for one in labels_of(config, row):
        if one not in labels:
            known = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
            hint = "; recipe.data.kind=regression takes numbers" if all(map(_is_number, labels)) else ""
            raise UserError(f"{place}: {config.label}={one!r} is not a label; known are {known}{hint}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _stand_in(config: TableConfig, place: Path) -> Table:
    """Paragraphs of Python's documentation, labelled by whether they speak of a class."""
    names = config.labels or ("no", "yes")
    rows: dict[str, tuple[Row, ...]] = {}
    for split in ("train", "test"):
        rows[split] = tuple(
            {
                config.text: text,
                config.label: 1.0 if config.kind == "regression" else names[-1 if "class" in text else 0],
            }
            | ({config.pair: text} if config.pair else {})
            for text in paragraphs(split)
        )
    said = (
        f"data: no {place}, so this rehearsal runs on paragraphs of Python's documentation (do they speak of a class?)"
    )
    labels = ("value",) if config.kind == "regression" else tuple(names)
    return Table(rows["train"], rows["test"], labels, said, rehearsed=True)


def encoded(config: TableConfig, vocabulary: WordPiece, texts: Sequence[str], pairs: Sequence[str] | None) -> Arrays:
    """{"ids", "types", "mask": int32 [N, length]} of texts, each between its special tokens; the longer one is cut first."""
    first = vocabulary.encode(texts)
    second = vocabulary.encode(pairs) if pairs is not None else [None] * len(first)
    found = {name: np.zeros((len(first), config.length), np.int32) for name in ("ids", "types", "mask")}
    found["ids"][:] = vocabulary.pad_id
    for row, (one, two) in enumerate(zip(first, second, strict=True)):
        room = config.length - (2 if two is None else 3)
        two_length = 0 if two is None else min(len(two), max(room - len(one), room // 2))
        one = one[: room - two_length]
        ids = [vocabulary.class_id, *one, vocabulary.separator_id]
        border = len(ids)
        ids += [] if two is None else [*two[:two_length], vocabulary.separator_id]
        found["ids"][row, : len(ids)] = ids
        found["types"][row, border : len(ids)] = 1
        found["mask"][row, : len(ids)] = 1
    return found


def targets(config: TableConfig, labels: Sequence[str], rows: Sequence[Row]) -> np.ndarray:
    """Labels by number int32 [N], several as 0 and 1 float32 [N, K], or values float32 [N]."""
    if config.kind == "regression":
        return np.asarray([float(row[config.label]) for row in rows], np.float32)
    numbers = {name: number for number, name in enumerate(labels)}
    if config.kind == "classes":
        return np.asarray([numbers[labels_of(config, row)[0]] for row in rows], np.int32)
    found = np.zeros((len(rows), len(labels)), np.float32)
    for number, row in enumerate(rows):
        found[number, [numbers[one] for one in labels_of(config, row)]] = 1
    return found


class RowBatches:
    """Batches of rows that are held in memory; each a function of (seed, step) alone."""

    def __init__(self, train: Mapping[str, np.ndarray], test: Mapping[str, np.ndarray]) -> None:
        self._splits = {"train": dict(train), "test": dict(test)}

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, readers: int, slice_of: tuple[int, int]
    ) -> Iterator[Arrays]:
        """Batches from `start_step` on; "train" never ends, "test" ends when all was seen once, with "weight" [b]
        and, from 0 on, the "number" [b] of each row."""
        arrays = self._splits[split]
        total = len(next(iter(arrays.values())))
        index, count = slice_of
        assert 0 <= index < count and global_batch % count == 0, (slice_of, global_batch)
        part = slice(index * global_batch // count, (index + 1) * global_batch // count)
        if split == "train":
            order = grain.MapDataset.range(total).seed(seed).shuffle().repeat()
            numbers = order.batch(global_batch, drop_remainder=True, batch_fn=np.asarray)
            source = numbers.map(lambda chosen: {name: array[chosen[part]] for name, array in arrays.items()})
        else:

            def read(step: int) -> Arrays:
                chosen = np.arange(step * global_batch, (step + 1) * global_batch)[part]
                found = {name: array[np.minimum(chosen, total - 1)] for name, array in arrays.items()}
                return {**found, "weight": (chosen < total).astype(np.float32), "number": chosen.astype(np.int32)}

            source = grain.MapDataset.range(-(-total // global_batch)).map(read)
        options = grain.ReadOptions(num_threads=readers, prefetch_buffer_size=2 * readers)
        return iter(source[start_step:].to_iter_dataset(options))
