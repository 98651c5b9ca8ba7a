"""Labelled texts: columns, labels, pairs, and what is said of what does not fit."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from zoo.data.corpus import records
from zoo.data.tables import RowBatches, TableConfig, encoded, open_table, targets
from zoo.data.vocabulary import SPECIAL, WordPiece
from zoo.errors import UserError

VOCABULARY = WordPiece([*SPECIAL, *(f"w{n}" for n in range(20))])


def table(folder: Path, rows: list[dict], **options: object) -> TableConfig:
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return TableConfig(4, 8, train="t.jsonl", **options)  # type: ignore[arg-type]


def test_labels_are_those_of_the_training_rows_and_every_tenth_row_tests(tmp_path: Path) -> None:
    rows = [{"text": f"w{n}", "label": "bad" if n % 3 else "good"} for n in range(20)]
    config = table(tmp_path, rows)
    found = open_table(config, tmp_path, rehearsal=False)
    assert found.labels == ("bad", "good") and (len(found.train), len(found.test)) == (18, 2)
    assert list(targets(config, found.labels, found.test)) == [1, 0]


@pytest.mark.parametrize(
    ("value", "what"),
    [(5, "=5 is no text"), (["w1"], r"=\['w1'\] is no text"), ("", " is empty"), (" \t", " is empty")],
)
def test_what_is_no_text_is_named_with_its_record(value: object, what: str, tmp_path: Path) -> None:
    rows = [{"text": "w1", "label": "a"}, {"text": "w2", "label": "b"}, {"text": value, "label": "a"}]
    with pytest.raises(UserError, match=rf"t\.jsonl, record 3: text{what}"):
        open_table(table(tmp_path, rows), tmp_path, rehearsal=False)
    swapped = [{"text": "w1", "other": row["text"], "label": row["label"]} for row in rows]
    with pytest.raises(UserError, match=rf"t\.jsonl, record 3: other{what}"):
        open_table(table(tmp_path, swapped, pair="other"), tmp_path, rehearsal=False)


def test_several_labels_and_numbers(tmp_path: Path) -> None:
    rows = [{"text": "w1", "label": one} for one in ("a|b", ["c"], "", "b")]
    config = table(tmp_path, rows, kind="several", test="t.jsonl")
    found = open_table(config, tmp_path, rehearsal=False)
    np.testing.assert_array_equal(
        targets(config, found.labels, found.test), [[1, 1, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]]
    )
    config = table(tmp_path, [{"text": "w1", "label": "1.5"}] * 2, kind="regression", test="t.jsonl")
    found = open_table(config, tmp_path, rehearsal=False)
    np.testing.assert_array_equal(targets(config, found.labels, found.test), np.float32([1.5, 1.5]))


def test_texts_and_pairs_stand_between_special_tokens() -> None:
    config = TableConfig(4, 8)
    one = encoded(config, VOCABULARY, ["w0 w1", "w2 " * 9], None)
    np.testing.assert_array_equal(one["ids"], [[2, 5, 6, 3, 0, 0, 0, 0], [2, 7, 7, 7, 7, 7, 7, 3]])
    np.testing.assert_array_equal(one["mask"].sum(1), [4, 8])
    two = encoded(config, VOCABULARY, ["w0", "w2 " * 9], ["w1 w1", "w3 " * 9])
    np.testing.assert_array_equal(two["ids"], [[2, 5, 3, 6, 6, 3, 0, 0], [2, 7, 7, 7, 3, 8, 8, 3]])
    np.testing.assert_array_equal(two["types"], [[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1]])


def test_batches_are_resumed_exactly_and_the_test_split_ends() -> None:
    rows = {"x": np.arange(10)}
    made = RowBatches(rows, rows)
    whole = list(itertools.islice(made.batches("train", 3, 0, 4, 0, (0, 1)), 5))
    again = list(itertools.islice(made.batches("train", 3, 2, 4, 2, (0, 1)), 3))
    for a, b in zip(whole[2:], again, strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])
    assert sorted(np.concatenate([batch["x"] for batch in whole])[:10]) == list(range(10))
    tested = list(made.batches("test", 0, 0, 4, 0, (1, 2)))
    assert [list(batch["weight"]) for batch in tested] == [[1, 1], [1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("rows", "options", "text"),
    [
        ([{"txt": "a", "label": "b"}], {}, "record 1, has no column text; it has txt, label"),
        ([{"text": "a", "label": "b"}] * 2, {"labels": ("c",)}, "label='b' is not a label; known are c"),
        ([{"text": "a", "label": "b"}] * 2, {"kind": "regression"}, "label='b' is no finite number"),
        ([{"text": "a", "label": "nan"}] * 2, {"kind": "regression"}, "label='nan' is no finite number"),
        ([{"text": "a", "label": "inf"}] * 2, {"kind": "regression"}, "label='inf' is no finite number"),
        ([{"text": "a", "label": "b"}, {"text": "c", "label": " "}] * 9, {}, "label is empty beside text='c'"),
        ([{"text": "a", "label": "b"}] * 2, {}, "every label is 'b'; there is nothing to tell apart"),
        ([{"text": None, "label": "b"}] * 2, {}, "record 1, has no value for text; it has label"),
        ([{"text": "a", "label": "b"}], {}, "has 1 row; give more"),
        ([], {}, "is empty"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, rows: list, options: dict, text: str) -> None:
    with pytest.raises(UserError, match=text):
        open_table(table(tmp_path, rows, **options), tmp_path, rehearsal=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text,label\n", "has no records"),
        ('text,label\n"a,b\nc,d\n', "fewer fields than the 2 columns of the header; a quote may not be closed"),
        ("text,label\na\n", "line 2, has fewer fields"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(UserError, match=said):
        list(records(tmp_path / "t.csv", ("text",)))


def test_the_mark_that_spreadsheets_write_is_no_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,label\na,b\n", encoding="utf-8-sig")
    assert list(records(tmp_path / "t.csv", ("text",))) == [{"text": "a", "label": "b"}]


def test_a_rehearsal_has_a_table_of_its_own(tmp_path: Path) -> None:
    found = open_table(TableConfig(4, 8), tmp_path, rehearsal=True)
    assert "this rehearsal runs on paragraphs of Python's documentation" in found.announcement
    assert found.rehearsed and {row["label"] for row in found.train} == {"no", "yes"}
    with pytest.raises(UserError, match="train.csv does not exist"):
        open_table(TableConfig(4, 8), tmp_path, rehearsal=False)


def test_every_name_of_a_split_table_is_known_and_a_wrong_row_is_placed(tmp_path: Path) -> None:
    config = table(tmp_path, [{"text": "x", "label": "a"}, {"text": "y", "label": "b"}])
    assert open_table(config, tmp_path, rehearsal=False).labels == ("a", "b")
    (tmp_path / "other.jsonl").write_text('{"text": "z", "label": "c"}')
    config = table(tmp_path, [{"text": "x", "label": "a"}, {"text": "y", "label": "b"}], test="other.jsonl")
    with pytest.raises(UserError, match=r"other.jsonl: label='c' is not a label; known are a, b"):
        open_table(config, tmp_path, rehearsal=False)


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text,text,label\na,b,c\n")
    with pytest.raises(UserError, match=r"t.csv has the column 'text' 2 times; each name once"):
        list(records(tmp_path / "t.csv", ("text",)))
