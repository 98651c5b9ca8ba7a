"""Searches find what HMMER's own programs found, row by row."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import UserError
from zoo.proteins.alignments import parse_stockholm, read_alignment, single
from zoo.proteins.fasta import read_fasta
from zoo.proteins.hits import parse_hmmsearch, stockholm_rows
from zoo.proteins.programs import databases
from zoo.proteins.search import SearchFailed, known_relatives, relatives

pytest.importorskip("pyhmmer")


@pytest.mark.parametrize("name", ["102m_A", "5zyh_A", "1a3a_A"])
def test_alignments_are_those_of_jackhmmer(name: str, reference_data: Path) -> None:
    folder = reference_data / "proteins"
    query = read_fasta(folder / f"fasta/{name}.fasta")[0][0].chains[0]
    text = relatives(name, query, folder / "search_db/planted_1000.fasta.gz", 10_000, 1)
    ours, problems = parse_stockholm(text, "ours", query)
    wanted, _ = read_alignment(folder / f"search_db/planted_1000_jackhmmer_{name}.sto.gz", query)
    assert ours is not None and wanted is not None and not problems
    assert ours.names == wanted.names
    np.testing.assert_array_equal(ours.letters, wanted.letters)
    np.testing.assert_array_equal(ours.deletions, wanted.deletions)


def test_as_many_hits_as_hmmer_reports_and_never_more_rows_than_asked(reference_data: Path) -> None:
    folder = reference_data / "proteins"
    with gzip.open(folder / "search_db/planted_1000_hmmer_hits.tsv.gz", "rt") as file:
        wanted = {
            row["target"]
            for row in csv.DictReader(file, delimiter="\t")
            if row["query"] == "1a00_A" and row["program"] == "jackhmmer_N1"
        }
    query = read_fasta(folder / "fasta/1a00_A.fasta")[0][0].chains[0]
    database = folder / "search_db/planted_1000.fasta.gz"
    ours, _ = parse_stockholm(relatives("q", query, database, 10_000, 1), "ours", query)
    assert ours is not None and {name.split("/")[0] for name in ours.names[1:]} == wanted and len(wanted) == 118
    few, _ = parse_stockholm(relatives("q", query, database, 10, 1), "ours", query)
    assert few is not None and few.names == ours.names[:10]


def test_templates_are_found_with_a_profile(reference_data: Path) -> None:
    folder = reference_data / "proteins"
    query = read_fasta(folder / "fasta/102m_A.fasta")[0][0].chains[0]
    text = known_relatives(single("q", query), folder / "search_db/pdb_seqres_1000.fasta.gz", 1)
    hits = parse_hmmsearch(stockholm_rows(text), query)
    assert len(hits) > 3 and hits[0].columns > 100  # globins
    assert all(0 <= i < len(query) and 0 <= j < len(hit.letters or "") for hit in hits for i, j in hit.pairs)


@pytest.mark.parametrize("sequence", ["M", "ACDEF", "A" * 26])
def test_short_sequences_without_hits_are_alone(sequence: str, tmp_path: Path) -> None:
    (tmp_path / "db.fasta").write_text(">a\nMKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQ\n")
    ours, _ = parse_stockholm(relatives("q", sequence, tmp_path / "db.fasta", 10, 1), "ours", sequence)
    assert ours is not None and len(ours) == 1


def test_what_is_no_database_is_said_before_anything_is_searched(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no database; expected FASTA files"):
        databases(tmp_path)
    (tmp_path / "a.fasta").write_text("hello")
    with pytest.raises(UserError, match="no FASTA file of proteins"):
        databases(tmp_path)
    (tmp_path / "a.fasta").write_text(">a\nACD\n>b\nAC1D\n")
    assert databases(tmp_path)  # only the first sequence is read
    with pytest.raises(SearchFailed, match=r"a\.fasta"):
        relatives("q", "ACDEF", tmp_path / "a.fasta", 10, 1)
