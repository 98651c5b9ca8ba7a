"""Searches come before inference, are kept, and are repeated only where sequence or databases changed."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from zoo.errors import PartlyFailed, UserError
from zoo.folding.inputs import read_items
from zoo.folding.options import PredictOptions
from zoo.folding.run import predict
from zoo.folding.searching import with_alignments

pytest.importorskip("pyhmmer")
GLOBIN = "MVLSEGEWQLVLHVWAKVEADVAGHGQDILIRLFKSHPETLEKFDRVKHLKTEAEMKASEDLKKHGVTVLTALGAILKKKGHHEAELKPLAQSHATKHK"
OTHER = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQTLGQHDFSAGEGLYTHMK"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "db").mkdir()
    near = GLOBIN.replace("VEADV", "VEGDV")
    (tmp_path / "db/uniref90.fasta").write_text(f">x/1\n{near}\n>y\n{OTHER}\n")
    (tmp_path / "db/uniprot.fasta").write_text(f">sp|P12345|A_HUMAN\n{near}\n>sp|P12346|B_HUMAN\n{OTHER}\n")
    (tmp_path / "in.fasta").write_text(f">one\n{GLOBIN}\n>two\n{GLOBIN}:{OTHER}\n>bad\nA-C\n")
    return tmp_path


def test_found_alignments_are_used_and_kept(folder: Path) -> None:
    options, said = PredictOptions(databases=folder / "db", cpus=1), []
    items = with_alignments(read_items(folder / "in.fasta", None), options, folder / "out", said.append)
    one, two, bad = items
    assert one.depth == 2 and bad.failed
    assert [len(source) for source in two.pairing] == [2, 2] and b"HUMAN" not in str(one.pairing).encode()
    assert (folder / "out/one/msas/uniref90_hits.sto").exists() and not (
        folder / "out/one/msas/uniprot_hits.sto"
    ).exists()
    assert (folder / "out/two/msas/B/uniprot_hits.sto").exists()
    assert said[0].startswith("one: found 1 uniref90") and len(said) == 3
    with_alignments(read_items(folder / "in.fasta", None), options, folder / "out", said.append)
    assert len(said) == 3  # nothing was searched again
    (folder / "in.fasta").write_text(f">one\n{OTHER}\n")
    (again,) = with_alignments(read_items(folder / "in.fasta", None), options, folder / "out", said.append)
    assert len(said) == 4 and not again.failed  # the sequence changed
    later = PredictOptions(stage="infer")
    (kept,) = with_alignments(read_items(folder / "in.fasta", None), later, folder / "out", said.append)
    assert kept.depth == 2 and len(said) == 4


@pytest.mark.parametrize("content", [b"x\n", gzip.compress(b">a\nACDEF\n" * 99)[:30]])
def test_a_packed_database_that_is_damaged_is_refused_in_a_line(folder: Path, content: bytes) -> None:
    (folder / "db/mgnify.fasta.gz").write_bytes(content)
    with pytest.raises(UserError, match="mgnify.fasta.gz: no FASTA file of proteins") as caught:
        with_alignments([], PredictOptions(databases=folder / "db"), folder / "out", lambda line: None)
    assert "\n" not in str(caught.value) and not (folder / "out").exists()


def test_a_search_that_fails_half_way_leaves_nothing(folder: Path) -> None:
    whole = gzip.compress("".join(f">p{n}\n{OTHER}\n" for n in range(20000)).encode(), 0)
    (folder / "db/zz.fasta.gz").write_bytes(whole[: len(whole) // 2])
    options, items = PredictOptions(databases=folder / "db", cpus=1), read_items(folder / "in.fasta", None)
    one, *_ = with_alignments(items[:1], options, folder / "out", lambda line: None)
    assert one.failed and not list((folder / "out").iterdir())


def test_without_an_earlier_search_a_note_says_so(folder: Path) -> None:
    said: list[str] = []
    with_alignments(read_items(folder / "in.fasta", None), PredictOptions(stage="infer"), folder / "out", said.append)
    assert len(said) == 2 and said[0].startswith("note: one: no earlier search in")


def test_the_stage_alone_ends_with_what_failed(folder: Path) -> None:
    options = PredictOptions(stage="msa", databases=folder / "db", cpus=1)
    with pytest.raises(PartlyFailed, match="1 of 3 proteins failed"):
        predict(folder / "in.fasta", folder / "out", options, {}, 0, lambda line: None)
    with (folder / "out/summary.csv").open() as file:
        assert [(row["name"], row["status"]) for row in csv.DictReader(file)] == [
            ("one", "waiting"), ("two", "waiting"), ("bad", "failed"),
        ]  # fmt: skip
    with pytest.raises(UserError, match="needs databases=FOLDER"):
        with_alignments([], PredictOptions(stage="msa"), folder / "out", lambda line: None)
