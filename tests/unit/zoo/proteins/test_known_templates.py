"""Templates are those of the original pipeline, atom by atom; what cannot be used is left out and said."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import numpy as np
import pytest

from zoo.proteins.experiments import read_known
from zoo.proteins.fasta import read_fasta
from zoo.proteins.hits import Hit, parse_hmmsearch, parse_m8, read_hits, stockholm_rows
from zoo.proteins.known_templates import found_templates, own_templates, sequence_alignment, template_features

pytest.importorskip("gemmi")
MISSING = 1  # of the original's templates 1hf9_B, whose structure file is not there


def test_the_templates_of_the_original_are_reproduced(reference_data: Path) -> None:
    folder = reference_data / "proteins"
    query = read_fasta(folder / "fasta/ofquery.fasta")[0][0].chains[0]
    hits, problems = read_hits(folder / "templates/ofquery_pdb70_hits.hhr.gz", query)
    assert len(hits) == 10 and not problems
    templates, notes = found_templates(query, hits, folder / "structures")
    ours = template_features(templates, len(query))
    with np.load(folder / "features/ofquery_alphafold_features.npz") as original:
        for name, value in ours.items():
            wanted = np.delete(original[name], MISSING, axis=0)
            assert value.shape == wanted.shape, name
            np.testing.assert_array_equal(value, wanted.astype(value.dtype), err_msg=name)
            assert name == "template_domain_names" or value.dtype == wanted.dtype
    reasons = {note.record: note.reason for note in notes}
    assert "1hf9.cif is not in the folder" in reasons["1HF9_B"] and "no atoms" in reasons["5KC1_F"]


def test_structures_released_too_late_are_left_out(reference_data: Path) -> None:
    folder = reference_data / "proteins"
    query = read_fasta(folder / "fasta/ofquery.fasta")[0][0].chains[0]
    hits, _ = read_hits(folder / "templates/ofquery_pdb70_hits.hhr.gz", query)
    templates, notes = found_templates(query, hits, folder / "structures", datetime.date(2006, 1, 1))
    assert [template.name for template in templates] == ["2crb_A", "1psm_A"]
    assert any("released 2011-11-09, after 2006-01-01" in note.reason for note in notes)


def test_own_structures_are_aligned_by_their_sequence(reference_data: Path, tmp_path: Path) -> None:
    folder = reference_data / "proteins/structures"
    human, _ = read_known(folder / "133l.cif.gz")
    assert human is not None
    (template,), notes = own_templates(human.chains[0].letters, [folder / "1aki.cif.gz"])
    assert template.name == "1aki_A" and template.mask[:, 1].sum() == 129 and not notes
    same = sum(a == b for a, b in zip(template.letters, human.chains[0].letters, strict=True))
    assert 70 < same < 90  # hen and human lysozyme
    (tmp_path / "bad.pdb").write_text("hello")
    templates, notes = own_templates("MKTAYIAKQR", [tmp_path / "bad.pdb"])
    assert not templates and "no protein chain" in notes[0].reason and not notes[0].fatal


def test_chains_are_found_by_both_names(reference_data: Path) -> None:
    """In 2Q2K the authors' chain A is B in the numbering of mmCIF."""
    folder = reference_data / "proteins/structures"
    known, _ = read_known(folder / "2q2k.cif.gz")
    assert known is not None and [(chain.name, chain.label) for chain in known.chains] == [("A", "B"), ("B", "C")]
    query = known.chains[0].letters[:-1] + "W"
    pairs = tuple((i, i) for i in range(60))
    (one,), _ = found_templates(query, [Hit("2q2k_A", None, pairs, 60, None)], folder)
    (other,), _ = found_templates(query, [Hit("2q2k_C", None, pairs, 60, None)], folder)
    assert "chain B in mmCIF's own numbering" in one.report and other.name == "2q2k_B"


def test_short_and_empty_templates_are_left_out(reference_data: Path) -> None:
    folder = reference_data / "proteins/structures"
    hits = [Hit("2q2k_A", "MTQN", ((0, 0), (1, 1)), 4, 1.0), Hit("2q2k_A", "", (), 0, 1.0)]
    templates, notes = found_templates("ACDEFGHIKL", hits, folder)
    assert not templates and "at least 10 are needed" in notes[0].reason and "no residue" in notes[1].reason
    assert template_features([], 10)["template_aatype"].shape == (0, 10, 22)


def test_another_sequence_in_the_structure_is_aligned_anew(reference_data: Path) -> None:
    with gzip.open(reference_data / "proteins/structures/1aki.cif.gz", "rt") as file:
        assert "1AKI" in file.read()
    known, _ = read_known(reference_data / "proteins/structures/1aki.cif.gz")
    assert known is not None
    real = known.chains[0].letters
    other = real[:40] + real[41:]  # one residue fewer than the structure
    hit = Hit("1aki_A", other, tuple((i, i) for i in range(len(other))), len(other), 5.0)
    query = other[:-1] + "W"
    (template,), _ = found_templates(query, [hit], reference_data / "proteins/structures")
    assert template.letters == other and "aligned anew" in template.report
    strange = Hit("1aki_A", "W" * 40, tuple((i, i) for i in range(40)), 40, 5.0)
    templates, notes = found_templates(query, [strange], reference_data / "proteins/structures")
    assert not templates and "another sequence" in notes[0].reason


def test_hits_of_hmmsearch_and_mmseqs2() -> None:
    text = "# STOCKHOLM 1.0\n1abc_A/3-6  A-Cx-D.\n#=GC RF     xxx.xxx\n//\n"
    (hit,) = parse_hmmsearch(stockholm_rows(text.replace("A-Cx-D.", "A-CY-D-")), "KLMNPQ")
    assert hit.letters == "ACYD" and hit.pairs == ((0, 0), (2, 1), (4, 3)) and hit.chain == "A"
    row = "q\t1abc_B\t0.5\t9\t0\t0\t2\t9\t5\t12\t1e-9\t50\t3M1I2M1D2M"
    (hit,) = parse_m8(row, "q")
    assert hit.pairs == ((1, 4), (2, 5), (3, 6), (5, 7), (6, 8), (7, 10), (8, 11)) and hit.letters is None
    assert parse_m8(row + "\nother" + row[1:], "third") == []


def test_likeness_knows_similar_residues_and_forgives_the_ends() -> None:
    myoglobin = "MVLSEGEWQLVLHVWAKVEADVAGHGQDILIRLFKSHPETLEKFDRFKHLKTEAEMKASEDLKKAGVTVLTALGAILKKKGHHEAELKPLAQSHATK"
    hemoglobin = "VLSPADKTNVKAAWGKVGAHAGEYGAEALERMFLSFPTTKTYFPHFDLSHGSAQVKGHGKKVADALTNAVAHVDDMPNALSALSDLHAHKL"
    remote, same = sequence_alignment(myoglobin, hemoglobin), sequence_alignment(myoglobin[20:60], myoglobin)
    assert remote.score > 40 and remote.same / len(remote.pairs) < 0.35 and (14, 13) in remote.pairs  # both W
    assert same.pairs == [(i, i + 20) for i in range(40)] and same.same == 40 and same.score > 150
    assert sequence_alignment("MKTAYIAKQR", hemoglobin).score < 20
