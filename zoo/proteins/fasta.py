"""Sequences from FASTA files and from tables (CSV, TSV), checked letter by letter."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

from zoo.proteins.problems import Problem, Unreadable, read_text

AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWYX")
RARE = {"U": "selenocysteine", "O": "pyrrolysine", "B": "D or N", "Z": "E or Q", "J": "I or L"}  # the network sees X
NUCLEOTIDES = frozenset("ACGTUN")


@dataclasses.dataclass(frozen=True)
class Record:
    """One protein as a user gave it.

    Attributes:
        name: first word of the header.
        description: the whole header.
        chains: the sequences, upper case; more than one for a complex.
        file, line: where it stands.
        alignment, templates: files that a table names for it.
    """

    name: str
    description: str
    chains: tuple[str, ...]
    file: str
    line: int
    alignment: Path | None = None
    templates: Path | None = None

    @property
    def length(self) -> int:
        return sum(len(chain) for chain in self.chains)


def read_fasta(path: Path) -> tuple[list[Record], list[Problem]]:
    """Every usable record of a FASTA file, and what is wrong with the others; never raises for what the file holds."""
    try:
        text = read_text(path)
    except Unreadable as error:
        return [], [error.problem]
    return parse_fasta(text, str(path))


def parse_fasta(text: str, file: str) -> tuple[list[Record], list[Problem]]:
    """As `read_fasta`, from text."""
    records: list[Record] = []
    problems: list[Problem] = []
    for header, line, rows in split_records(text, file, problems):
        name = header.split()[0] if header.split() else ""
        if not name:
            problems.append(Problem(file, "a header without a name; write >name", line=line))
            continue
        chains, found = clean_chains(rows, file, name)
        problems += found
        if not rows:
            problems.append(Problem(file, "no sequence follows the header", name, line))
        elif not any(problem.fatal for problem in found):
            records.append(Record(name, header, chains, file, line))
    if not records and not problems:
        problems.append(Problem(file, "empty: no record; expected >name and a sequence"))
    return records, problems


def split_records(text: str, file: str, problems: list[Problem]) -> list[tuple[str, int, list[tuple[int, str]]]]:
    """(header, its line, [(line, letters)]) of each record; blank lines and comments (# or ;) are left out."""
    records: list[tuple[str, int, list[tuple[int, str]]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", ";")):
            continue
        if stripped.startswith(">"):
            records.append((stripped[1:].strip(), number, []))
        elif records:
            records[-1][2].append((number, line))
        else:
            problems.append(Problem(file, "letters before the first header; write >name above them", line=number))
            return []
    return records


def clean_chains(rows: list[tuple[int, str]], file: str, name: str) -> tuple[tuple[str, ...], list[Problem]]:
    """The chains of one record, upper case, and notes and errors about them; `:` starts a further chain."""
    letters = [
        (letter, line, column)
        for line, row in rows
        for column, letter in enumerate(row, start=1)
        if not letter.isspace()
    ]
    problems: list[Problem] = []
    if any(letter.islower() for letter, _, _ in letters):
        line, column = next((line, column) for letter, line, column in letters if letter.islower())
        problems.append(Problem(file, "lower-case letters, read as upper case", name, line, column, fatal=False))
    chains = [""]
    for index, (letter, line, column) in enumerate(letters):
        ends = index + 1 == len(letters) or letters[index + 1][0] == ":"
        upper = letter.upper()
        if letter == ":":
            chains.append("")
        elif letter == "*" and ends:
            problems.append(Problem(file, "the final * (stop) is left out", name, line, column, fatal=False))
        elif upper in AMINO_ACIDS or upper in RARE:
            chains[-1] += upper
        else:
            problems.append(Problem(file, refusal(letter), name, line, column))
    if not all(chains) and letters and not any(problem.fatal for problem in problems):
        problems.append(Problem(file, "an empty chain; write A:B with letters on both sides", name, letters[0][1]))
    sequence = "".join(chains)
    if len(sequence) > 20 and set(sequence) <= NUCLEOTIDES and not any(problem.fatal for problem in problems):
        problems.append(
            Problem(
                file, "only the letters A C G T U N: DNA or RNA? Expected amino acids", name, letters[0][1], fatal=False
            )
        )
    return tuple(chains), problems


def refusal(letter: str) -> str:
    if letter == "-":
        return "a gap (-) in a sequence; remove it, or give an alignment as .a3m"
    if letter == "*":
        return "a stop (*) inside the sequence; only a final one is left out"
    return f"{letter!r} is no amino acid; allowed are {''.join(sorted(AMINO_ACIDS))} and {''.join(sorted(RARE))}"


def read_table(path: Path) -> tuple[list[Record], list[Problem]]:
    """Records of a CSV or TSV with the columns id, sequence and optionally a3mpath, templatepath."""
    file = str(path)
    try:
        text = read_text(path)
    except Unreadable as error:
        return [], [error.problem]
    first = text.split("\n", 1)[0]
    rows = csv.DictReader(io.StringIO(text), delimiter="\t" if "\t" in first else ",")
    columns = [(column or "").strip().lower() for column in rows.fieldnames or []]
    if "id" not in columns or "sequence" not in columns:
        found = ", ".join(columns) or "nothing"
        return [], [
            Problem(file, f"the columns are {found}; expected id and sequence (and a3mpath, templatepath)", line=1)
        ]
    rows.fieldnames = columns
    records: list[Record] = []
    problems: list[Problem] = []
    for row in rows:
        line, name = rows.line_num, (row["id"] or "").strip()
        if not name or not (row["sequence"] or "").strip():
            problems.append(Problem(file, "a row without an id or a sequence", name or None, line))
            continue
        chains, found_problems = clean_chains([(line, row["sequence"].strip())], file, name)
        extra, missing = linked_files(row, path, name, line)
        problems += found_problems + missing
        if not any(problem.fatal for problem in found_problems + missing):
            records.append(Record(name, name, chains, file, line, *extra))
    return records, problems


def linked_files(
    row: dict[str, str | None], path: Path, name: str, line: int
) -> tuple[tuple[Path | None, Path | None], list[Problem]]:
    files: list[Path | None] = []
    problems = []
    for column in ("a3mpath", "templatepath"):
        value = (row.get(column) or "").strip()
        target = (path.parent / value) if value else None
        if target is not None and not target.exists():
            problems.append(Problem(str(path), f"{column}={value}: no such file", name, line))
        files.append(target)
    return (files[0], files[1]), problems
