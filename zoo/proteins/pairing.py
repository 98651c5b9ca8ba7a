"""Which rows of the alignments of several chains belong to one organism and stand side by side (Evans et al. 2021, section 7.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_OF_A_SPECIES = 600  # a species with more rows than this in one chain is left out


def paired_rows(letters: Sequence[np.ndarray], species: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of every chain that belong together, most chains first and, among these, good rows first.

    The queries are the first pair. Of each species the rows most like their query are paired in order, as many as the chain
    with the fewest has; a chain without the species gets -1, a row of gaps.

    Args:
        letters: of each chain the alignment [S, N]; the first row is the query.
        species: of each chain its species [S], b"" where none is known.

    Returns:
        [pairs, chains] row numbers, -1 for gaps.
    """
    rows_of = [rows_by_species(*chain) for chain in zip(letters, species, strict=True)]
    found: dict[int, list[np.ndarray]] = {len(rows_of): [np.zeros(len(rows_of), np.int64)]}
    for name in sorted({name for chain in rows_of for name in chain if name}):
        here = [chain.get(name) for chain in rows_of]
        present = [rows for rows in here if rows is not None]
        if len(present) < 2 or max(map(len, present)) > MOST_OF_A_SPECIES:
            continue
        count = min(map(len, present))
        columns = [np.full(count, -1) if rows is None else rows[:count] for rows in here]
        found.setdefault(len(present), []).extend(np.stack(columns, axis=1))
    groups = [np.stack(found[count]) for count in sorted(found, reverse=True)]
    return np.concatenate([group[np.argsort(np.abs(group.prod(axis=1)), kind="stable")] for group in groups])


def rows_by_species(letters: np.ndarray, species: np.ndarray) -> dict[bytes, np.ndarray]:
    """The rows of each species, those most like the query first."""
    likeness = np.mean(letters == letters[:1], axis=1, dtype=np.float32)
    order = np.argsort(-likeness, kind="stable")
    result: dict[bytes, list[int]] = {}
    for row in order:
        result.setdefault(bytes(species[row]), []).append(int(row))
    return {name: np.array(rows) for name, rows in result.items()}
