"""Template features of a chain from known structures: those that a search has found, or the user's own.

A template that cannot be used is left out, with a note that says why; it never stops anything.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zoo.proteins.experiments import STRUCTURES, Known, KnownChain, library, read_known
from zoo.proteins.features import Features, no_templates
from zoo.proteins.hits import Hit
from zoo.proteins.problems import Problem
from zoo.proteins.residues import ALIGNMENT_INDEX, LETTERS, THREE

MOST_TEMPLATES = 20
LEAST_ALIGNED = 0.1  # share of the query
LEAST_SCORE = 25  # of a structure of the user: chains that are alike by chance stay below 20
SHORTEST = 10  # residues of the template
COPY = 0.95  # a template that is this much of the query itself is left out
LEAST_ATOMS = 5
LEAST_IDENTITY = 0.9  # between the sequence of a hit and that of the structure
FARTHEST = 150.0  # angstrom between CA of neighbours
PACKED = ("", ".gz", ".xz")
NAMES = dict(zip(LETTERS, THREE, strict=True))


@dataclasses.dataclass(frozen=True)
class Template:
    """One chain laid over the query.

    Attributes:
        name: entry and chain, such as 2crb_A.
        letters: [N] its letter at each residue of the query, - where it has none.
        positions: [N, 37, 3] angstrom; mask: [N, 37].
        score: sum of the probabilities, 0 where the search has none.
        report: how it was laid over, for people.
    """

    name: str
    letters: str
    positions: np.ndarray
    mask: np.ndarray
    score: float
    report: str


class Unusable(Exception):
    """Why a template is left out."""


def found_templates(
    query: str, hits: Iterable[Hit], folder: Path, latest: datetime.date | None = None, most: int = MOST_TEMPLATES
) -> tuple[list[Template], list[Problem]]:
    """Templates of the hits, in their order.

    Args:
        query: sequence of the chain.
        hits: in the order in which they are tried.
        folder: mmCIF or PDB files named by their PDB code, also packed.
        latest: structures released later are left out.
        most: templates at most.

    Returns:
        the templates, and a note for each hit that was left out.
    """
    found: list[Template] = []
    notes: list[Problem] = []
    for hit in hits:
        if len(found) >= most:
            break
        try:
            prefilter(query, hit)
            known = structure_of(folder, hit.entry, latest)
            template = laid_over(query, hit, known)
            if template.letters in {one.letters for one in found if hit.score is None}:
                raise Unusable("the same letters as a template before")
            found.append(template)
        except Unusable as error:
            notes.append(Problem(str(folder), f"template left out: {error}", hit.name, fatal=False))
    return found, notes


def prefilter(query: str, hit: Hit) -> None:
    """What the original leaves out before it looks at the structure. Raises Unusable."""
    if not hit.pairs:
        raise Unusable("no residue is aligned")
    if hit.columns / len(query) <= LEAST_ALIGNED:
        raise Unusable(f"{hit.columns} of {len(query)} residues aligned; more than {LEAST_ALIGNED:.0%} are needed")
    if hit.letters is not None:
        if hit.letters in query and len(hit.letters) / len(query) > COPY:
            raise Unusable("it is the query itself")
        if len(hit.letters) < SHORTEST:
            raise Unusable(f"{len(hit.letters)} residues; at least {SHORTEST} are needed")


def structure_of(folder: Path, entry: str, latest: datetime.date | None) -> Known:
    names = [f"{stem}{ending}{packed}" for stem in (entry, entry.upper()) for ending in STRUCTURES for packed in PACKED]
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        raise Unusable(f"{entry}.cif is not in the folder")
    known, problems = read_once(path)
    if known is None:
        raise Unusable(problems[0].reason)
    if latest is not None and known.released is not None and known.released > latest:
        raise Unusable(f"released {known.released}, after {latest}")
    return known


@functools.lru_cache(maxsize=32)
def read_once(path: Path) -> tuple[Known | None, list[Problem]]:
    return read_known(path)


def laid_over(query: str, hit: Hit, known: Known) -> Template:
    """The chain of a hit over the query. Raises Unusable."""
    if hit.letters is None:
        chain = named(known, hit.chain)
        pairs, report = hit.pairs, "as numbered by the search"
        if max(j for _, j in pairs) >= len(chain.letters):
            raise Unusable(f"the chain has {len(chain.letters)} residues, fewer than the search says")
    else:
        where = located(known, hit)
        if where is None:
            chain, pairs = named(known, hit.chain), ()
            pairs = realigned(hit, chain)
            report = "aligned anew, as the structure has another sequence than the search"
        else:
            chain, start = where
            pairs = tuple((i, start + j) for i, j in hit.pairs)
            report = f"from residue {start + 1}"
    return placed(query, known, chain, pairs, hit.score or 0.0, report)


def named(known: Known, name: str) -> KnownChain:
    """The chain that the authors, or else mmCIF, call so; or the only one. Raises Unusable."""
    for attribute in ("name", "label"):
        for chain in known.chains:
            if getattr(chain, attribute) == name:
                return chain
    if len(known.chains) == 1:
        return known.chains[0]
    raise Unusable(f"no chain {name}; there are {', '.join(chain.name for chain in known.chains)}")


def located(known: Known, hit: Hit) -> tuple[KnownChain, int] | None:
    """The chain whose sequence holds the letters of the hit, and from where: the chain of that name before others."""
    assert hit.letters is not None
    chains = sorted(known.chains, key=lambda chain: chain.name != hit.chain)
    for chain in chains:
        if hit.letters in chain.letters:
            return chain, chain.letters.find(hit.letters)
    pattern = re.compile("".join("." if letter == "X" else f"[{letter}X]" for letter in hit.letters))
    for chain in known.chains:
        match = pattern.search(chain.letters)
        if match:
            return chain, match.start()
    return None


def realigned(hit: Hit, chain: KnownChain) -> tuple[tuple[int, int], ...]:
    """Pairs with residues of the chain, by an alignment of its sequence with the letters of the hit. Raises Unusable."""
    assert hit.letters is not None
    pairs, same, _ = sequence_alignment(hit.letters, chain.letters)
    share = same / min(len(hit.letters), len(chain.letters))
    if share < LEAST_IDENTITY:
        raise Unusable(f"the structure has another sequence: {share:.0%} identical, {LEAST_IDENTITY:.0%} are needed")
    of_letter = dict(pairs)
    return tuple((i, of_letter[j]) for i, j in hit.pairs if j in of_letter)


class Likeness(NamedTuple):
    """Attributes:
    pairs: (residue of the first, residue of the second) that are aligned.
    same: how many of them are identical.
    score: by BLOSUM62, without the gaps at the ends.
    """

    pairs: list[tuple[int, int]]
    same: int
    score: int


def sequence_alignment(first: str, second: str) -> Likeness:
    """The global alignment of two sequences by BLOSUM62."""
    gemmi = library()
    # The matrix knows residues by their names; of letters it would only see whether they are equal.
    names = [[NAMES.get(letter, "UNK") for letter in sequence] for sequence in (first, second)]
    scoring = gemmi.AlignmentScoring("b")
    result = gemmi.align_string_sequences(*names, [], scoring)
    one, other = result.add_gaps(first, 1), result.add_gaps(second, 2)
    pairs, i, j, same = [], 0, 0, 0
    for a, b in zip(one, other, strict=True):
        if a != "-" and b != "-":
            pairs.append((i, j))
            same += a == b
        i, j = i + (a != "-"), j + (b != "-")
    ends = [len(row) - len(rest) for row in (one, other) for rest in (row.lstrip("-"), row.rstrip("-")) if rest != row]
    return Likeness(pairs, same, result.score - sum(scoring.gapo + scoring.gape * length for length in ends))


def placed(
    query: str, known: Known, chain: KnownChain, pairs: Iterable[tuple[int, int]], score: float, report: str
) -> Template:
    name = f"{known.name.lower()}_{chain.name}"
    check_distances(name, chain)
    letters = ["-"] * len(query)
    positions, mask = np.zeros((len(query), 37, 3), np.float32), np.zeros((len(query), 37), np.float32)
    count = 0
    for i, j in pairs:
        letters[i], positions[i], mask[i] = chain.letters[j], chain.positions[j], chain.mask[j]
        count += 1
    if mask.sum() < LEAST_ATOMS:
        raise Unusable(f"{name}: no atoms where it is aligned")
    seen = int(mask.any(axis=1).sum())
    label = "" if chain.label == chain.name else f" (chain {chain.label} in mmCIF's own numbering)"
    text = f"{name}{label}: {count} residues aligned, {seen} with atoms; {report}"
    return Template(name, "".join(letters), positions, mask, score, text)


def check_distances(name: str, chain: KnownChain) -> None:
    both = np.flatnonzero(chain.mask[:-1, 1] * chain.mask[1:, 1])
    step = np.linalg.norm(chain.positions[both + 1, 1] - chain.positions[both, 1], axis=-1)
    if len(step) and step.max() > FARTHEST:
        raise Unusable(f"{name}: neighbours {step.max():.0f} angstrom apart")


def own_templates(query: str, files: Iterable[Path]) -> tuple[list[Template], list[Problem]]:
    """Every chain of the user's structure files that is like the query, aligned to it by sequence."""
    found: list[Template] = []
    notes: list[Problem] = []
    for path in files:
        known, problems = read_once(path)
        notes += [dataclasses.replace(problem, fatal=False) for problem in problems]
        for chain in known.chains if known else ():
            pairs, same, score = sequence_alignment(query, chain.letters)
            try:
                if score < LEAST_SCORE:
                    raise Unusable(f"another sequence: BLOSUM62 score {score}, at least {LEAST_SCORE} is needed")
                text = f"{same / max(len(pairs), 1):.0%} identical"
                found.append(placed(query, known, chain, pairs, 0.0, text))  # type: ignore[arg-type]
            except Unusable as error:
                notes.append(Problem(str(path), f"template left out: {error}", chain.name, fatal=False))
    return found, notes


def structure_files(folder: Path) -> list[Path]:
    """The structure files of a folder, or the file itself."""
    if folder.is_file():
        return [folder]
    endings = tuple(f"{ending}{packed}" for ending in STRUCTURES for packed in PACKED)
    return sorted(path for path in folder.iterdir() if path.name.lower().endswith(endings))


def template_features(templates: list[Template], num_res: int) -> Features:
    """Template features of a chain as the original's pipeline for monomers writes them."""
    if not templates:
        return no_templates(num_res)
    kinds = np.array([[ALIGNMENT_INDEX[letter] for letter in template.letters] for template in templates])
    return {
        "template_aatype": np.eye(22, dtype=np.float32)[kinds],
        "template_all_atom_masks": np.stack([template.mask for template in templates]),
        "template_all_atom_positions": np.stack([template.positions for template in templates]),
        "template_domain_names": np.array([template.name.encode() for template in templates]),
        "template_sum_probs": np.array([[template.score] for template in templates], np.float32),
    }
