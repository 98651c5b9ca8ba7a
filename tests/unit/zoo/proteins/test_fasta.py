"""Sequences as people really write them: what is accepted, what is refused, and where the message points."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from zoo.proteins.fasta import parse_fasta, read_fasta, read_table
from zoo.proteins.problems import fatal


def test_a_gap_is_refused_with_its_place() -> None:
    records, problems = parse_fasta(">a\nACD\nAC-DE\n", "x.fasta")
    assert not records
    assert [str(problem) for problem in problems] == [
        "x.fasta, record a, line 3, column 3: a gap (-) in a sequence; remove it, or give an alignment as .a3m"
    ]


def test_lower_case_is_read_as_upper_with_a_note() -> None:
    records, problems = parse_fasta(">a\nacdn\n", "x.fasta")
    assert records[0].chains == ("ACDN",)
    assert [problem.fatal for problem in problems] == [False]
    records, problems = parse_fasta(">a\nACD\n>b\nACD:acdn\n", "x.fasta")
    assert records[1].chains == ("ACD", "ACDN") and [problem.record for problem in problems] == ["b"]


@pytest.mark.parametrize(
    ("sequence", "chains"), [("MKT*", ("MKT",)), ("MKT*:AC*", ("MKT", "AC")), ("MKUXA", ("MKUXA",))]
)
def test_final_stops_are_left_out_and_rare_letters_stay(sequence: str, chains: tuple[str, ...]) -> None:
    records, problems = parse_fasta(f">a\n{sequence}\n", "x")
    assert records[0].chains == chains
    assert not fatal(problems)


@pytest.mark.parametrize("text", [">a\nMK*T\n", ">a\nMK1T\n", ">a\n\n>b\nAC\n", ">\nACD\n", "ACD\n", "", ">a\nAC::D\n"])
def test_what_cannot_be_a_protein_is_fatal(text: str) -> None:
    assert fatal(parse_fasta(text, "x")[1])


def test_comments_blank_lines_and_line_ends_before_the_first_header() -> None:
    records, problems = parse_fasta("\n# from somewhere\n;old style\n>a b c\nAC\n\nDE\n", "x")
    assert (records[0].name, records[0].description, records[0].chains) == ("a", "a b c", ("ACDE",))
    assert not problems


def test_all_problems_at_once_and_the_good_records_stay() -> None:
    records, problems = parse_fasta(">a\nAC-D\n>b\nACD\n>c\nA*CD\n", "x")
    assert [record.name for record in records] == ["b"]
    assert [problem.record for problem in problems] == ["a", "c"]


def test_packed_files_and_damaged_ones(tmp_path: Path) -> None:
    packed = tmp_path / "a.fasta.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf>a\r\nACD\r\n"))
    assert read_fasta(packed)[0][0].chains == ("ACD",)
    packed.write_bytes(gzip.compress(b">a\nACD\n")[:-5])
    assert "damaged" in read_fasta(packed)[1][0].reason
    (tmp_path / "b.fasta").write_bytes(b">a\nAC\xffD\n")
    assert read_fasta(tmp_path / "b.fasta")[1][0].line == 2


def test_tables_name_their_columns_and_their_files(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("id,sequence,a3mpath\none,ACD:EFG,\ntwo,ACD,none.a3m\n")
    records, problems = read_table(table)
    assert [record.chains for record in records] == [("ACD", "EFG")]
    assert "a3mpath=none.a3m: no such file" in str(problems[0])
    table.write_text("name,seq\na,ACD\n")
    assert "expected id and sequence" in read_table(table)[1][0].reason
