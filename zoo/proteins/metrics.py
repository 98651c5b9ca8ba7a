"""How near a predicted structure is to a known one: lDDT, TM-score, RMSD; points are C-alpha atoms matched by index."""

from __future__ import annotations

import numpy as np

THRESHOLDS = (0.5, 1.0, 2.0, 4.0)


def lddt(
    predicted: np.ndarray, reference: np.ndarray, radius: float = 15.0, residues: np.ndarray | None = None
) -> float:
    """Share of the reference's distances below `radius` that the prediction keeps, averaged over four tolerances.

    Args:
        predicted, reference: [N, 3] angstrom.
        radius: pairs further apart in the reference do not count.
        residues: [N] the residue of each point; pairs within one do not count. By default each point is a residue.

    Reference: Mariani et al., Bioinformatics 29 (2013) 2722.
    """
    wanted, got = distances(reference), distances(predicted)
    residues = np.arange(len(reference)) if residues is None else residues
    counted = (wanted < radius) & (residues[:, None] != residues[None])
    if not counted.any():
        return float("nan")
    error = np.abs(wanted - got)[counted]
    return float(np.mean([np.mean(error < threshold) for threshold in THRESHOLDS]))


def distances(points: np.ndarray) -> np.ndarray:
    return np.sqrt(np.sum(np.square(points[:, None].astype(np.float64) - points[None]), axis=-1))


def superposition(
    moving: np.ndarray, fixed: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Rotation [3, 3] and shift [3] with `moving @ rotation.T + shift` nearest to `fixed` (Kabsch)."""
    weights = np.ones(len(moving)) if weights is None else weights
    share = (weights / weights.sum())[:, None]
    centre_m, centre_f = (share * moving).sum(axis=0), (share * fixed).sum(axis=0)
    u, _, vt = np.linalg.svd((share * (moving - centre_m)).T @ (fixed - centre_f))
    flip = np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt))])
    rotation = (u @ flip @ vt).T
    return rotation, centre_f - rotation @ centre_m


def rmsd(predicted: np.ndarray, reference: np.ndarray) -> float:
    """Root mean square distance in angstrom after the best superposition."""
    rotation, shift = superposition(predicted, reference)
    return float(np.sqrt(np.mean(np.sum(np.square(predicted @ rotation.T + shift - reference), axis=-1))))


def tm_scale(length: int) -> float:
    """d0 in angstrom for a reference of this many residues."""
    return 0.5 if length <= 21 else 1.24 * (length - 15) ** (1 / 3) - 1.8


def tm_of(square: np.ndarray, length: int) -> float:
    """TM-score from the squared distances of matched residues as they stand."""
    return float(np.sum(1 / (1 + square / tm_scale(length) ** 2)) / length)


def tm_score(predicted: np.ndarray, reference: np.ndarray, length: int | None = None) -> float:
    """TM-score of the superposition that makes it largest.

    Superpositions start from fragments of several lengths and are refined on the residues that come near, as the programs
    of Zhang and Skolnick do (Proteins 57 (2004) 702).

    Args:
        predicted, reference: [N, 3] matched points.
        length: residues of the whole reference; by default N.
    """
    count = len(reference)
    length = length or count
    if count < 3:
        return 0.0
    best = 0.0
    sizes = sorted({max(size, 3) for size in (count, count // 2, count // 4, 4)}, reverse=True)
    for size in sizes:
        for start in range(0, count - size + 1, max((count - size) // 40, 1)):
            best = max(best, refined(predicted, reference, np.arange(start, start + size), length))
    return best


def refined(predicted: np.ndarray, reference: np.ndarray, chosen: np.ndarray, length: int) -> float:
    best, scale = 0.0, tm_scale(length)
    for round_ in range(20):
        rotation, shift = superposition(predicted[chosen], reference[chosen])
        square = np.sum(np.square(predicted @ rotation.T + shift - reference), axis=-1)
        best = max(best, tm_of(square, length))
        limit = max(scale + (-1.0 if round_ == 0 else 1.0), 1.0)
        near = np.flatnonzero(square < limit**2)
        while len(near) < 3:
            limit += 0.5
            near = np.flatnonzero(square < limit**2)
        if np.array_equal(near, chosen):
            break
        chosen = near
    return best
