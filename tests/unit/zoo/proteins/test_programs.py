"""Installed programs search their own databases; what is missing is said before anything is searched."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import PartlyFailed, UserError
from zoo.folding.inputs import read_items
from zoo.folding.item_templates import item_templates
from zoo.folding.options import PredictOptions
from zoo.folding.run import predict
from zoo.folding.searching import with_alignments
from zoo.proteins.alignments import parse_a3m, parse_stockholm, read_alignment, single
from zoo.proteins.experiments import read_known
from zoo.proteins.fasta import read_fasta
from zoo.proteins.hits import parse_hhr, parse_hmmsearch, stockholm_rows
from zoo.proteins.known_templates import sequence_alignment
from zoo.proteins.programs import Database, databases, hhblits, hhsearch, mmseqs2
from zoo.proteins.search import SearchFailed, known_relatives, relatives

HHSUITE = ("a3m.ffdata", "a3m.ffindex", "cs219.ffdata", "cs219.ffindex")


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def query(reference_data: Path, name: str) -> str:
    return read_fasta(reference_data / f"proteins/fasta/{name}.fasta")[0][0].chains[0]


def part(reference_data: Path, name: str, wanted: str, target: Path) -> Path:
    """A FASTA file of the entries of one of the small databases whose header matches."""
    with gzip.open(reference_data / f"proteins/search_db/{name}.fasta.gz", "rt") as file:
        entries = [entry for entry in file.read().split(">")[1:] if re.match(wanted, entry)]
    target.write_text("".join(f">{entry}" for entry in entries))
    return target


def hhsuite_database(fasta: Path, name: str) -> Path:
    """Every sequence a family of its own, as the HH-suite wants its databases."""
    stem = fasta.with_name(name)
    program("ffindex_from_fasta")
    translate = sorted(Path("/usr/libexec/hhsuite").glob("cstranslate-sse3")) + [
        Path(shutil.which("cstranslate") or "")
    ]
    library = Path("/usr/lib/hhsuite/data")
    if not translate[0].is_file() or not library.is_dir():
        pytest.skip("cstranslate of the HH-suite is not installed")
    subprocess.run(["ffindex_from_fasta", "-s", f"{stem}_a3m.ffdata", f"{stem}_a3m.ffindex", fasta], check=True)
    words = ["-A", library / "cs219.lib", "-D", library / "context_data.lib", "-f", "-x", "0.3", "-c", "4", "-I", "a3m"]
    subprocess.run([translate[0], *words, "-i", f"{stem}_a3m", "-o", f"{stem}_cs219"], check=True, capture_output=True)
    return stem


def test_databases_are_known_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    (tmp_path / "uniref90.fasta").write_text(">a\nACD\n")
    for ending in HHSUITE:
        (tmp_path / f"bfd_{ending}").write_text("x")
    for ending in ("", ".dbtype", ".index", "_h", "_h.dbtype", "_h.index"):
        (tmp_path / f"uniref30{ending}").write_text("x")
    found = databases(tmp_path)
    assert [(one.kind, one.name) for one in found] == [
        ("fasta", "uniref90"), ("hhsuite", "bfd"), ("mmseqs2", "uniref30"),
    ]  # fmt: skip
    assert all(one.stamp[0] > 0 for one in found)
    (tmp_path / "bfd_a3m.ffdata").unlink()
    with pytest.raises(UserError, match="not whole; missing: _a3m.ffdata"):
        databases(tmp_path)


@pytest.mark.parametrize(("files", "name", "package"), [(HHSUITE, "hhblits", "hhsuite"), (None, "mmseqs", "mmseqs2")])
def test_a_program_that_is_not_installed_is_named_first(
    files: tuple[str, ...] | None, name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    (tmp_path / "db").mkdir()
    for ending in [f"_{ending}" for ending in files] if files else ["", ".dbtype", ".index", "_h", "_h.index"]:
        (tmp_path / f"db/x{ending}").write_text("x")
    (tmp_path / "in.fasta").write_text(">a\nACD\n")
    options = PredictOptions(stage="msa", databases=tmp_path / "db")
    with pytest.raises(UserError, match=f"{name} is not installed.*apt-get install {package}"):
        predict(tmp_path / "in.fasta", tmp_path / "out", options, {}, 0, lambda line: None)


def test_what_a_program_says_fails_its_protein_alone(tmp_path: Path) -> None:
    program("hhblits")
    (tmp_path / "db").mkdir()
    for ending in HHSUITE:
        (tmp_path / f"db/x_{ending}").write_text("x")
    (tmp_path / "in.fasta").write_text(">a\nACDEFGHIKLMNPQ\n")
    options = PredictOptions(stage="msa", databases=tmp_path / "db")
    said: list[str] = []
    with pytest.raises(PartlyFailed, match="1 of 1 proteins failed"):
        predict(tmp_path / "in.fasta", tmp_path / "out", options, {}, 0, said.append)
    assert any("search failed: hhblits" in line for line in said)


@pytest.mark.slow
def test_hhblits_finds_the_family(reference_data: Path, tmp_path: Path) -> None:
    program("hhblits")
    fasta = part(reference_data, "planted_1000", r"globin_myoglobin_0[0-2]|decoy_1\d\b", tmp_path / "x.fasta")
    sequence = query(reference_data, "102m_A")
    found, problems = parse_a3m(hhblits(sequence, hhsuite_database(fasta, "bfd"), 1), "bfd", sequence)
    assert found is not None and not problems
    assert len(found) > 5 and all(name.startswith("globin") for name in found.names[1:])
    with pytest.raises(SearchFailed, match="hhblits"):
        hhblits(sequence, tmp_path / "none", 1)


@pytest.mark.slow
def test_hhsearch_finds_templates_that_are_laid_over_the_query(reference_data: Path, tmp_path: Path) -> None:
    program("hhsearch")
    pytest.importorskip("gemmi")
    for name in ("db", "structures"):
        (tmp_path / name).mkdir()
    shutil.copy(reference_data / "proteins/structures/1aki.cif.gz", tmp_path / "structures")
    hen, human = (letters_of(reference_data / f"proteins/structures/{name}.cif.gz") for name in ("1aki", "133l"))
    fasta = tmp_path / "db/x.txt"
    fasta.write_text(f">102m_A globin\n{query(reference_data, '102m_A')}\n>1aki_A lysozyme\n{hen}\n")
    database = hhsuite_database(fasta, "pdb70")
    hits = parse_hhr(hhsearch(single("q", human), database, 1), human)
    assert hits[0].name == "1aki_A" and hits[0].columns > 120
    (tmp_path / "in.fasta").write_text(f">h\n{human}\n")
    options = PredictOptions(databases=tmp_path / "db", structures=tmp_path / "structures", cpus=1)
    (item,) = with_alignments(read_items(tmp_path / "in.fasta", None), options, tmp_path / "out", lambda line: None)
    (templates,), _ = item_templates(item, options)
    assert [one.name for one in templates] == ["1aki_A"] and templates[0].mask[:, 1].sum() > 120


def letters_of(path: Path) -> str:
    known, _ = read_known(path)
    assert known is not None
    return known.chains[0].letters


@pytest.mark.slow
def test_mmseqs2_finds_the_family_through_the_command(reference_data: Path, tmp_path: Path) -> None:
    mmseqs = program("mmseqs")
    fasta = part(reference_data, "planted_1000", ".", tmp_path / "x.fasta")
    (tmp_path / "db").mkdir()
    subprocess.run([mmseqs, "createdb", fasta, tmp_path / "db/uniref30", "-v", "1"], check=True)
    sequence = query(reference_data, "102m_A")
    (tmp_path / "in.fasta").write_text(f">m\n{sequence}\n")
    options, said = PredictOptions(stage="msa", databases=tmp_path / "db", cpus=1), []
    predict(tmp_path / "in.fasta", tmp_path / "out", options, {}, 0, said.append)
    found, problems = read_alignment(tmp_path / "out/m/msas/uniref30_hits.a3m", sequence)
    assert found is not None and not problems and f"found {len(found) - 1} uniref30" in said[0]
    families = [name.split("_")[0] for name in found.names[1:]]
    assert families.count("globin") > 40 and families.count("globin") == len(families)
    with pytest.raises(SearchFailed, match="mmseqs"):
        mmseqs2(sequence, tmp_path / "none", 1)


@pytest.mark.slow
def test_hmmsearch_itself_finds_the_same_chains(reference_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyhmmer")
    sequence, fasta = query(reference_data, "102m_A"), tmp_path / "pdb_seqres.fasta"
    part(reference_data, "pdb_seqres_1000", ".", fasta)
    (tmp_path / "q.sto").write_text(f"# STOCKHOLM 1.0\nq {sequence}\n#=GC RF {'x' * len(sequence)}\n//\n")
    subprocess.run([program("hmmbuild"), "--hand", "--amino", tmp_path / "q.hmm", tmp_path / "q.sto"], check=True,
                   capture_output=True)  # fmt: skip
    limits = [
        "--F1",
        "0.1",
        "--F2",
        "0.1",
        "--F3",
        "0.1",
        "--incE",
        "100",
        "-E",
        "100",
        "--domE",
        "100",
        "--incdomE",
        "100",
    ]
    words = [*limits, "--noali", "--cpu", "1", "-A", tmp_path / "hits.sto", tmp_path / "q.hmm", fasta]
    subprocess.run([program("hmmsearch"), *words], check=True, capture_output=True)
    wanted = parse_hmmsearch(stockholm_rows((tmp_path / "hits.sto").read_text()), sequence)
    ours = parse_hmmsearch(stockholm_rows(known_relatives(single("q", sequence), fasta, 1)), sequence)
    assert len(wanted) > 3 and [(hit.name, hit.pairs) for hit in ours] == [(hit.name, hit.pairs) for hit in wanted]


@pytest.mark.slow
def test_jackhmmer_itself_finds_the_same_rows(reference_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyhmmer")
    fasta = part(reference_data, "uniref90_1000", ".", tmp_path / "uniref90.fasta")
    sequence = query(reference_data, "5sak_A")
    (tmp_path / "q.fasta").write_text(f">q\n{sequence}\n")
    limits = ["-N", "1", "--F1", "5e-4", "--F2", "5e-5", "--F3", "5e-7", "--incE", "1e-4", "-E", "1e-4", "--cpu", "1"]
    words = [*limits, "--noali", "-A", tmp_path / "hits.sto", tmp_path / "q.fasta", fasta]
    subprocess.run([program("jackhmmer"), *words], check=True, capture_output=True)
    text = (tmp_path / "hits.sto").read_text() if (tmp_path / "hits.sto").exists() else ""
    ours, _ = parse_stockholm(relatives("q", sequence, fasta, 10_000, 1), "ours", sequence)
    assert ours is not None
    if text.strip():
        wanted, _ = parse_stockholm(text, "hmmer", sequence)
        assert wanted is not None and ours.names == wanted.names
        np.testing.assert_array_equal(ours.letters, wanted.letters)
    else:
        assert len(ours) == 1


def test_relatives_are_aligned_as_kalign_does(reference_data: Path, tmp_path: Path) -> None:
    """Ours stands in for kalign, where a structure has another sequence than the search says."""
    pytest.importorskip("gemmi")
    kalign = program("kalign")
    first = query(reference_data, "102m_A")
    fasta = part(reference_data, "planted_1000", "globin_myoglobin_02[1-6]", tmp_path / "x.fasta")
    others = [entry.partition("\n")[2].replace("\n", "") for entry in fasta.read_text().split(">")[1:]]
    assert len(others) > 3
    for second in others:
        second = second[:60] + second[63:]  # the gap has to be found
        (tmp_path / "in.fasta").write_text(f">a\n{first}\n>b\n{second}\n")
        done = subprocess.run(
            [kalign, "-i", tmp_path / "in.fasta", "-f", "fasta"], check=True, capture_output=True, text=True
        )
        rows = [entry.partition("\n")[2].replace("\n", "") for entry in done.stdout.split(">")[1:]]
        theirs, i, j = set(), 0, 0
        for one, other in zip(*rows, strict=True):
            if one != "-" and other != "-":
                theirs.add((i, j))
            i, j = i + (one != "-"), j + (other != "-")
        pairs = sequence_alignment(first, second).pairs
        assert len(theirs & set(pairs)) > 0.8 * len(theirs)


def test_a_database_is_what_it_is_called() -> None:
    assert Database("fasta", Path("a/uniref90.2020.fasta.gz")).name == "uniref90"
