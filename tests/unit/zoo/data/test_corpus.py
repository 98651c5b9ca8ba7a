"""Every kind of file gives the same documents, and damage is named with its place."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from zoo.data.corpus import documents, records
from zoo.errors import UserError

TEXTS = ['One, "two".', "Three\nfour."]


def test_tables_give_their_column(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"text": text, "id": number}) for number, text in enumerate(TEXTS))
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "a.csv").write_text('id,text\n0,"One, ""two""."\n1,"Three\nfour."\n')
    (tmp_path / "a.tsv").write_text('id\ttext\n0\t"One, ""two""."\n1\t"Three\nfour."\n')
    for name in ("a.jsonl", "a.json.gz", "a.csv", "a.tsv"):
        assert list(documents(tmp_path / name)) == TEXTS, name


@pytest.mark.smoke  # the Parquet library must go with the NumPy of the lane
def test_parquet_gives_its_column(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"body": TEXTS}), tmp_path / "a.parquet")
    assert list(documents(tmp_path / "a.parquet", "body")) == TEXTS
    with pytest.raises(UserError, match="record 1, has no column text; it has body"):
        list(documents(tmp_path / "a.parquet"))


def test_a_blank_line_ends_a_document_of_plain_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n\n\nthree\n")
    assert list(documents(tmp_path / "a.txt")) == ["one\ntwo", "three"]


def test_wikitext_is_cut_at_titles(reference_data: Path, tmp_path: Path) -> None:
    (tmp_path / "w.raw").write_text(" = One = \n \n First . \n = = Part = = \n Second . \n = Two = \n Third . \n")
    assert list(documents(tmp_path / "w.raw")) == ["= One =\nFirst .\n= = Part = =\nSecond .", "= Two =\nThird ."]
    found = list(documents(reference_data / "text/wikitext-2/wiki.train.first1MB.raw"))
    assert len(found) == 59
    assert sum(len(document.split()) for document in found) == 186_836
    assert sum(len(text.split()) for text in documents(reference_data / "text/wikitext-2/wiki.valid.tokens")) == 213_886


def test_c4_as_it_is_distributed(reference_data: Path) -> None:
    found = list(documents(reference_data / "text/c4/c4-validation.00000-of-00001.json.gz"))
    assert len(found) == 200 and sum(map(len, found)) == 364_884
    assert len(list(itertools.islice(documents(reference_data / "text/c4/c4-train.00000-of-00001.json.gz"), 3))) == 3


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"tex', "line 2, is not JSON"),
        ("a.jsonl", b"[1]\n", "line 1, is not a JSON object but list"),
        ("a.jsonl", b"", "is empty"),
        ("a.csv", b"id,label\n1,2\n", "record 1, has no column text; it has id, label"),
        ("a.csv", b"id,text\n1,a,b\n", "line 2, has more fields than the 2 columns"),
        ("a.txt", b"fine\n\xff\xfe\n", "is not UTF-8"),
        ("a.txt.gz", gzip.compress(b"x" * 1000)[:-9], "cannot be decompressed"),
        ("a.parquet", b"PAR1 no", "is no Parquet file"),
        ("a.doc", b"", "ending .doc; known are .txt"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    (tmp_path / name).write_bytes(content)
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(UserError, match=text):
        list(documents(tmp_path / name))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="b.csv does not exist"):
        list(records(tmp_path / "b.csv", ("text",)))
