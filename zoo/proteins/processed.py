"""Processed features: what a network reads, drawn from raw features by a seed (supplement, section 1.2).

Sampling of cluster centres, masking, clustering and cropping follow the original; its TensorFlow draws cannot be reproduced, so
the draws here are numpy's: equal in distribution, and the same bytes for the same seed. A draw never depends on the size to
which the features are padded.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from zoo.proteins.residues import ALIGNMENT_TO_TYPE, GAP, MASKED

Features = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much of an alignment a network reads.

    Attributes:
        clusters: rows that are cluster centres.
        further: rows beside them.
        templates: templates at most; 0 for none.
        replace: share of the letters of the centres that is masked.
        profile_prob, same_prob, uniform_prob: what a masked letter becomes: one of its column, itself, any; else the mask.
    """

    clusters: int
    further: int
    templates: int = 0
    replace: float = 0.15
    profile_prob: float = 0.1
    same_prob: float = 0.1
    uniform_prob: float = 0.1


@dataclasses.dataclass(frozen=True)
class Draws:
    """The random numbers of one draw; given by hand, the result is determined.

    Attributes:
        order: [S] rows; the first is the query.
        masked: [clusters, N] whether a letter of a centre is masked.
        replacement: [clusters, N] what it becomes, 0-22.
        further: order of the rows that are no centres, before cropping.
    """

    order: np.ndarray
    masked: np.ndarray
    replacement: np.ndarray
    further: np.ndarray


def monomer_features(raw: Features) -> Features:
    """What does not depend on the draw: types, masks, residue numbers, templates."""
    kinds = np.argmax(raw["aatype"], axis=-1).astype(np.int32)
    breaks = np.clip(raw["between_segment_residues"].astype(np.float32), 0, 1)
    return {
        "aatype": kinds,
        "residue_index": raw["residue_index"].astype(np.int32),
        "seq_mask": np.ones(len(kinds), np.float32),
        "target_feat": np.concatenate([breaks[:, None], np.eye(21, dtype=np.float32)[kinds]], axis=1),
    }


def complex_fixed_features(raw: Features) -> Features:
    """As `monomer_features`, of a complex (`complexes.complex_features`); with its templates."""
    whole = ("aatype", "residue_index", "asym_id", "entity_id", "sym_id", "template_aatype")
    return {
        **{name: raw[name].astype(np.int32) for name in whole},
        "seq_mask": raw["seq_mask"].astype(np.float32),
        "target_feat": np.eye(21, dtype=np.float32)[raw["aatype"]],
        "template_all_atom_positions": raw["template_all_atom_positions"].astype(np.float32),
        "template_all_atom_mask": raw["template_all_atom_mask"].astype(np.float32),
        "template_mask": np.ones(len(raw["template_aatype"]), np.float32),
    }


def complex_rows(raw: Features) -> tuple[np.ndarray, np.ndarray]:
    """As `alignment_rows`, of a complex; without the rows of padding."""
    count = int(raw["num_alignments"])
    return raw["msa"][:count], raw["deletion_matrix"][:count].astype(np.float32)


def template_features(raw: Features, most: int) -> Features:
    """The first `most` templates, in the network's types, filled up with empty ones."""
    count = min(most, len(raw["template_aatype"]))
    kinds = ALIGNMENT_TO_TYPE[np.argmax(raw["template_aatype"][:count], axis=-1)].astype(np.int32)
    result = {
        "template_aatype": kinds.reshape(count, -1 if count else raw["template_aatype"].shape[1]),
        "template_all_atom_positions": raw["template_all_atom_positions"][:count].astype(np.float32),
        "template_all_atom_mask": raw["template_all_atom_masks"][:count].astype(np.float32),
        "template_mask": np.ones(count, np.float32),
    }
    return {name: padded(value, (most, *value.shape[1:])) for name, value in result.items()}


def alignment_rows(raw: Features) -> tuple[np.ndarray, np.ndarray]:
    """The alignment in the network's letters [S, N], and the insertions [S, N] float32."""
    return ALIGNMENT_TO_TYPE[raw["msa"]].astype(np.int32), raw["deletion_matrix_int"].astype(np.float32)


def draw(msa: np.ndarray, sizes: Sizes, rng: np.random.Generator) -> Draws:
    """Random numbers for `drawn_features`: an order of the rows, what is masked, and by what it is replaced."""
    num_rows, num_res = msa.shape
    order = np.concatenate([[0], 1 + rng.permutation(num_rows - 1)]).astype(np.int64)
    centres = msa[order[: sizes.clusters]]
    masked = rng.random(centres.shape) < sizes.replace
    replacement = replacements(centres, profile(msa), sizes, rng.random(centres.shape))
    return Draws(order, masked, replacement, rng.permutation(max(num_rows - sizes.clusters, 0)))


def profile(msa: np.ndarray) -> np.ndarray:
    """Shares [N, 22] of each letter in each column."""
    counts = np.stack([np.count_nonzero(msa == letter, axis=0) for letter in range(22)], axis=-1)
    return (counts / len(msa)).astype(np.float32)


def replacements(centres: np.ndarray, shares: np.ndarray, sizes: Sizes, uniform: np.ndarray) -> np.ndarray:
    """A letter for each place, should it be masked, by inverting the cumulated probabilities at `uniform`."""
    mask_prob = 1 - sizes.profile_prob - sizes.same_prob - sizes.uniform_prob
    anything = np.where(np.arange(22) < 20, 0.05, 0.0)
    base = np.cumsum(sizes.uniform_prob * anything + sizes.profile_prob * shares, axis=-1)
    own = sizes.same_prob * (np.arange(22)[None, None] >= centres[..., None])
    chosen = np.sum(uniform[..., None] >= base[None] + own, axis=-1)
    return np.where(uniform >= 1 - mask_prob, MASKED, np.minimum(chosen, 21)).astype(np.int32)


def drawn_features(
    msa: np.ndarray, deletions: np.ndarray, sizes: Sizes, draws: Draws, multimer: bool = False
) -> Features:
    """Features of one draw of the alignment.

    Args:
        msa, deletions: [S, N] as `alignment_rows` or `complex_rows` gives them.
        sizes: how much of it the network reads.
        draws: as `draw` gives them.
        multimer: clusters as AlphaFold-Multimer has them (`shared_clusters`), and the further rows in the order drawn.

    Returns:
        msa_feat [clusters, N, 49], msa_mask, true_msa, bert_mask [clusters, N], and extra_msa, extra_msa_mask,
        extra_has_deletion, extra_deletion_value [further, N]; padded with zeros to these sizes.
    """
    centres, rest = draws.order[: sizes.clusters], draws.order[sizes.clusters :]
    true = msa[centres]
    letters = np.where(draws.masked, draws.replacement, true)
    further, inserted = msa[rest], deletions[rest]
    gather = shared_clusters if multimer else clusters
    shares, mean_inserted = gather(letters, deletions[centres], further, inserted)
    own = deletions[centres]
    msa_feat = np.concatenate(
        [one_hot(letters, 23), has(own)[..., None], scaled(own)[..., None], shares, scaled(mean_inserted)[..., None]],
        axis=-1,
    )
    kept = np.arange(len(rest))[: sizes.further] if multimer else draws.further[: sizes.further]
    result = {
        "msa_feat": msa_feat,
        "msa_mask": np.ones_like(own),
        "true_msa": true,
        "bert_mask": draws.masked.astype(np.float32),
        "extra_msa": further[kept],
        "extra_msa_mask": np.ones_like(inserted[kept]),
        "extra_has_deletion": has(inserted[kept]),
        "extra_deletion_value": scaled(inserted[kept]),
    }
    rows = {name: sizes.further if name.startswith("extra") else sizes.clusters for name in result}
    return {name: padded(value, (rows[name], *value.shape[1:])) for name, value in result.items()}


def clusters(
    letters: np.ndarray, own: np.ndarray, further: np.ndarray, inserted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each further row joins the centre with which it agrees most (gaps and masks do not count): algorithm of section 1.2.7.

    Returns:
        shares [clusters, N, 23] of each letter in each cluster, and the mean insertions [clusters, N].
    """
    counts = one_hot(letters, 23).astype(np.float32)
    sums = own.astype(np.float32).copy()
    sizes = np.ones(len(letters), np.float32)
    if len(further):
        weighted = one_hot(letters, 23) * (np.arange(23) < GAP)
        nearest = agreement(further, weighted.reshape(len(letters), -1)).argmax(axis=1)
        for centre in np.unique(nearest):
            members = nearest == centre
            counts[centre] += one_hot(further[members], 23).sum(axis=0)
            sums[centre] += inserted[members].sum(axis=0)
        sizes += np.bincount(nearest, minlength=len(letters)).astype(np.float32)
    total = (sizes + np.float32(1e-6))[:, None]
    return counts / total[..., None], sums / total


def shared_clusters(
    letters: np.ndarray, own: np.ndarray, further: np.ndarray, inserted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `clusters` the way AlphaFold-Multimer has it: a further row is shared by all centres with which it agrees most, and
    counts as often as it has columns."""
    counts, sums = one_hot(letters, 23), own.astype(np.float32).copy()
    sizes = np.ones(len(letters), np.float32)
    weighted = (counts * (np.arange(23) < GAP)).reshape(len(letters), -1)
    for start in range(0, len(further), 512):
        rows, gone = further[start : start + 512], inserted[start : start + 512]
        agreed = agreement(rows, weighted)
        nearest = agreed == agreed.max(axis=1, keepdims=True)
        weights = (nearest / nearest.sum(axis=1, keepdims=True)).astype(np.float32).T * np.float32(letters.shape[1])
        counts += (weights @ one_hot(rows, 23).reshape(len(rows), -1)).reshape(counts.shape)
        sums += weights @ gone
        sizes += weights.sum(axis=1)
    return counts / sizes[:, None, None], sums / sizes[:, None]


def agreement(further: np.ndarray, weighted: np.ndarray, rows: int = 512) -> np.ndarray:
    """Columns [further, clusters] in which two rows have the same letter; some rows at a time, as they are many."""
    parts = [
        one_hot(further[i : i + rows], 23).reshape(-1, weighted.shape[1]) @ weighted.T
        for i in range(0, len(further), rows)
    ]
    return np.concatenate(parts)


def one_hot(letters: np.ndarray, count: int) -> np.ndarray:
    return (letters[..., None] == np.arange(count)).astype(np.float32)


def has(inserted: np.ndarray) -> np.ndarray:
    return np.clip(inserted, 0, 1).astype(np.float32)


def scaled(inserted: np.ndarray) -> np.ndarray:
    """Insertions in 0..1."""
    return (np.arctan(inserted / np.float32(3)) * np.float32(2 / np.pi)).astype(np.float32)


def padded(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """With zeros at the end of each dimension up to `shape`."""
    return np.pad(value, [(0, size - have) for have, size in zip(value.shape, shape, strict=True)])
