"""Frames of several systems in one layout: atoms sorted by type, neighbours found once and kept.

A layout has room for the largest system; in smaller ones some atoms are not there.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

import numpy as np

from zoo.data.deepmd.system import LABELS, System
from zoo.errors import UserError
from zoo.md import neighbours
from zoo.md.neighbours import Pairs
from zoo.models.deepmd.config import Potential, vacancies_matter
from zoo.models.deepmd.evaluate import shortages
from zoo.models.deepmd.layout import Layout


@dataclasses.dataclass(frozen=True)
class Frames:
    """All frames of some systems, one after the other.

    Attributes:
        systems: where they come from.
        num_types: of the model.
        rcut: how far neighbours were looked for, in angstrom.
        pairs: the neighbours of each frame.
    """

    systems: tuple[System, ...]
    num_types: int
    rcut: float
    pairs: tuple[Pairs, ...]

    def __len__(self) -> int:
        return len(self.pairs)

    def locate(self, number: int) -> tuple[System, int]:
        """The system of a frame, and which of its frames it is."""
        for system in self.systems:
            if number < len(system):
                return system, number
            number -= len(system)
        raise IndexError(number)

    @property
    def counts(self) -> np.ndarray:
        """Atoms of each type in each frame, int64 [F, T]."""
        return np.concatenate([counts(system, self.num_types) for system in self.systems])

    @property
    def most(self) -> tuple[int, ...]:
        """The most neighbours of each type of any atom."""
        return tuple(int(most) for most in np.max([found.most() for found in self.pairs], axis=0))

    @property
    def most_together(self) -> int:
        """The most neighbours of all types together of any atom."""
        return max(int(found.counts.sum(axis=1).max(initial=0)) for found in self.pairs)

    @property
    def nearest(self) -> float:
        """The smallest distance between two atoms, in angstrom; infinite where none lie within the cutoff."""
        return min((float(found.distance.min(initial=np.inf)) for found in self.pairs), default=np.inf)


def find(systems: Sequence[System], num_types: int, rcut: float) -> Frames:
    """Finds the neighbours in all frames.

    Raises:
        UserError: two atoms of a frame lie on the same spot; names system and frame.
    """
    found = []
    for system in systems:
        for frame in range(len(system)):
            cell = None if system.cell is None else system.cell[frame]
            with system.naming(frame):
                found.append(
                    neighbours.pairs(system.coord[frame], cell, system.periodic, system.types[frame], num_types, rcut)
                )
    return Frames(tuple(systems), num_types, rcut, tuple(found))


def counts(system: System, num_types: int) -> np.ndarray:
    """Atoms of each type in each frame, int64 [F, T]."""
    return (system.types[:, :, None] == np.arange(num_types)).sum(axis=1)


def layout(frames: Sequence[Frames], config: Potential) -> Layout:
    """The smallest layout in which all these frames fit.

    Raises:
        UserError: the model depends on the type of a frame's first atom, and frames differ in that.
    """
    atoms = np.max([part.counts.max(axis=0) for part in frames], axis=0)
    slots = np.max([part.most for part in frames], axis=0)
    vacant = first_type(frames) if vacancies_matter(config) else None
    return Layout(tuple(int(count) for count in atoms), tuple(int(count) for count in slots), vacant)


def first_type(frames: Sequence[Frames]) -> int:
    """The type of every frame's first atom."""
    found: dict[int, str] = {}
    for system in (system for part in frames for system in part.systems):
        for frame, types in enumerate(system.types):
            found.setdefault(int(types[types >= 0][0]), system.where(frame))
    if len(found) > 1:
        raise UserError(
            f"{' and '.join(found.values())} begin with atoms of different types, on which a se_atten model depends whose "
            "mean is not 0; set set_davg_zero=true, or take type se_atten_v2"
        )
    return next(iter(found))


def laid_out(
    frames: Frames, number: int, layout: Layout, limits: tuple[int, ...] | int | None, dtype: np.dtype
) -> dict[str, np.ndarray]:
    """One frame as the model takes it.

    Returns:
        displacement [N, S, 3] and force [N, 3], virial [3, 3], energy (), in the layout; neighbours int32 [N, S], -1
        where a slot is empty; real, bool [N]; known_energy, known_force, known_virial, 1.0 or 0.0.
    """
    system, frame = frames.locate(number)
    place = places(system.types[frame], layout)
    here = np.flatnonzero(place >= 0)
    table = neighbours.table(frames.pairs[number], layout.slots, limits)
    coord = system.coord[frame]
    stated = np.nonzero(table.neighbour >= 0)
    vectors = coord[table.neighbour[stated]] - coord[stated[0]]
    if system.cell is not None:
        vectors += table.image[stated] @ system.cell[frame]
    count, slots = layout.num_atoms, layout.num_slots
    displacement = np.zeros((count, slots, 3), dtype)
    displacement[place[stated[0]], stated[1]] = vectors
    number_of = np.full((count, slots), -1, np.int32)
    number_of[place[stated[0]], stated[1]] = place[table.neighbour[stated]]
    force = np.zeros((count, 3))
    force[place[here]] = system.labels["force"][frame][here]
    real = np.zeros(count, bool)
    real[place[here]] = True
    labels = {"energy": system.labels["energy"][frame], "force": force, "virial": system.labels["virial"][frame]}
    known = {f"known_{name}": np.float64(system.known[name][frame]) for name in LABELS}
    return {"displacement": displacement, "neighbours": number_of, "real": real, **labels, **known}


def places(types: np.ndarray, layout: Layout) -> np.ndarray:
    """Where each atom lies in the layout, int64 [n]; -1 for atoms that are not there."""
    found = np.full(len(types), -1)
    for kind, section in enumerate(layout.atom_sections):
        members = np.flatnonzero(types == kind)
        assert len(members) <= section.stop - section.start, (kind, len(members), layout)
        found[members] = section.start + np.arange(len(members))
    return found


def warn_of_truncation(frames: Frames, config: Potential, strict: bool) -> None:
    """Says where a given `sel` is smaller than the neighbours there are: the nearest then count, as in deepmd-kit.

    Raises:
        UserError: the same, where `strict`.
    """
    for given, most, number in shortages(config, frames.pairs):
        system, frame = frames.locate(number)
        sentence = f"{system.where(frame)}: sel={given} is less than the {most} neighbours that atoms of the data have"
        if strict:
            raise UserError(f"{sentence}; set sel to {most}, to auto, or leave recipe.data.strict=true out")
        warnings.warn(f"{sentence}; only the nearest count. Set sel to {most} or to auto to count all", stacklevel=2)
