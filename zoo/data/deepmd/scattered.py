"""Atoms scattered at random, without energies: enough to show a plan working where a recipe's data is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zoo.data.deepmd.system import System, nothing_known
from zoo.md.cells import EVERYWHERE

ATOMS_PER_TYPE, FRAMES, SPACING_A = 16, 8, 2.2


def scattered(type_map: Sequence[str], seed: int = 0) -> list[System]:
    """One periodic system with as many atoms of each type, on a shaken grid; energy and forces are stated as 0."""
    rng = np.random.default_rng(seed)
    count = ATOMS_PER_TYPE * len(type_map)
    side = int(np.ceil(count ** (1 / 3)))
    grid = np.stack(np.meshgrid(*[np.arange(side)] * 3), -1).reshape(-1, 3)[:count] * SPACING_A
    coord = grid + rng.uniform(-0.3, 0.3, (FRAMES, count, 3))
    types = np.tile(np.repeat(np.arange(len(type_map), dtype=np.int32), ATOMS_PER_TYPE), (FRAMES, 1))
    labels, known = nothing_known(FRAMES, count)
    known["energy"][:] = known["force"][:] = True
    cell = np.tile(side * SPACING_A * np.eye(3), (FRAMES, 1, 1))
    return [System("scattered atoms", types, coord, cell, EVERYWHERE, labels, known)]
