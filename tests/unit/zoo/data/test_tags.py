"""Words with labels as arrays: first pieces, rows that are too long, and what is said of wrong tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from zoo.data import tags
from zoo.data.vocabulary import SPECIAL, WordPiece
from zoo.errors import UserError

WORDS = WordPiece([*SPECIAL, "new", "york", "##er", "is", "big"])
CONFIG = tags.TagsConfig(2, 6)
ROW = {"tokens": ["New", "Yorker", "is", "big", "zzz"], "labels": ["B-LOC", "I-LOC", "O", "O", "O"]}
LABELS = ("B-LOC", "I-LOC", "O")


def test_labels_stand_at_first_pieces_and_no_word_is_lost() -> None:
    chunks = tags.chunks(CONFIG, WORDS, [ROW], LABELS)
    found = tags.arrays(CONFIG, WORDS, chunks)
    assert found["ids"].tolist() == [[2, 5, 6, 7, 8, 3], [2, 9, 1, 3, 0, 0]]
    assert found["label"].tolist() == [[-1, 0, 1, -1, 2, -1], [-1, 2, 2, -1, -1, -1]]
    assert found["mask"].sum(axis=1).tolist() == [6, 4]
    said = [row[tags.firsts(chunk)] for chunk, row in zip(chunks, found["label"], strict=True)]
    assert tags.by_row(chunks, [[LABELS[one] for one in row] for row in said], 1) == [ROW["labels"]]


def test_tables_of_lists_and_of_text(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("tokens,labels\n" + "new york,B-LOC I-LOC\n" * 3 + '"[""is""]","[""O""]"\n')
    table = tags.open_tags(CONFIG, tmp_path, rehearsal=False)
    assert table.labels == LABELS and len(table.test) == 1 and tags.listed(table.train[-1], "tokens") == ["is"]
    assert tags.open_tags(CONFIG, tmp_path / "none", rehearsal=True).rehearsed
    bad = [{"tokens": ["a", "b"], "labels": ["O"]}] * 3
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps(row) for row in bad))
    with pytest.raises(UserError, match="2 tokens and 1 labels in 'a b'"):
        tags.open_tags(tags.TagsConfig(2, 6, train="train.jsonl"), tmp_path, rehearsal=False)
    with pytest.raises(UserError, match="labels has 'I-LOC', which is no label; known are O, B-LOC"):
        tags.open_tags(tags.TagsConfig(2, 6, labels=("O", "B-LOC")), tmp_path, rehearsal=False)


def test_a_word_longer_than_an_example_is_cut() -> None:
    long = WordPiece([*SPECIAL, "a", "##a"])
    chunks = tags.chunks(CONFIG, long, [{"tokens": ["a" * 9, "a"]}], ())
    assert [len(chunk.pieces[0]) for chunk in chunks] == [4, 1]
    assert np.all(tags.arrays(CONFIG, long, chunks)["label"] == -1)
