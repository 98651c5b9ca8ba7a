"""Which alignments a protein has: layouts of folders, complexes, pairs, and what does not belong to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.folding.inputs import fingerprint, read_items


@pytest.mark.parametrize("place", ["p/msas/bfd.a3m", "p/bfd_hits.a3m", "p.a3m", "p/msas/A/x.a3m"])
def test_layouts_of_alignment_folders(tmp_path: Path, place: str) -> None:
    (tmp_path / "p.fasta").write_text(">p\nACD\n")
    file = tmp_path / "msas" / place
    file.parent.mkdir(parents=True)
    file.write_text(">p\nACD\n>x\nA-D\n")
    (item,) = read_items(tmp_path / "p.fasta", tmp_path / "msas")
    assert item.depth == 2 and not item.failed
    (alone,) = read_items(tmp_path / "p.fasta", tmp_path / "msas", single_sequence=True)
    assert alone.depth == 1
    assert fingerprint(item, "") != fingerprint(alone, "") != fingerprint(alone, "x")


def test_an_alignment_of_another_protein_fails_the_item(tmp_path: Path) -> None:
    (tmp_path / "p.fasta").write_text(">p\nACD\n")
    (tmp_path / "p.a3m").write_text(">q\nACE\n")
    (item,) = read_items(tmp_path / "p.fasta", tmp_path)
    assert item.failed and "not the query" in item.reason


def test_an_a3m_is_an_item_and_its_header_tells_the_chains(tmp_path: Path) -> None:
    (tmp_path / "c.a3m").write_text("#2,1\t2,1\n>101\t102\nACD\n>x\nA--\n")
    (item,) = read_items(tmp_path, None)
    assert item.record is not None and item.record.chains == ("AC", "AC", "D")
    assert [len(chain[0]) for chain in item.alignments] == [2, 2, 1]


def test_a_paired_alignment_of_queries_alone_is_enough(tmp_path: Path) -> None:
    (tmp_path / "c.a3m").write_text("#2,2\t1,1\n>101\t102\nACDE\n")
    (item,) = read_items(tmp_path, None)
    assert not item.failed and item.depth == 1


def test_rows_of_several_chains_are_pairs_and_the_others_are_of_their_chain(tmp_path: Path) -> None:
    (tmp_path / "c.a3m").write_text("#2,2\t1,1\n>101\t102\nACDE\n>p\tq\nACDF\n>101\nAW--\n>102\n--WE\n")
    (item,) = read_items(tmp_path, None)
    assert item.paired_by_row
    assert [alignment.letters.tolist() for alignment in item.pairing] == [[[0, 1], [0, 1]], [[2, 3], [2, 4]]]
    assert [chain[0].letters.tolist() for chain in item.alignments] == [[[0, 1], [0, 18]], [[2, 3], [18, 3]]]


def test_the_alignment_of_uniprot_is_for_pairing_alone(tmp_path: Path) -> None:
    (tmp_path / "c.fasta").write_text(">c\nACD:EF:ACD\n")
    for letter, query in (("A", "ACD"), ("B", "EF")):
        folder = tmp_path / "msas" / "c" / "msas" / letter
        folder.mkdir(parents=True)
        (folder / "uniprot_hits.sto").write_text(f"# STOCKHOLM 1.0\nq {query}\nsp|P12345|X_HUMAN/1-3 {query}\n//\n")
        (folder / "uniref90_hits.sto").write_text(f"# STOCKHOLM 1.0\nq {query}\n//\n")
    (item,) = read_items(tmp_path / "c.fasta", tmp_path / "msas")
    assert not item.failed and not item.paired_by_row
    assert [len(alignment) for alignment in item.pairing] == [2, 2, 2]  # the copy shares the files of the first chain
    assert [len(chain) for chain in item.alignments] == [1, 1, 1]


def test_a_complex_with_one_alignment_missing_goes_on(tmp_path: Path) -> None:
    (tmp_path / "c.fasta").write_text(">c\nACD:EF\n")
    (tmp_path / "msas" / "c" / "A").mkdir(parents=True)
    (tmp_path / "msas" / "c" / "A" / "x.a3m").write_text(">q\nACD\n>y\nA-D\n")
    (item,) = read_items(tmp_path / "c.fasta", tmp_path / "msas")
    assert not item.failed and [len(chain[0]) for chain in item.alignments] == [2, 1]
    assert any("no alignment of chain 2" in problem.reason for problem in item.problems)
