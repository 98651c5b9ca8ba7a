"""Searches of FASTA files in this process, with HMMER's own algorithms through pyhmmer; no program is started.

The thresholds are those with which the original calls jackhmmer (one iteration) and hmmsearch.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.proteins.alignments import Alignment
from zoo.proteins.residues import ALIGNMENT_LETTERS

FASTA = (".fasta", ".fa", ".faa", ".fas")
RELATIVES = {"F1": 5e-4, "F2": 5e-5, "F3": 5e-7, "E": 1e-4, "incE": 1e-4}
TEMPLATES = {"F1": 0.1, "F2": 0.1, "F3": 0.1, "E": 100.0, "incE": 100.0, "domE": 100.0, "incdomE": 100.0}
MOST_IN_PROFILE = 10_000


class SearchFailed(Exception):
    """A search that broke off; the text says in which file and why."""


def library() -> Any:
    try:
        import pyhmmer
    except ImportError:
        raise UserError("searches need pyhmmer, which is not installed: pip install pyhmmer") from None
    return pyhmmer


def fasta_files(folder: Path) -> list[Path]:
    """The FASTA files of a folder, also packed with gzip.

    Raises:
        UserError: one holds no proteins.
    """
    files = sorted(path for path in folder.iterdir() if path.name.lower().removesuffix(".gz").endswith(FASTA))
    for path in files:
        try:
            if packed(path):  # what pyhmmer says of such a file is a chain of its own errors
                with gzip.open(path) as stream:
                    stream.read(1 << 16)
            with opened(path) as sequences:
                empty = sequences.read() is None
        except (ValueError, OSError, EOFError, SystemError, zlib.error) as error:
            raise UserError(f"{path}: no FASTA file of proteins ({reason(error)})") from None
        if empty:
            raise UserError(f"{path}: holds no sequence")
    return files


def opened(path: Path) -> Any:
    """The sequences of a file, read one by one, as no memory holds the large databases."""
    pyhmmer = library()
    source = gzip.open(path) if packed(path) else str(path)  # noqa: SIM115 - closed with what reads it
    return pyhmmer.easel.SequenceFile(source, format="fasta", digital=True, alphabet=pyhmmer.easel.Alphabet.amino())


def reason(error: BaseException) -> str:
    """In a line: of errors that were raised from another the first."""
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def searched(search: Callable[..., Any], query: Any, database: Path, cpus: int, limits: dict[str, float]) -> Any:
    """The hits of one query. A packed file is held in memory, as the threads read others by their name."""
    pyhmmer = library()
    try:
        with opened(database) as sequences:
            targets = sequences.read_block() if packed(database) else sequences
            (hits,) = search([query], targets, cpus=cpus, **limits)
    except (ValueError, OSError, EOFError, SystemError, zlib.error, pyhmmer.errors.AlphabetMismatch) as error:
        raise SearchFailed(f"{database}: {reason(error)}") from None
    return hits


def relatives(name: str, query: str, database: Path, most: int, cpus: int = 0) -> str:
    """The query and its hits as a Stockholm alignment, as `jackhmmer -N 1` writes it.

    Args:
        name, query: header and sequence.
        database: FASTA file.
        most: rows at most, the best ones; with the query.
        cpus: threads; 0 for all.

    Raises:
        SearchFailed: the database cannot be read.
    """
    pyhmmer = library()
    alphabet = pyhmmer.easel.Alphabet.amino()
    sequence = pyhmmer.easel.TextSequence(name=name.encode(), sequence=query).digitize(alphabet)
    hits = searched(pyhmmer.hmmer.phmmer, sequence, database, cpus, RELATIVES)
    for index, hit in enumerate(hits):
        if index >= most - 1:
            hit.dropped = True
    itself = [pyhmmer.plan7.Trace.from_sequence(sequence)]
    return stockholm(hits.to_msa(alphabet, [sequence], itself, digitize=True, all_consensus_cols=True))


def known_relatives(alignment: Alignment, database: Path, cpus: int = 0) -> str:
    """Hits of a profile of the alignment among PDB's sequences, as hmmsearch writes them; columns of the query are marked.

    Raises:
        SearchFailed: the database cannot be read.
    """
    pyhmmer = library()
    alphabet = pyhmmer.easel.Alphabet.amino()
    builder = pyhmmer.plan7.Builder(alphabet, architecture="hand")
    profile, _, _ = builder.build_msa(marked(alignment).digitize(alphabet), pyhmmer.plan7.Background(alphabet))
    hits = searched(pyhmmer.hmmer.hmmsearch, profile, database, cpus, TEMPLATES)
    if not len(hits):
        return "# STOCKHOLM 1.0\n//\n"
    return stockholm(hits.to_msa(alphabet, digitize=True, all_consensus_cols=True))


def marked(alignment: Alignment) -> Any:
    """The alignment for HMMER, every column of the query a state of the profile."""
    signs = np.array(list(ALIGNMENT_LETTERS))
    rows = ["".join(signs[row]) for row in alignment.letters[:MOST_IN_PROFILE]]
    lines = [f"row{number} {row}" for number, row in enumerate(rows)]
    text = "\n".join(["# STOCKHOLM 1.0", "#=GF ID query", *lines, f"#=GC RF {'x' * len(rows[0])}", "//", ""])
    with library().easel.MSAFile(io.BytesIO(text.encode()), format="stockholm") as file:
        return file.read()


def stockholm(found: Any) -> str:
    buffer = io.BytesIO()
    found.write(buffer, "pfam")  # Stockholm with each row on one line
    return buffer.getvalue().decode()
