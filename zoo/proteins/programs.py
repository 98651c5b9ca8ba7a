"""Searches by installed programs: hhblits and hhsearch (HH-suite), mmseqs (MMseqs2). FASTA files need none (`search`).

The arguments of the HH-suite are those of the original; those of MMseqs2 are a profile search of three iterations, as ColabFold's
server makes it, without its expansion of clusters.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

from zoo.errors import UserError
from zoo.proteins.alignments import Alignment
from zoo.proteins.residues import ALIGNMENT_LETTERS
from zoo.proteins.search import FASTA, SearchFailed, fasta_files

HHSUITE_PARTS = ("_a3m.ffdata", "_a3m.ffindex", "_cs219.ffdata", "_cs219.ffindex")
LONGEST, MOST_FILTERED, LEAST_PREFILTERED = 1_000_000, 100_000, 1000
PACKAGES = {"hhblits": "hhsuite", "hhsearch": "hhsuite", "mmseqs": "mmseqs2"}
MOST_HITS = 10_000


@dataclasses.dataclass(frozen=True)
class Database:
    """What is searched.

    Attributes:
        kind: a FASTA file, or the files of a program.
        path: the FASTA file, or what the names of all files of the database begin with.
    """

    kind: Literal["fasta", "hhsuite", "mmseqs2"]
    path: Path

    @property
    def name(self) -> str:
        return self.path.name.split(".")[0]

    @property
    def stamp(self) -> list[int]:
        """Size and time of its main file, which change with what it holds."""
        ending = {"fasta": "", "hhsuite": "_cs219.ffdata", "mmseqs2": ".index"}[self.kind]
        found = self.path.with_name(self.path.name + ending).stat()
        return [found.st_size, int(found.st_mtime)]


def databases(folder: Path) -> list[Database]:
    """The databases of a folder: FASTA files, and those of the HH-suite and of MMseqs2 with the program for each.

    Raises:
        UserError: there is none, one is damaged, or its program is not installed.
    """
    hhsuite = sorted(folder.glob("*_cs219.ffindex"))
    found = [Database("hhsuite", path.with_name(path.name.removesuffix("_cs219.ffindex"))) for path in hhsuite]
    # MMseqs2 keeps the headers of NAME in NAME_h; its indices of k-mers are NAME.idx.
    types = [path for path in sorted(folder.glob("*.dbtype")) if not path.name.endswith(("_h.dbtype", ".idx.dbtype"))]
    found += [Database("mmseqs2", path.with_suffix("")) for path in types]
    for database in found:
        check(database)
    files = fasta_files(folder)
    if not files and not found:
        raise UserError(
            f"databases={folder}: no database; expected FASTA files that end in {', '.join(FASTA)} (or .gz), "
            "databases of the HH-suite (NAME_a3m.ffdata ...) or of MMseqs2 (NAME.dbtype ...)"
        )
    return [*(Database("fasta", path) for path in files), *found]


def check(database: Database) -> None:
    """Raises UserError where a file of a database or its program is missing."""
    endings = HHSUITE_PARTS if database.kind == "hhsuite" else ("", ".index", "_h", "_h.index")
    missing = [ending for ending in endings if not database.path.with_name(database.path.name + ending).exists()]
    if missing:
        raise UserError(f"{database.path}: the database is not whole; missing: {', '.join(missing)}")
    program("mmseqs" if database.kind == "mmseqs2" else "hhblits")


def program(name: str) -> str:
    """Where a program is. Raises UserError where it is not installed."""
    found = shutil.which(name)
    if found is None:
        package = PACKAGES[name]
        raise UserError(
            f"{name} is not installed, or not in PATH; apt-get install {package}, or leave its databases out"
        )
    return found


def hhblits(sequence: str, database: Path, cpus: int = 0) -> str:
    """The sequence and its relatives as A3M. Raises SearchFailed."""
    with tempfile.TemporaryDirectory() as name:
        query, result = Path(name) / "query.fasta", Path(name) / "result.a3m"
        query.write_text(f">query\n{sequence}\n")
        words = ["-i", query, "-d", database, "-oa3m", result, "-o", "/dev/null", "-n", 3, "-e", 0.001]
        words += ["-realign_max", MOST_FILTERED, "-maxfilt", MOST_FILTERED, "-min_prefilter_hits", LEAST_PREFILTERED]
        run(program("hhblits"), *words, "-maxseq", LONGEST, "-v", 0, *threads("-cpu", cpus))
        return result.read_text()


def hhsearch(alignment: Alignment, database: Path, cpus: int = 0) -> str:
    """Chains of known structure that are like the profile of an alignment, as hhr. Raises SearchFailed."""
    with tempfile.TemporaryDirectory() as name:
        query, result = Path(name) / "query.a3m", Path(name) / "result.hhr"
        query.write_text(as_a3m(alignment))
        words = ["-i", query, "-d", database, "-o", result, "-maxseq", LONGEST, "-v", 0]
        run(program("hhsearch"), *words, *threads("-cpu", cpus))
        return result.read_text()


def mmseqs2(sequence: str, database: Path, cpus: int = 0) -> str:
    """The sequence and its relatives as A3M. Raises SearchFailed."""
    with tempfile.TemporaryDirectory() as name:
        folder, mmseqs = Path(name), program("mmseqs")
        query, hits, rows = folder / "query", folder / "hits", folder / "rows"
        (folder / "query.fasta").write_text(f">query\n{sequence}\n")
        run(mmseqs, "createdb", folder / "query.fasta", query, "-v", 1)
        words = ["--num-iterations", 3, "-s", 8, "-e", 0.1, "-a", "--max-seqs", MOST_HITS, "-v", 1]
        run(mmseqs, "search", query, database, hits, folder / "scratch", *words, *threads("--threads", cpus))
        run(mmseqs, "result2msa", query, database, hits, rows, "--msa-format-mode", 6, "-v", 1, "--threads", 1)
        return rows.read_text().replace("\0", "")  # a database of one entry, which ends with a zero


def as_a3m(alignment: Alignment) -> str:
    """The rows with an x for each inserted letter: a profile counts insertions, but not which letters they are."""
    lines = []
    for number, (letters, deletions) in enumerate(zip(alignment.letters, alignment.deletions, strict=True)):
        row = "".join(
            "x" * inserted + ALIGNMENT_LETTERS[letter] for letter, inserted in zip(letters, deletions, strict=True)
        )
        lines.append(f">row{number}\n{row}\n")
    return "".join(lines)


def threads(option: str, cpus: int) -> list[object]:
    return [option, cpus] if cpus else []


def run(*words: object) -> None:
    """Runs a program. Raises SearchFailed with the last line that it said."""
    texts = [str(word) for word in words]
    done = subprocess.run(texts, capture_output=True, text=True, errors="replace")
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        said = lines[-1].strip() if lines else f"ended with code {done.returncode}"
        raise SearchFailed(f"{Path(texts[0]).name}: {said}")
