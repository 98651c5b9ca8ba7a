"""Alignments to a query (A3M, Stockholm): letters and the insertions that were cut out between them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from zoo.proteins.problems import Problem, Unreadable, read_text
from zoo.proteins.residues import ALIGNMENT_INDEX

# A letter's index in the order of HH-suite; 255 where the letter is not allowed.
CODES = np.full(256, 255, np.uint8)
for _letter, _index in ALIGNMENT_INDEX.items():
    CODES[ord(_letter)] = _index

UNIPROT = re.compile(r"(?:tr|sp)\|[A-Za-z0-9]{6,10}(?:_\d)?\|[A-Za-z0-9]+_([A-Za-z0-9]{1,5})(?:_\d+)?")


@dataclasses.dataclass(frozen=True)
class Alignment:
    """Rows of the length of the query, which is the first.

    Attributes:
        names: headers, without `>`.
        letters: [S, N] index in the order of HH-suite.
        deletions: [S, N] how many letters were inserted before this column.
        chains: lengths and copies of the chains where a ColabFold header tells them: ((length, copies), ...).
    """

    names: tuple[str, ...]
    letters: np.ndarray
    deletions: np.ndarray
    chains: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def first(self, count: int) -> Alignment:
        return Alignment(self.names[:count], self.letters[:count], self.deletions[:count], self.chains)

    def part(self, rows: np.ndarray, start: int, stop: int) -> Alignment:
        """Some rows (a mask) of one chain of several."""
        names = tuple(name for name, kept in zip(self.names, rows, strict=True) if kept)
        return Alignment(names, self.letters[rows, start:stop], self.deletions[rows, start:stop])


def single(name: str, sequence: str) -> Alignment:
    """The alignment of a sequence with nothing."""
    letters = encode(sequence)
    return Alignment((name,), letters[None].astype(np.int32), np.zeros((1, len(sequence)), np.int32))


def encode(sequence: str) -> np.ndarray:
    return CODES[np.frombuffer(sequence.encode("ascii", "replace"), np.uint8)]


def read_alignment(path: Path, query: str | None = None) -> tuple[Alignment | None, list[Problem]]:
    """An A3M or Stockholm file; which of both it is follows from its first line.

    Args:
        path: may be packed.
        query: the sequence that the first row has to be.

    Returns:
        the alignment, or None with fatal problems.
    """
    try:
        text = read_text(path)
    except Unreadable as error:
        return None, [error.problem]
    parse = parse_stockholm if text.lstrip().startswith("# STOCKHOLM") else parse_a3m
    return parse(text, str(path), query)


def parse_a3m(text: str, file: str, query: str | None = None) -> tuple[Alignment | None, list[Problem]]:
    """Lower-case letters are insertions; rows of another length than the query are reported by record and line."""
    names: list[str] = []
    lines: list[int] = []
    rows: list[list[str]] = []
    chains: tuple[tuple[int, int], ...] = ()
    problems: list[Problem] = []
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if line.startswith(">"):
            names.append(line[1:])
            lines.append(number)
            rows.append([])
        elif line.startswith("#"):
            chains = chains or complex_header(line)
        elif line and rows:
            rows[-1].append(line)
        elif line:
            return None, [Problem(file, "letters before the first header; expected an A3M alignment", line=number)]
    if not rows or not "".join(rows[0]):
        return None, [Problem(file, "no sequence; an alignment has at least the query")]
    letters: list[np.ndarray] = []
    deletions: list[np.ndarray] = []
    kept: list[int] = []
    for index, parts in enumerate(rows):
        row, inserted = split_insertions("".join(parts))
        bad = problem_of_row(row, len(letters[0]) if letters else None, file, names[index], lines[index])
        if bad:
            problems.append(bad)
            if not letters:
                return None, problems
            continue
        letters.append(row)
        deletions.append(inserted)
        kept.append(index)
    alignment = Alignment(
        tuple(names[i] for i in kept), np.stack(letters).astype(np.int32), np.stack(deletions), chains
    )
    return checked(alignment, query, file, problems)


def complex_header(line: str) -> tuple[tuple[int, int], ...]:
    """`#len1,len2<TAB>copies1,copies2`, as ColabFold writes it; empty for any other comment."""
    match = re.fullmatch(r"#(\d+(?:,\d+)*)\s+(\d+(?:,\d+)*)", line)
    if not match:
        return ()
    lengths, copies = (tuple(int(part) for part in group.split(",")) for group in match.groups())
    return tuple(zip(lengths, copies, strict=True)) if len(lengths) == len(copies) else ()


def split_insertions(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the aligned letters, and the number of lower-case letters before each."""
    raw = np.frombuffer(text.replace(".", "").encode("ascii", "replace"), np.uint8)
    aligned = np.flatnonzero((raw < ord("a")) | (raw > ord("z")))
    inserted = np.diff(aligned, prepend=-1) - 1
    return CODES[raw[aligned]], inserted.astype(np.int32)


def problem_of_row(codes: np.ndarray, length: int | None, file: str, name: str, line: int) -> Problem | None:
    if length is not None and len(codes) != length:
        return Problem(file, f"{len(codes)} aligned letters, but the query has {length}", name, line)
    wrong = np.flatnonzero(codes == 255)
    if len(wrong):
        return Problem(file, "a sign that is neither an amino acid nor a gap", name, line, int(wrong[0]) + 1)
    return None


def parse_stockholm(text: str, file: str, query: str | None = None) -> tuple[Alignment | None, list[Problem]]:
    """Blocks of rows are joined by name; columns where the query has a gap are insertions."""
    rows: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.strip()
        if not line or line.startswith(("#", "//")):
            continue
        parts = line.split()
        if len(parts) != 2:
            return None, [Problem(file, "expected a name and letters", line=number)]
        rows.setdefault(parts[0], []).append(parts[1])
        lines.setdefault(parts[0], number)
    if not rows:
        return None, [Problem(file, "no sequence; an alignment has at least the query")]
    raw = {
        name: np.frombuffer("".join(parts).replace(".", "-").encode("ascii", "replace"), np.uint8)
        for name, parts in rows.items()
    }
    template = next(iter(raw.values()))
    problems: list[Problem] = []
    kept, letters, deletions = [], [], []
    columns = np.flatnonzero(template != ord("-"))
    for name, row in raw.items():
        if len(row) != len(template):
            problems.append(Problem(file, f"{len(row)} columns, but the query has {len(template)}", name, lines[name]))
            continue
        codes = CODES[row[columns] & ~np.where((row[columns] >= 97) & (row[columns] <= 122), 32, 0).astype(np.uint8)]
        bad = problem_of_row(codes, None, file, name, lines[name])
        if bad:
            problems.append(bad)
            continue
        filled = np.concatenate([[0], np.cumsum(row != ord("-"))])
        between = filled[columns] - np.concatenate([[0], filled[columns[:-1] + 1]])
        kept.append(name)
        letters.append(codes)
        deletions.append(between.astype(np.int32))
    if not letters:
        return None, problems
    alignment = Alignment(tuple(kept), np.stack(letters).astype(np.int32), np.stack(deletions))
    return checked(alignment, query, file, problems)


def checked(
    alignment: Alignment, query: str | None, file: str, problems: list[Problem]
) -> tuple[Alignment | None, list[Problem]]:
    """Rows that were left out are notes; a first row that is not the query is fatal."""
    notes = [dataclasses.replace(problem, fatal=False) for problem in problems]
    notes = [dataclasses.replace(note, reason=f"{note.reason}; this row is left out") for note in notes]
    if query is not None:
        wanted, found = encode(query), alignment.letters[0]
        if len(wanted) != len(found):
            text = f"the first row has {len(found)} letters, but the query has {len(query)}"
            return None, [*notes, Problem(file, text, alignment.names[0])]
        same = (wanted == found) | (wanted == 20) | (found == 20)  # X stands for any
        if not same.all():
            column = int(np.flatnonzero(~same)[0]) + 1
            text = "the first row is not the query; the alignment is of another sequence"
            return None, [*notes, Problem(file, text, alignment.names[0], column=column)]
    return alignment, notes


def species(name: str) -> str:
    """The species of a UniProt header (`tr|A0A146SKV9|A0A146SKV9_FUNHE/1-20`), or nothing."""
    word = name.split()[0].partition("/")[0] if name.split() else ""
    match = UNIPROT.fullmatch(word)
    return match.group(1) if match else ""
