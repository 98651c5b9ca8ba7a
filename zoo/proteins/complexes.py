"""Raw features of a complex from those of its chains, as the original's pipeline for AlphaFold-Multimer writes them.

Copies of one sequence stand side by side in every row of the alignment. Different sequences share the rows that belong to one
organism; below these each has rows of its own, with gaps under the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from zoo.proteins.features import Features, argmax_types
from zoo.proteins.pairing import paired_rows
from zoo.proteins.residues import ALIGNMENT_TO_TYPE, GAP, tables

MOST_ROWS = 2048  # of each chain
MOST_TEMPLATES = 4
FEWEST_ROWS = 512  # rows of padding make up for fewer


@dataclasses.dataclass(frozen=True)
class Rows:
    """letters [S, N] in the order of HH-suite, and insertions [S, N]."""

    letters: np.ndarray
    deletions: np.ndarray

    def __getitem__(self, rows: slice | list[int]) -> Rows:
        return Rows(self.letters[rows], self.deletions[rows])


def chain_order(sequences: Sequence[str]) -> list[int]:
    """The order in which the network sees the chains: copies of one sequence together, in the order of their first."""
    distinct = list(dict.fromkeys(sequences))
    return sorted(range(len(sequences)), key=lambda chain: distinct.index(sequences[chain]))


def complex_features(
    sequences: Sequence[str], chains: Sequence[Features], sources: Sequence[Features], by_row: bool = False
) -> Features:
    """Features of the whole, its chains in the order of `chain_order`.

    Args:
        sequences: of each chain.
        chains: raw features of each, as the monomer has them; of equal sequences they are equal.
        sources: of each chain the features of the alignment whose rows are paired with those of other chains; not read where
            all sequences are equal.
        by_row: rows of the sources of equal number are paired already.

    Returns:
        msa, deletion_matrix, msa_mask, bert_mask [S, N], cluster_bias_mask [S], aatype, residue_index, asym_id, entity_id,
        sym_id, entity_mask, seq_mask, deletion_mean [N], all_atom_mask [N, 37], all_atom_positions [N, 37, 3], the
        templates [4, N, ...], and the counts seq_length, num_alignments, num_templates, assembly_num_chains.
    """
    order = chain_order(sequences)
    sequences = [sequences[chain] for chain in order]
    chains, sources = [chains[chain] for chain in order], [sources[chain] for chain in order]
    own = [Rows(chain["msa"], chain["deletion_matrix_int"]) for chain in chains]
    shared: list[Rows] = []
    if len(set(sequences)) > 1:
        shared = side_by_side(sources, by_row)
        own = [rows[new_rows(rows, pairs)] for rows, pairs in zip(own, shared, strict=True)]
        shared = [pairs[: MOST_ROWS // 2] for pairs in shared]
    own = [rows[: MOST_ROWS - filled_rows(shared[chain : chain + 1])] for chain, rows in enumerate(own)]
    blocks = [joined([own[chain] for chain in copies]) for copies in copies_of(sequences)]
    return residue_features(sequences, chains) | alignment_of(blocks, shared)


def side_by_side(sources: Sequence[Features], by_row: bool) -> list[Rows]:
    """Of each chain the rows that are paired, gaps where it has none."""
    if by_row:
        counted = np.arange(min(len(source["msa"]) for source in sources))
        pairs = np.repeat(counted[:, None], len(sources), axis=1)
    else:
        letters, species = zip(*((source["msa"], source["msa_species_identifiers"]) for source in sources), strict=True)
        pairs = paired_rows(letters, species)
    gap = [np.full_like(source["msa"][:1], GAP) for source in sources]
    return [
        Rows(
            np.concatenate([source["msa"], gap[chain]])[pairs[:, chain]],
            np.concatenate([source["deletion_matrix_int"], np.zeros_like(gap[chain])])[pairs[:, chain]],
        )
        for chain, source in enumerate(sources)
    ]


def new_rows(own: Rows, pairs: Rows) -> list[int]:
    """The rows of a chain that are not among its pairs."""
    seen = {row.tobytes() for row in pairs.letters.astype(np.uint8)}
    return [index for index, row in enumerate(own.letters.astype(np.uint8)) if row.tobytes() not in seen]


def filled_rows(pairs: Sequence[Rows]) -> int:
    """How many of the pairs are more than gaps."""
    return sum(int(np.count_nonzero((rows.letters != GAP).any(axis=1))) for rows in pairs)


def copies_of(sequences: Sequence[str]) -> list[list[int]]:
    """The chains of each different sequence."""
    return [[c for c, one in enumerate(sequences) if one == sequence] for sequence in dict.fromkeys(sequences)]


def joined(rows: Sequence[Rows]) -> Rows:
    return Rows(*(np.concatenate([getattr(one, name) for one in rows], axis=1) for name in ("letters", "deletions")))


def alignment_of(blocks: Sequence[Rows], shared: Sequence[Rows]) -> Features:
    """The pairs above, below these the blocks one after another; at least FEWEST_ROWS rows."""
    letters = on_the_diagonal([block.letters for block in blocks], GAP)
    deletions = on_the_diagonal([block.deletions for block in blocks], 0)
    real = on_the_diagonal([np.ones(block.letters.shape, np.float32) for block in blocks], 0)
    first = np.concatenate([np.arange(len(block.letters)) == 0 for block in blocks])
    if shared:
        above = joined(shared)
        letters, deletions = np.concatenate([above.letters, letters]), np.concatenate([above.deletions, deletions])
        real = np.concatenate([np.ones(above.letters.shape, np.float32), real])
        first = np.arange(len(letters)) == 0
    rows = {
        "msa": ALIGNMENT_TO_TYPE[letters].astype(np.int32),
        "deletion_matrix": deletions.astype(np.float32),
        "msa_mask": np.ones(letters.shape, np.float32),
        "bert_mask": real,
        "cluster_bias_mask": first.astype(np.float64),
    }
    missing = max(FEWEST_ROWS - len(letters), 0)
    rows = {name: np.pad(value, [(0, missing)] + [(0, 0)] * (value.ndim - 1)) for name, value in rows.items()}
    return rows | {"num_alignments": np.asarray(len(letters), np.int32)}


def on_the_diagonal(blocks: Sequence[np.ndarray], fill: int) -> np.ndarray:
    """Blocks [S_i, N_i] along the diagonal of [sum S_i, sum N_i]."""
    sizes = np.array([block.shape for block in blocks])
    result = np.full(sizes.sum(axis=0), fill, blocks[0].dtype)
    for block, (row, column) in zip(blocks, np.cumsum(sizes, axis=0) - sizes, strict=True):
        result[row : row + block.shape[0], column : column + block.shape[1]] = block
    return result


def residue_features(sequences: Sequence[str], chains: Sequence[Features]) -> Features:
    """What there is of each residue and of its templates."""
    distinct, lengths = list(dict.fromkeys(sequences)), [len(sequence) for sequence in sequences]
    copy = [sequences[: chain + 1].count(sequence) for chain, sequence in enumerate(sequences)]
    entity = [distinct.index(sequence) + 1 for sequence in sequences]
    numbers = {"asym_id": range(1, len(sequences) + 1), "entity_id": entity, "sym_id": copy}
    kinds = np.concatenate([argmax_types(chain) for chain in chains])
    templates = [chain_templates(chain) for chain in chains]
    return {
        **{name: np.repeat(np.array(values, np.float64), lengths) for name, values in numbers.items()},
        **{name: np.concatenate([each[name] for each in templates], axis=1) for name in templates[0]},
        "aatype": kinds,
        "residue_index": np.concatenate([chain["residue_index"] for chain in chains]),
        "deletion_mean": np.concatenate(
            [np.mean(chain["deletion_matrix_int"].astype(np.float32), axis=0) for chain in chains]
        ),
        "entity_mask": np.ones(len(kinds), np.int32),
        "seq_mask": np.ones(len(kinds), np.float32),
        "all_atom_mask": tables().atom37_mask[kinds].astype(np.int32),
        "all_atom_positions": np.zeros((len(kinds), 37, 3)),
        "seq_length": np.asarray(len(kinds), np.int32),
        "num_templates": np.asarray(min(len(chains[0]["template_aatype"]), MOST_TEMPLATES), np.int32),
        "assembly_num_chains": np.asarray(len(sequences)),
    }


def chain_templates(chain: Features) -> Features:
    """The first templates of a chain, in the network's types, filled up with empty ones."""
    kinds = ALIGNMENT_TO_TYPE[np.argmax(chain["template_aatype"], axis=-1)].astype(np.int64)
    found = {
        "template_aatype": kinds.reshape(chain["template_aatype"].shape[:2]),
        "template_all_atom_positions": chain["template_all_atom_positions"],
        "template_all_atom_mask": chain["template_all_atom_masks"],
    }
    missing = max(MOST_TEMPLATES - len(kinds), 0)
    return {
        name: np.pad(value[:MOST_TEMPLATES], [(0, missing)] + [(0, 0)] * (value.ndim - 1))
        for name, value in found.items()
    }
