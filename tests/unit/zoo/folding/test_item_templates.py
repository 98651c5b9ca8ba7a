"""Where the templates of an item come from, and that they reach the features of every chain."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from zoo.errors import UserError
from zoo.folding.features import raw_features
from zoo.folding.inputs import fingerprint, read_items
from zoo.folding.item_templates import item_templates, unreadable
from zoo.folding.options import PredictOptions

pytest.importorskip("gemmi")


def test_hits_lie_beside_the_alignments(reference_data: Path, tmp_path: Path) -> None:
    folder = reference_data / "proteins"
    shutil.copytree(folder / "msa/ofquery", tmp_path / "ofquery")
    shutil.copy(folder / "templates/ofquery_pdb70_hits.hhr.gz", tmp_path / "ofquery/pdb70_hits.hhr.gz")
    (item,) = read_items(folder / "fasta/ofquery.fasta", tmp_path)
    assert item.depth > 1000 and not item.failed
    (templates,), notes = item_templates(item, PredictOptions(alignments=tmp_path, structures=folder / "structures"))
    assert [template.name for template in templates][:2] == ["3u8v_A", "2crb_A"] and len(templates) == 7
    assert len(notes) == 3
    assert raw_features(item, False, [templates])["template_aatype"].shape == (7, 73, 22)
    merged = raw_features(item, True, [templates])
    assert merged["template_all_atom_mask"].shape == (4, 73, 37) and merged["num_templates"] == 4
    assert fingerprint(item, "", [templates]) != fingerprint(item, "")


def test_own_structures_serve_the_chains_that_they_are_like(reference_data: Path, tmp_path: Path) -> None:
    structure = reference_data / "proteins/structures/1aki.cif.gz"
    (tmp_path / "c.fasta").write_text(">c\nKVFGRCELAAAMKRHGLDNYRGYSLGNWVCAAKFESNFNTQ:MKTAYIAKQR:MKTAYIAKQR\n")
    (item,) = read_items(tmp_path, None)
    templates, notes = item_templates(item, PredictOptions(templates=structure))
    assert [len(chain) for chain in templates] == [1, 0, 0]
    assert len(notes) == 1 and "template left out" in notes[0].reason  # once for both copies
    assert "1aki.cif.gz" in notes[0].file and notes[0].reason.endswith("(over chain B)")
    assert templates[0][0].report.endswith("(over chain A)")
    assert templates[0][0].letters == "KVFGRCELAAAMKRHGLDNYRGYSLGNWVCAAKFESNFNTQ"


def test_templates_that_cannot_be_read_are_named_first(reference_data: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.cif").write_text("data_x\nloop_\n")
    with pytest.raises(UserError, match="holds no structure that can be read: .*bad.cif"):
        unreadable(tmp_path)
    (tmp_path / "1aki.cif.gz").write_bytes((reference_data / "proteins/structures/1aki.cif.gz").read_bytes())
    (note,) = unreadable(tmp_path)
    assert "bad.cif" in str(note) and not note.fatal


def test_without_hits_a_note_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a\nACDEFGHIKL\n")
    (item,) = read_items(tmp_path, None)
    templates, notes = item_templates(item, PredictOptions(structures=tmp_path))
    assert templates == [[]] and "no template hits of chain 1" in notes[0].reason


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"structures": Path("/none")}, "structures=/none: no such file or folder"),
        ({"max_template_date": "May 2020"}, "write it as YYYY-MM-DD"),
        ({"hits": Path("/")}, "needs structures="),
        ({"msa": "single", "databases": Path("/")}, "msa=single searches nothing, so it goes with no databases="),
        ({"msa": "single", "stage": "msa"}, "goes with no stage=msa"),
        ({"msa": "single", "alignments": Path("/")}, "msa=single uses no alignments="),
        ({"memory_gib": 0.0}, "memory_gib=0.0; it must be above 0"),
    ],
)
def test_wrong_options_say_what_is_allowed(wrong: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PredictOptions(**wrong)  # type: ignore[arg-type]
