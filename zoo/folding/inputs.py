"""Which proteins a folder asks for, each under a name of its own, with its alignments; checked before anything runs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from zoo.errors import UserError
from zoo.folding.item_alignments import ALIGNMENTS, chain_alignments, kind, safe
from zoo.proteins.alignments import Alignment, read_alignment
from zoo.proteins.fasta import Record, read_fasta, read_table
from zoo.proteins.known_templates import Template
from zoo.proteins.problems import Problem, fatal
from zoo.proteins.residues import ALIGNMENT_LETTERS, GAP

SEQUENCES = (".fasta", ".fa", ".faa", ".fas")
TABLES = (".csv", ".tsv")
READ = SEQUENCES + TABLES + ALIGNMENTS
OUTPUTS = ("summary.csv", "index.html")
"""What lies beside the folders of the proteins, so that none may be called so."""
EXPECTED = f"files that end in {', '.join(READ)} (also packed: .gz, .xz)"


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
            # What is wrong with the rows of an alignment is found once more, and said, where they are read for its chains.
            notes = [problem for problem in problems if problem.record == record.name and own is None]
            items.append(item_of(record, own, alignments, single_sequence, notes, taken))
        for name, found in failures(problems, {record.name for record in records}, path).items():
            items.append(Item(unique(name, taken, None), None, problems=tuple(found)))
    return items


def files_of(source: Path) -> list[Path]:
    if not source.exists():
        raise UserError(f"input={source}: no such file or folder")
    files = sorted(path for path in within(source) if kind(path) in READ)
    if not files:
        what = "is no file of proteins" if source.is_file() else "holds no protein"
        if source.is_dir() and any(path.is_dir() for path in source.iterdir()):
            what += " (its folders are not looked into; name one of them)"
        raise UserError(f"input={source}: {what}; expected {EXPECTED}")
    return files


def passed_over(source: Path) -> list[Problem]:
    """What is in a folder and is not read: files of other endings, folders, links to nothing."""
    if source.is_file():
        return []
    found = []
    for path in sorted(source.iterdir()):
        if path.is_dir():
            reason = "a folder, not looked into; give it as input= of a run of its own"
        elif not path.exists():
            reason = "a link to nothing"
        elif kind(path) not in READ:
            reason = f"not read; proteins are in {EXPECTED}"
        else:
            continue
        found += [Problem(str(path), reason, fatal=False)] if not path.name.startswith(".") else []
    return found


def within(source: Path) -> list[Path]:
    return [source] if source.is_file() else [path for path in source.iterdir() if path.is_file()]


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
        text = f"the same protein as {same.record.file}, whose results are in {same.name}"
        note = Problem(record.file, text, record.name, record.line, fatal=False)
        return Item(unique(record.name, taken, None), record, problems=(note,), duplicate_of=same.name)
    found, problems = chain_alignments(record, own, folder, single_sequence)
    name = unique(record.name, taken, None)
    item = Item(name, record, found.own, found.pairing, found.by_row, (*notes, *problems))
    if same is not None or name != record.name:
        why = "another protein has this name" if same is not None else "the name of its folder"
        note = Problem(record.file, f"called {name}: {why}", record.name, record.line, fatal=False)
        item = dataclasses.replace(item, problems=(*item.problems, note))
    taken[name] = item
    return item


def unique(name: str, taken: dict[str, Item], item: Item | None) -> str:
    """A name that no other item has, also where capitals do not count; it is taken from now on."""
    base = safe(name)
    used = {one.lower() for one in (*taken, *OUTPUTS)}
    chosen, number = base, 1
    while chosen.lower() in used:
        number += 1
        chosen = f"{base}_{number}"
    taken[chosen] = item or Item(chosen, None)
    return chosen


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
