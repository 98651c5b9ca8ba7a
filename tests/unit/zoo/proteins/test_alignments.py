"""Alignments: letters and insertions, what is wrong with a row, and whose alignment it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zoo.proteins.alignments import parse_a3m, parse_stockholm, read_alignment, species
from zoo.proteins.problems import fatal


def test_lower_case_counts_as_insertions_before_the_next_column() -> None:
    alignment, problems = parse_a3m(">q\nACD\n>a\nabA-xD\n>b\nAC.Dyy\n", "x")
    assert alignment is not None and not problems
    assert alignment.letters.tolist() == [[0, 1, 2], [0, 21, 2], [0, 1, 2]]
    assert alignment.deletions.tolist() == [[0, 0, 0], [2, 0, 1], [0, 0, 0]]


def test_stockholm_columns_with_a_gap_in_the_query_are_insertions() -> None:
    text = "# STOCKHOLM 1.0\n#=GS a DE text\nq A-C\na AWC\n\nq D\na -\n//\n"
    alignment, _ = parse_stockholm(text, "x")
    assert alignment is not None
    assert alignment.names == ("q", "a")
    assert alignment.letters.tolist() == [[0, 1, 2], [0, 1, 21]]
    assert alignment.deletions.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_a_row_of_another_length_is_left_out_with_its_place() -> None:
    alignment, problems = parse_a3m(">q\nACD\n>short\nAC\n>c\nAC1\n>d\n-CD\n", "x.a3m")
    assert alignment is not None and alignment.names == ("q", "d")
    assert str(problems[0]).startswith("x.a3m, record short, line 3: 2 aligned letters, but the query has 3")
    assert (problems[1].line, problems[1].column) == (5, 3)
    assert not fatal(problems)


def test_an_alignment_of_another_sequence_is_refused() -> None:
    assert fatal(parse_a3m(">q\nACD\n", "x", "ACE")[1])[0].column == 3
    assert "has 3 letters, but the query has 4" in fatal(parse_a3m(">q\nACD\n", "x", "ACDE")[1])[0].reason
    assert not fatal(parse_a3m(">q\nAXD\n", "x", "AUD")[1])  # selenocysteine written as X


def test_the_header_of_a_complex() -> None:
    alignment, _ = parse_a3m("#2,1\t1,2\n>101\tx\nACD\n>a\n--D\n>b\nAC-\n", "x")
    assert alignment is not None and alignment.chains == ((2, 1), (1, 2))
    some = alignment.part(np.array([True, False, True]), 0, 2)
    assert some.names == ("101\tx", "b") and some.letters.shape == (2, 2)


def test_species_of_uniprot_headers() -> None:
    assert species("tr|A0A146SKV9|A0A146SKV9_FUNHE/1-20 text") == "FUNHE"
    assert species("sp|P0C2L1|A3X1_LOXLA") == "LOXLA"
    assert species("UniRef90_A0A146SKV9") == "" == species("")


def test_every_reference_alignment_is_of_its_query(reference_data: Path) -> None:
    for path in sorted((reference_data / "proteins/msa").glob("[125]*/*.gz")):
        fasta = (reference_data / f"proteins/fasta/{path.parent.name}.fasta").read_text().split("\n", 1)[1]
        alignment, problems = read_alignment(path, fasta.replace("\n", ""))
        assert alignment is not None, problems
        assert np.isin(alignment.letters, range(22)).all()
