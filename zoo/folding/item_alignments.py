"""The alignments of every chain of a protein: where they lie, in which order they are joined, which are for pairing."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np

from zoo.proteins.alignments import Alignment, read_alignment, single
from zoo.proteins.fasta import Record
from zoo.proteins.features import MOST_ROWS
from zoo.proteins.problems import Problem
from zoo.proteins.residues import GAP
from zoo.proteins.structures import PDB_CHAINS

ALIGNMENTS = (".a3m", ".sto")
PACKED = (".gz", ".xz")
LONGEST_NAME = 100
# The order in which the original joins its databases; others follow by name.
DATABASES = ("uniref90", "bfd", "small_bfd", "mgnify")
HITS = ("pdb_hits", "pdb70_hits", "pdb100_hits", "hmm_output")  # files of template hits beside the alignments
HIT_ENDINGS = (".hhr", ".m8")
PAIRING = "uniprot"  # the database whose rows tell their species


def kind(path: Path) -> str:
    """The ending of a file that says what it holds."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else path.suffix.lower()


def safe(name: str) -> str:
    """A file name; long ones are cut and told apart by a digest."""
    text = "".join(letter if letter.isalnum() or letter in "_-." else "_" for letter in name).strip(".") or "protein"
    if len(text) > LONGEST_NAME:
        text = text[: LONGEST_NAME - 9] + "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return text


@dataclasses.dataclass(frozen=True)
class Found:
    """The alignments of every chain, as Item has them."""

    own: tuple[tuple[Alignment, ...], ...] = ()
    pairing: tuple[Alignment, ...] = ()
    by_row: bool = False


def chain_alignments(
    record: Record, own: Path | None, folder: Path | None, single_sequence: bool
) -> tuple[Found, list[Problem]]:
    """The alignments of every chain; a chain without any is aligned with itself alone."""
    alone = tuple(single(record.name, chain) for chain in record.chains)
    if single_sequence:
        return Found(tuple((one,) for one in alone), alone), []
    given = own or record.alignment or complex_file(record, folder)
    if given is not None and (len(record.chains) > 1 or given.is_file()):
        return from_one_file(record, given)
    problems: list[Problem] = []
    chains, pairing = [], []
    for number in range(len(record.chains)):
        parts, source, found = one_chain(record, folder, number)
        chains.append(parts or (alone[number],))
        pairing.append(source or alone[number])
        problems += [problem for problem in found if problem not in problems]
    return Found(tuple(chains), tuple(pairing)), problems


def one_chain(
    record: Record, folder: Path | None, number: int
) -> tuple[tuple[Alignment, ...], Alignment | None, list[Problem]]:
    """The alignments of one chain, the one that is for pairing, and what is wrong with them."""
    parts, source, problems = [], None, []
    files = files_of_chain(record, folder, number)
    for path in files:
        alignment, found = read_alignment(path, record.chains[number])
        problems += found
        database = path.name.split("_")[0].split(".")[0]
        if alignment is None:
            continue
        alignment = alignment.first(MOST_ROWS.get(database, len(alignment)))
        if database == PAIRING:
            source = alignment
        else:
            parts.append(alignment)
    if not files and folder is not None:
        text = f"no alignment of chain {number + 1}: the sequence alone"
        problems.append(Problem(str(folder), text, record.name, fatal=False))
    return tuple(parts), source, problems


def complex_file(record: Record, folder: Path | None) -> Path | None:
    if folder is None:
        return None
    candidates = [
        folder / f"{stem}.a3m{packed}" for stem in (record.name, safe(record.name)) for packed in ("", *PACKED)
    ]
    return next((path for path in candidates if path.is_file()), None)


def from_one_file(record: Record, path: Path) -> tuple[Found, list[Problem]]:
    """One alignment of all distinct chains side by side, as ColabFold writes it: rows of several chains are pairs."""
    distinct = list(dict.fromkeys(record.chains))
    alignment, problems = read_alignment(path, "".join(distinct))
    if alignment is None:
        return Found(), problems
    stops = np.cumsum([len(chain) for chain in distinct])
    parts = dict(zip(distinct, np.split(alignment.letters, stops[:-1], axis=1), strict=True))
    filled = np.stack([(letters != GAP).any(axis=1) for letters in parts.values()])
    together = filled.sum(axis=0) > 1
    together[0] = True
    own, pairing = {}, {}
    for index, (chain, stop) in enumerate(zip(distinct, stops, strict=True)):
        alone = filled[index] & ~together
        alone[0] = True
        own[chain] = alignment.part(alone, stop - len(chain), stop)
        pairing[chain] = alignment.part(together, stop - len(chain), stop)
    found = Found(
        tuple((own[chain],) for chain in record.chains), tuple(pairing[chain] for chain in record.chains), True
    )
    return found, problems


def files_of_chain(record: Record, folder: Path | None, number: int) -> list[Path]:
    """The alignment files of one chain, in the order in which the original joins them."""
    other = HITS if len(record.chains) > 1 else (*HITS, PAIRING)
    for place in places_of_chain(record, folder, number):
        files = [path for path in place.iterdir() if kind(path) in ALIGNMENTS and not path.name.startswith(other)]
        if files:
            return sorted(files, key=lambda path: (database_rank(path.name), path.name))
    return []


def hits_of_chain(record: Record, folder: Path | None, number: int) -> list[Path]:
    """The files of template hits of one chain: in the places of its alignments, or named as it is."""
    if folder is None or folder.is_file():
        return [folder] if folder else []
    for place in places_of_chain(record, folder, number):
        files = [path for path in place.iterdir() if path.name.startswith(HITS) or kind(path) in HIT_ENDINGS]
        if files:
            return sorted(files)
    named = (f"{record.name}_", f"{record.name}.")
    return sorted(path for path in folder.iterdir() if path.name.startswith(named) and kind(path) in HIT_ENDINGS)


def places_of_chain(record: Record, folder: Path | None, number: int) -> list[Path]:
    """Folders that may hold the files of one chain, in the layouts of AlphaFold and OpenFold."""
    if folder is None:
        return []
    first = record.chains.index(record.chains[number])  # copies share the files of the first
    letter = chain_letter(first)
    found: list[Path] = []
    for base in (folder / record.name, folder / safe(record.name)):
        found += [base / "msas" / letter, base / letter]
        found += [base / "msas", base] if len(record.chains) == 1 else []
    return [place for place in dict.fromkeys(found) if place.is_dir()]


def chain_letter(number: int) -> str:
    """Name of the folder of a chain, from 0."""
    return PDB_CHAINS[number] if number < len(PDB_CHAINS) else str(number + 1)


def database_rank(name: str) -> int:
    return next((rank for rank, database in enumerate(DATABASES) if name.startswith(database)), len(DATABASES))
