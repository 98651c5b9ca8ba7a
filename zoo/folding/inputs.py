"""Which proteins a folder asks for, each under a name of its own, with its alignments; checked before anything runs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.errors import UserError
from zoo.proteins.alignments import Alignment, read_alignment, single
from zoo.proteins.fasta import Record, read_fasta, read_table
from zoo.proteins.features import MOST_ROWS
from zoo.proteins.known_templates import Template
from zoo.proteins.problems import Problem, fatal
from zoo.proteins.residues import ALIGNMENT_LETTERS, GAP
from zoo.proteins.structures import PDB_CHAINS

SEQUENCES = (".fasta", ".fa", ".faa", ".fas")
TABLES = (".csv", ".tsv")
ALIGNMENTS = (".a3m", ".sto")
PACKED = (".gz", ".xz")
LONGEST_NAME = 100
# The order in which the original joins its databases; others follow by name.
DATABASES = ("uniref90", "bfd", "small_bfd", "mgnify")
HITS = ("pdb_hits", "pdb70_hits", "pdb100_hits", "hmm_output")  # files of template hits beside the alignments
HIT_ENDINGS = (".hhr", ".m8")
PAIRING = "uniprot"  # the database whose rows tell their species


@dataclasses.dataclass(frozen=True)
class Item:
    """One protein of the work list.

    Attributes:
        name: of its files; unique, and safe in a path.
        record: what was given; None where nothing readable was.
        alignments: of each chain, in the order in which they are joined; at least the chain itself.
        pairing: of each chain the alignment whose rows are paired with those of other chains; at least the chain itself.
        paired_by_row: rows of equal number of `pairing` belong together; else those of one species do.
        problems: all that was found; a fatal one fails the item.
        duplicate_of: name of an item that asks for the very same.
        folder: where alignments were found in place of the folder that was given.
    """

    name: str
    record: Record | None
    alignments: tuple[tuple[Alignment, ...], ...] = ()
    pairing: tuple[Alignment, ...] = ()
    paired_by_row: bool = False
    problems: tuple[Problem, ...] = ()
    duplicate_of: str | None = None
    folder: Path | None = None

    @property
    def failed(self) -> bool:
        return self.record is None or bool(fatal(self.problems))

    @property
    def reason(self) -> str:
        return "; ".join(str(problem) for problem in fatal(self.problems))

    @property
    def depth(self) -> int:
        """Rows of all alignments of the chain that has most, before equal ones are left out."""
        return max((sum(len(alignment) for alignment in chain) for chain in self.alignments), default=0)


def read_items(source: Path, alignments: Path | None, single_sequence: bool = False) -> list[Item]:
    """The work list of a file or folder, in the order of the files.

    Args:
        source: a FASTA, A3M, Stockholm, CSV or TSV file, or a folder of these.
        alignments: a folder of alignments in the layout of AlphaFold (NAME/msas, NAME/msas/A), ColabFold (NAME.a3m) or
            OpenFold (NAME/).
        single_sequence: use no alignment, even where there is one.

    Raises:
        UserError: there is no such file or folder, or it holds nothing to predict.
    """
    items: list[Item] = []
    taken: dict[str, Item] = {}
    for path in files_of(source):
        records, problems = records_of(path)
        own = path if kind(path) in ALIGNMENTS else None
        for record in records:
            notes = [problem for problem in problems if problem.record == record.name]
            items.append(item_of(record, own, alignments, single_sequence, notes, taken))
        for name, found in failures(problems, {record.name for record in records}, path).items():
            items.append(Item(unique(name, taken, None), None, problems=tuple(found)))
    return items


def files_of(source: Path) -> list[Path]:
    if not source.exists():
        raise UserError(f"input={source}: no such file or folder")
    if source.is_file():
        return [source]
    known = SEQUENCES + TABLES + ALIGNMENTS
    files = sorted(path for path in source.iterdir() if path.is_file() and kind(path) in known)
    if not files:
        raise UserError(
            f"input={source}: holds no protein; expected files that end in {', '.join(known)} (also packed: .gz, .xz)"
        )
    return files


def kind(path: Path) -> str:
    """The ending of a file that says what it holds."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in PACKED else path.suffix.lower()


def records_of(path: Path) -> tuple[list[Record], list[Problem]]:
    if kind(path) in SEQUENCES:
        return read_fasta(path)
    if kind(path) in TABLES:
        return read_table(path)
    alignment, problems = read_alignment(path)
    if alignment is None:
        return [], problems
    query = "".join(ALIGNMENT_LETTERS[letter] for letter in alignment.letters[0])
    if GAP in alignment.letters[0]:
        return [], [
            Problem(str(path), "the first row of the alignment has a gap; it has to be the query", alignment.names[0])
        ]
    chains: list[str] = []
    start = 0
    for length, copies in alignment.chains or ((len(query), 1),):
        chains += [query[start : start + length]] * copies
        start += length
    if start != len(query):
        return [], [
            Problem(str(path), f"the header speaks of {start} residues, but the query has {len(query)}", line=1)
        ]
    name = path.name.split(".")[0]
    return [Record(name, alignment.names[0], tuple(chains), str(path), 1)], [
        dataclasses.replace(problem, record=name) for problem in problems
    ]


def failures(problems: list[Problem], usable: set[str], path: Path) -> dict[str, list[Problem]]:
    """Fatal problems by the name of the record, or of the file, that they fail."""
    result: dict[str, list[Problem]] = {}
    for problem in fatal(problems):
        if problem.record not in usable or problem.record is None:
            result.setdefault(problem.record or path.name.split(".")[0], []).append(problem)
    return result


def item_of(
    record: Record,
    own: Path | None,
    folder: Path | None,
    single_sequence: bool,
    notes: list[Problem],
    taken: dict[str, Item],
) -> Item:
    same = taken.get(safe(record.name))
    if same is not None and same.record is not None and same.record.chains == record.chains:
        note = Problem(record.file, f"the same protein as {same.name}", record.name, record.line, fatal=False)
        return Item(unique(record.name, taken, None), record, problems=(note,), duplicate_of=same.name)
    found, problems = chain_alignments(record, own, folder, single_sequence)
    name = unique(record.name, taken, None)
    item = Item(name, record, found.own, found.pairing, found.by_row, (*notes, *problems))
    if same is not None:
        note = Problem(
            record.file, f"another protein has this name; called {name}", record.name, record.line, fatal=False
        )
        item = dataclasses.replace(item, problems=(*item.problems, note))
    taken[name] = item
    return item


def safe(name: str) -> str:
    """A file name; long ones are cut and told apart by a digest."""
    text = "".join(letter if letter.isalnum() or letter in "_-." else "_" for letter in name).strip(".") or "protein"
    if len(text) > LONGEST_NAME:
        text = text[: LONGEST_NAME - 9] + "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return text


def unique(name: str, taken: dict[str, Item], item: Item | None) -> str:
    """A name that no other item has, also where capitals do not count; it is taken from now on."""
    base = safe(name)
    used = {one.lower() for one in taken}
    chosen, number = base, 1
    while chosen.lower() in used:
        number += 1
        chosen = f"{base}_{number}"
    taken[chosen] = item or Item(chosen, None)
    return chosen


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


def fingerprint(item: Item, options: str, templates: Sequence[Sequence[Template]] = ()) -> str:
    """What a result depends on, as a digest: sequences, alignments, templates, options."""
    digest = hashlib.sha256(options.encode())
    assert item.record is not None
    digest.update("\0".join(item.record.chains).encode())
    for chain in (*item.alignments, item.pairing):
        for alignment in chain:
            digest.update(alignment.letters.tobytes() + alignment.deletions.tobytes())
    for template in (template for chain in templates for template in chain):
        digest.update(template.letters.encode() + template.positions.tobytes() + template.mask.tobytes())
    return digest.hexdigest()[:16]
