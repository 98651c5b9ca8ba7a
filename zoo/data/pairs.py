"""Texts and what is to be written for them, such as summaries or translations, as arrays that a T5 reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.data.tables import Row, Table, TableFiles, announced, is_missing, paragraphs, split_rows
from zoo.data.vocabulary import SentencePiece


@dataclasses.dataclass(frozen=True)
class PairsConfig(TableFiles):
    """A table of texts and targets; longer ones are cut. `length` is that of the source.

    Attributes:
        target_length: tokens of a target.
        source, target: columns.
        prefix: stands before every source, such as "summarize: ".
        generate: at each evaluation write the targets of the test rows, and score them.
    """

    target_length: int = 64
    source: str = "source"
    target: str = "target"
    prefix: str = ""
    generate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target_length < 2:
            raise ValueError(f"target_length={self.target_length}; it must be at least 2")


def open_pairs(config: PairsConfig, data_dir: Path, rehearsal: bool) -> Table:
    """Reads the table.

    Raises:
        UserError: a file or a column is missing, a file is empty.
    """
    place = data_dir / config.train
    if not (rehearsal and is_missing(config, data_dir)):
        texts = (config.source, config.target)
        train, test = split_rows(config, data_dir, texts, texts)
        return Table(train, test, (), announced(train, test, place))
    rows = {}
    for split in ("train", "test"):
        rows[split] = tuple(
            {config.source: text, config.target: " ".join(text.split()[:4])} for text in paragraphs(split)
        )
    said = f"data: no {place}, so this rehearsal runs on paragraphs of Python's documentation (the target is how they begin)"
    return Table(rows["train"], rows["test"], (), said, rehearsed=True)


def arrays(config: PairsConfig, vocabulary: SentencePiece, rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """{"source": int32 [N, length], "target": int32 [N, target_length]}, each with its end token."""
    return {
        "source": _filled(vocabulary, [config.prefix + row[config.source] for row in rows], config.length),
        "target": _filled(vocabulary, [row[config.target] for row in rows], config.target_length),
    }


def _filled(vocabulary: SentencePiece, texts: Sequence[str], length: int) -> np.ndarray:
    found = np.full((len(texts), length), vocabulary.pad_id, np.int32)
    for row, ids in enumerate(vocabulary.encode(texts)):
        ids = [*ids[: length - 1], vocabulary.end_id]
        found[row, : len(ids)] = ids
    return found
