"""Periodic cells: rows are the cell vectors, in angstrom; any handedness, any angle, periodic along any of the three."""

from __future__ import annotations

import numpy as np

Periodic = tuple[bool, bool, bool]
EVERYWHERE: Periodic = (True, True, True)
NOWHERE: Periodic = (False, False, False)


def completed(cell_33: np.ndarray, periodic: Periodic) -> np.ndarray:
    """The cell with vectors of length 1, at right angles to the others, where it is not periodic and has none.

    Raises:
        ValueError: a periodic direction has no vector, or the vectors lie in one plane.
    """
    cell = np.array(cell_33, np.float64).reshape(3, 3)
    if not np.isfinite(cell).all():
        raise ValueError("the cell holds numbers that are not finite")
    for axis in range(3):
        if periodic[axis] and not cell[axis].any():
            raise ValueError(f"the cell has no vector along its periodic direction {axis}: {cell.tolist()}")
    missing = [axis for axis in range(3) if not periodic[axis]]
    kept = [axis for axis in range(3) if periodic[axis]]
    # Where nothing repeats the given vector says nothing; any basis that completes the others will do.
    if missing:
        basis = np.linalg.svd(cell[kept])[2][len(kept) :] if kept else np.eye(3)
        for axis, vector in zip(missing, basis, strict=True):
            cell[axis] = vector
    lengths = np.linalg.norm(cell, axis=1)
    if abs(np.linalg.det(cell)) < 1e-6 * np.prod(lengths):
        raise ValueError(f"the cell's vectors lie in one plane: {cell.tolist()}")
    return cell


def heights(cell_33: np.ndarray) -> np.ndarray:
    """Distance between opposite faces, [3]."""
    return 1 / np.linalg.norm(np.linalg.inv(cell_33), axis=0)


def volume(cell_33: np.ndarray) -> float:
    return float(abs(np.linalg.det(cell_33)))
