"""Hits of template searches: which residues of a known chain stand for which of the query (hhr, hmmsearch, m8)."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from zoo.proteins.problems import Problem, Unreadable, read_text

HHR_ROW = re.compile(r"\s*(\d+)\s+([A-Za-z-]+)\s+\d+\s+\(\d+\)\s*$")
HMMSEARCH_NAME = re.compile(r"([A-Za-z0-9]+)_(\w+)/(\d+)-(\d+)")
CIGAR = re.compile(r"(\d+)([MID])")


@dataclasses.dataclass(frozen=True)
class Hit:
    """One chain of a known structure, aligned to the query.

    Attributes:
        name: as the search names it, such as 2CRB_A.
        letters: the aligned stretch of the chain, without gaps; None where the search does not tell them.
        pairs: (residue of the query, letter of `letters`), from 0; where there are no letters, residue of the chain.
        columns: aligned, as the search counts them.
        score: sum of the probabilities, or None where the search has none.
    """

    name: str
    letters: str | None
    pairs: tuple[tuple[int, int], ...]
    columns: int
    score: float | None

    @property
    def entry(self) -> str:
        """The PDB code, lower case."""
        return self.name.partition("_")[0].lower()

    @property
    def chain(self) -> str:
        return self.name.partition("_")[2]


def read_hits(path: Path, query: str, name: str = "") -> tuple[list[Hit], list[Problem]]:
    """The hits of a file in the order in which they are tried; what kind of file it is follows from what it holds.

    Args:
        path: hhr (HHsearch), a3m or Stockholm (hmmsearch on PDB sequences), m8 (MMseqs2, as ColabFold writes it); may be packed.
        query: the sequence of the chain.
        name: of the query in an m8 file; its rows for other queries are left out.
    """
    try:
        text = read_text(path)
    except Unreadable as error:
        return [], [error.problem]
    start = text.lstrip()[:200]
    try:
        if re.match(r"Query\s", start):
            hits = sorted(parse_hhr(text, query), key=lambda hit: -(hit.score or 0.0))
        elif start.startswith("# STOCKHOLM"):
            hits = parse_hmmsearch(stockholm_rows(text), query)
        elif start.startswith(">"):
            hits = parse_hmmsearch(a3m_rows(text), query)
        else:
            hits = parse_m8(text, name)
    except (ValueError, IndexError) as error:
        return [], [Problem(str(path), f"no hits of hhsearch, hmmsearch or mmseqs2 ({error})")]
    return hits, []


def parse_hhr(text: str, query: str) -> list[Hit]:
    """The alignments of an hhr file. Raises ValueError where one cannot be read."""
    hits = []
    for block in re.split(r"^No \d+\s*$", text, flags=re.MULTILINE)[1:]:
        lines = block.strip("\n").split("\n")
        summary = re.search(r"Aligned_cols=(\d+).*Sum_probs=([\d.]+)", lines[1])
        if not lines[0].startswith(">") or summary is None:
            raise ValueError(f"an alignment without its summary: {lines[0][:60]!r}")
        ours, theirs = hhr_rows(lines, "Q"), hhr_rows(lines, "T")
        # The rows name only a stretch of the query; where it stands is looked up, as numbers start anew in some versions.
        offset = query.find(ours.replace("-", ""))
        if offset < 0:
            raise ValueError(f"{lines[0][1:20]}: the query of the alignment is another sequence")
        pairs = tuple((offset + i, j) for i, j in aligned(ours, theirs))
        hits.append(Hit(lines[0][1:].split()[0], theirs.replace("-", ""), pairs, int(summary[1]), float(summary[2])))
    return hits


def hhr_rows(lines: list[str], side: str) -> str:
    """The letters of the query (Q) or template (T) over all blocks of an alignment."""
    parts = []
    for line in lines:
        words = line.split()
        if len(words) > 2 and words[0] == side and words[1] not in ("Consensus", "ss_dssp", "ss_pred"):
            match = HHR_ROW.match(line[17:])
            if match is None:
                raise ValueError(f"a row that cannot be read: {line[:60]!r}")
            parts.append(match[2])
    return "".join(parts)


def aligned(first: str, second: str) -> list[tuple[int, int]]:
    """Which letters of two rows with gaps stand under each other, counted without gaps."""
    pairs, i, j = [], 0, 0
    for one, other in zip(first, second, strict=True):
        if one != "-" and other != "-":
            pairs.append((i, j))
        i, j = i + (one != "-"), j + (other != "-")
    return pairs


def a3m_rows(text: str) -> list[tuple[str, str]]:
    """(header, letters) of each row."""
    rows = [block.partition("\n") for block in text.split(">")[1:]]
    return [(header.strip(), letters.replace("\n", "").replace(".", "")) for header, _, letters in rows]


def stockholm_rows(text: str) -> list[tuple[str, str]]:
    """As `a3m_rows`; columns outside the model (`#=GC RF` has a dot there) become lower case."""
    rows: dict[str, str] = {}
    model = ""
    for line in text.split("\n"):
        words = line.split()
        if line.startswith("#=GC RF"):
            model += words[-1]
        elif words and not line.startswith(("#", "//")):
            rows[words[0]] = rows.get(words[0], "") + words[1]
    if any(len(row) != len(model) for row in rows.values()):
        raise ValueError("no `#=GC RF` row of the length of the alignment")
    return [(name, as_a3m(row, model)) for (name, row) in rows.items()]


def as_a3m(row: str, model: str) -> str:
    """A Stockholm row as A3M: gaps in columns of the model stay, letters in others are lower case."""
    result = []
    for letter, column in zip(row, model, strict=True):
        gap = letter in ".-"
        if column != ".":
            result.append("-" if gap else letter.upper())
        elif not gap:
            result.append(letter.lower())
    return "".join(result)


def parse_hmmsearch(rows: list[tuple[str, str]], query: str) -> list[Hit]:
    """Hits on PDB sequences; each row is aligned to the whole query, insertions in lower case."""
    hits = []
    for header, row in rows:
        match = HMMSEARCH_NAME.match(header)
        if match is None:
            continue  # the query itself
        kept = [letter for letter in row if not letter.islower()]
        if len(kept) != len(query):
            raise ValueError(f"{header[:40]}: {len(kept)} columns, but the query has {len(query)} residues")
        pairs, column, place = [], 0, 0
        for letter in row:
            if letter.islower():
                place += 1
                continue
            if letter != "-":
                pairs.append((column, place))
                place += 1
            column += 1
        hits.append(Hit(f"{match[1]}_{match[2]}", row.replace("-", "").upper(), tuple(pairs), len(pairs), None))
    return hits


def parse_m8(text: str, name: str) -> list[Hit]:
    """Rows of `name` (all rows, where it is empty or no row has it) with a CIGAR in their last column."""
    rows = [line.split("\t") for line in text.split("\n") if line.strip() and not line.startswith("#")]
    if not rows or any(len(row) < 13 for row in rows):
        raise ValueError("expected 13 columns divided by tabs, the last a CIGAR")
    own = [row for row in rows if row[0] == name]
    hits = []
    for row in own or ([] if name and len({row[0] for row in rows}) > 1 else rows):
        i, j, pairs = int(row[6]) - 1, int(row[8]) - 1, []
        for count, kind in CIGAR.findall(row[12]):
            if kind == "M":
                pairs += [(i + step, j + step) for step in range(int(count))]
            # An insertion is a stretch of the query alone, a deletion one of the chain alone.
            i, j = i + int(count) * (kind != "D"), j + int(count) * (kind != "I")
        hits.append(Hit(row[1], None, tuple(pairs), len(pairs), None))
    return hits
