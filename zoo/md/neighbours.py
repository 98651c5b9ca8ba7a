"""Neighbours of every atom within a distance, on the host: any cell, however small or skewed, periodic or not.

An atom's neighbours are sorted by type, nearest first within a type, in as many slots as the caller gives each type.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
from scipy.spatial import cKDTree

from zoo.md.cells import Periodic, completed, heights

MOST = 20_000
"""Neighbours of an atom on the average, far beyond any matter: more come from a cell in another unit, and would fill the memory."""

TOUCHING = 1e-6
"""Angstrom; atoms that are nearer are taken for the same atom given twice."""


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Every pair of atoms within the cutoff, in both directions; sorted by first atom, type and distance of the second.

    Attributes:
        first, second: atom numbers, int32 [P].
        image: which image of the second, in whole cells, int16 [P, 3].
        distance: float64 [P].
        rank: which neighbour of its type the second is to the first, from 0, int32 [P].
        counts: neighbours of each type of each atom, int32 [N, T].
    """

    first: np.ndarray
    second: np.ndarray
    image: np.ndarray
    distance: np.ndarray
    rank: np.ndarray
    counts: np.ndarray

    def most(self) -> tuple[int, ...]:
        """The most neighbours of each type that any atom has."""
        if not len(self.counts):
            return (0,) * self.counts.shape[1]
        return tuple(int(count) for count in self.counts.max(axis=0))

    def within(self, distance: float) -> np.ndarray:
        """Neighbours of each type of each atom within a smaller distance, [N, T]."""
        near = self.distance < distance
        if near.all():
            return self.counts
        atoms, types = self.counts.shape
        group = self.first[near].astype(np.int64) * types + self.kinds[near]
        return np.bincount(group, minlength=atoms * types).reshape(atoms, types)

    @property
    def kinds(self) -> np.ndarray:
        """The type of each pair's second atom, from the order of the pairs, [P]."""
        number, types = self.counts.shape
        return np.repeat(np.tile(np.arange(types), number), self.counts.reshape(-1))


@dataclasses.dataclass(frozen=True)
class Table:
    """The same in slots.

    Attributes:
        neighbour: int32 [N, S], -1 where a slot is empty.
        image: int16 [N, S, 3].
    """

    neighbour: np.ndarray
    image: np.ndarray


def pairs(
    coord_N3: np.ndarray,
    cell_33: np.ndarray | None,
    periodic: Periodic,
    types_N: np.ndarray,
    num_types: int,
    rcut: float,
) -> Pairs:
    """Finds all pairs.

    Args:
        coord_N3: positions in angstrom, inside the cell or not.
        cell_33: cell vectors as rows; None where nothing is periodic.
        types_N: type of each atom; -1 marks an atom that is not there and has no neighbours.

    Raises:
        ValueError: a position is not finite, the cell is flat or far too small, or two atoms lie on the same spot.
    """
    coord = np.asarray(coord_N3, np.float64)
    here = np.flatnonzero(types_N >= 0)
    if not np.isfinite(coord[here]).all():
        atom = int(here[np.flatnonzero(~np.isfinite(coord[here]).all(axis=1))[0]])
        raise ValueError(f"the position of atom {atom} is not finite: {coord[atom].tolist()}")
    _refuse_crowds(len(here), cell_33, periodic, rcut)
    places, origin, image, wraps = _ghosts(coord[here], cell_33, periodic, rcut)
    local = cKDTree(places[: len(here)])
    found = local.sparse_distance_matrix(cKDTree(places), rcut, output_type="ndarray")
    first, ghost, distance = found["i"].astype(np.int32), found["j"].astype(np.int64), found["v"]
    other = first != ghost  # the first ghosts are the atoms themselves
    first, ghost, distance = first[other], ghost[other], distance[other]
    _refuse_touching(first, origin[ghost], distance, here)
    second = origin[ghost]
    # Images count from the positions as given, which need not lie in the cell.
    images = (image[ghost] + wraps[first] - wraps[second]).astype(np.int16)
    kinds = types_N[here]
    order = np.lexsort((distance, kinds[second], first))
    first, second, images, distance = first[order], second[order], images[order], distance[order]
    group = first.astype(np.int64) * num_types + kinds[second]
    sizes = np.bincount(group, minlength=len(here) * num_types)
    rank = np.arange(len(group)) - (np.cumsum(sizes) - sizes)[group]
    counts = np.zeros((len(coord), num_types), np.int32)
    counts[here] = sizes.reshape(len(here), num_types)
    numbers = here.astype(np.int32)
    return Pairs(numbers[first], numbers[second], images, distance, rank.astype(np.int32), counts)


def _ghosts(
    coord: np.ndarray, cell: np.ndarray | None, periodic: Periodic, rcut: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Atoms moved into the cell, then their images that can lie within the cutoff of one.

    Returns:
        places [G, 3], the atom each is an image of [G], which image [G, 3], and the cell that each atom
        lies in [n, 3].
    """
    count = len(coord)
    nothing = np.zeros((count, 3), np.int64)
    if cell is None or not any(periodic):
        return coord, np.arange(count), nothing, nothing
    full = completed(cell, periodic)
    repeats = np.asarray(periodic)
    fractional = coord @ np.linalg.inv(full)
    wraps = np.where(repeats, np.floor(fractional), 0).astype(np.int64)
    inside = fractional - wraps
    reach = rcut / heights(full) + 1e-9
    ranges = [range(-int(np.ceil(r)), int(np.ceil(r)) + 1) if on else range(1) for r, on in zip(reach, periodic)]
    shifts = np.asarray(sorted(itertools.product(*ranges), key=lambda shift: any(shift)))  # no shift comes first
    moved = inside[None] + shifts[:, None]
    near = ((moved >= -reach) & (moved <= 1 + reach)) | ~repeats
    kept = near.all(axis=-1)
    kept[0] = True
    which, atom = np.nonzero(kept)
    places = (inside[atom] + shifts[which]) @ full
    return places, atom, shifts[which], wraps


def _refuse_crowds(count: int, cell: np.ndarray | None, periodic: Periodic, rcut: float) -> None:
    if cell is None or not all(periodic):
        return
    volume = abs(float(np.linalg.det(completed(cell, periodic))))
    most = count / volume * 4 / 3 * np.pi * rcut**3
    if most > MOST:
        raise ValueError(
            f"{count} atoms in a cell of {volume:.3g} A^3 have some {most:.0f} neighbours within {rcut} A; positions and cell are "
            "in angstrom"
        )


def _refuse_touching(first: np.ndarray, second: np.ndarray, distance: np.ndarray, here: np.ndarray) -> None:
    touching = np.flatnonzero(distance < TOUCHING)
    if len(touching):
        a, b = (int(here[side[touching[0]]]) for side in (first, second))
        raise ValueError(f"atoms {a} and {b} lie on the same spot")


def table(found: Pairs, slots: tuple[int, ...], limits: tuple[int, ...] | int | None = None) -> Table:
    """Puts pairs into slots.

    Args:
        slots: how many each type has.
        limits: keep only that many nearest neighbours of each type, or of all types together; None keeps all.

    Raises:
        ValueError: a type has more neighbours than slots.
    """
    starts = np.cumsum((0, *slots))
    kept, rank = np.ones(len(found.first), bool), found.rank
    kinds = found.kinds
    if isinstance(limits, int):
        order = np.lexsort((found.distance, found.first))
        totals = found.counts.sum(axis=1)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - (np.cumsum(totals) - totals)[found.first[order]]
        kept = place < limits
    elif limits is not None:
        kept = rank < np.asarray(limits)[kinds]
    full = np.flatnonzero(kept & (rank >= np.asarray(slots)[kinds]))
    if len(full):
        raise ValueError(f"{found.most()} neighbours of the types do not fit into {slots} slots")
    number = len(found.counts)
    neighbour = np.full((number, starts[-1]), -1, np.int32)
    image = np.zeros((number, starts[-1], 3), np.int16)
    column = starts[kinds[kept]] + rank[kept]
    neighbour[found.first[kept], column] = found.second[kept]
    image[found.first[kept], column] = found.image[kept]
    return Table(neighbour, image)
