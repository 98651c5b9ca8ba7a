"""Raw features of a chain, as AlphaFold's own pipeline writes them: names, shapes and types are its."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zoo.proteins.alignments import Alignment, species
from zoo.proteins.residues import LETTER_INDEX, UNKNOWN

Features = dict[str, np.ndarray]

# How many rows of a database the original reads.
MOST_ROWS = {"uniref90": 10_000, "mgnify": 501, "uniprot": 50_000}


def sequence_features(name: str, sequence: str) -> Features:
    """aatype [N, 21] one-hot (rare letters are X), residue_index and the rest that a sequence alone gives.

    Args:
        name: header of the sequence.
        sequence: upper-case letters.
    """
    num_res = len(sequence)
    kinds = np.array([LETTER_INDEX.get(letter, UNKNOWN) for letter in sequence], np.int64)
    return {
        "aatype": np.eye(21, dtype=np.int32)[kinds],
        "between_segment_residues": np.zeros(num_res, np.int32),
        "domain_name": np.array([name.encode()]),
        "residue_index": np.arange(num_res, dtype=np.int32),
        "seq_length": np.full(num_res, num_res, np.int32),
        "sequence": np.array([sequence.encode()]),
    }


def alignment_features(alignments: Sequence[Alignment]) -> Features:
    """The rows of all alignments one after another, each sequence once: the first of equal rows stays.

    Returns:
        msa and deletion_matrix_int [S, N] int32 (letters in the order of HH-suite), num_alignments [N],
        msa_species_identifiers [S].
    """
    assert alignments, "at least the query itself"
    letters = np.concatenate([alignment.letters for alignment in alignments])
    deletions = np.concatenate([alignment.deletions for alignment in alignments])
    names = [name for alignment in alignments for name in alignment.names]
    first = first_of_equal(letters)
    return {
        "deletion_matrix_int": deletions[first].astype(np.int32),
        "msa": letters[first].astype(np.int32),
        "num_alignments": np.full(letters.shape[1], len(first), np.int32),
        "msa_species_identifiers": np.array([species(names[index]).encode() for index in first]),
    }


def first_of_equal(rows: np.ndarray) -> np.ndarray:
    """Indices, in order, of the rows that no earlier row equals."""
    seen: dict[bytes, int] = {}
    for index, row in enumerate(rows.astype(np.uint8)):
        seen.setdefault(row.tobytes(), index)
    return np.fromiter(seen.values(), np.int64, len(seen))


def no_templates(num_res: int) -> Features:
    """The template features of a chain without templates."""
    return {
        "template_aatype": np.zeros((0, num_res, 22), np.float32),
        "template_all_atom_masks": np.zeros((0, num_res, 37), np.float32),
        "template_all_atom_positions": np.zeros((0, num_res, 37, 3), np.float32),
        "template_domain_names": np.zeros((0,), "S1"),
        "template_sum_probs": np.zeros((0, 1), np.float32),
    }


def argmax_types(features: Features) -> np.ndarray:
    """The residue types [N] int32 of a one-hot aatype."""
    return np.argmax(features["aatype"], axis=-1).astype(np.int32)
