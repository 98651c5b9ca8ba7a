"""One system: frames with the same number of atoms, and what is known of each; checked before anything uses it.

Units: angstrom, eV, eV/angstrom; a virial is minus the derivative of the energy by strain, in eV.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from zoo.errors import UserError
from zoo.md.cells import Periodic, completed

LABELS = ("energy", "force", "virial")


@dataclasses.dataclass(frozen=True)
class System:
    """Frames of one system.

    Attributes:
        name: where it was read from.
        types: int32 [F, N], numbers in the model's type_map; -1 is an atom that is not there.
        coord: float64 [F, N, 3].
        cell: float64 [F, 3, 3], vectors as rows; None where nothing is periodic.
        periodic: along which of them frames repeat.
        labels: energy [F], force [F, N, 3], virial [F, 3, 3], float64; zeros where a frame has none.
        known: per label, which frames have it, bool [F].
        sets: the parts that it was read from, such as set.000, with their numbers of frames; empty where there is one.
    """

    name: str
    types: np.ndarray
    coord: np.ndarray
    cell: np.ndarray | None
    periodic: Periodic
    labels: dict[str, np.ndarray]
    known: dict[str, np.ndarray]
    sets: tuple[tuple[str, int], ...] = ()

    def __len__(self) -> int:
        return len(self.coord)

    @property
    def num_atoms(self) -> int:
        return self.coord.shape[1]

    def first(self, most: int | None) -> System:
        """The first frames alone; all for None."""
        if most is None or most >= len(self):
            return self
        labels, known = ({name: value[:most] for name, value in kept.items()} for kept in (self.labels, self.known))
        cell = None if self.cell is None else self.cell[:most]
        return System(self.name, self.types[:most], self.coord[:most], cell, self.periodic, labels, known, self.sets)

    def where(self, frame: int) -> str:
        """The frame as people find it, counted from 0."""
        begin = 0
        for part, count in self.sets:
            if frame < begin + count:
                return f"{self.name}, frame {frame} (frame {frame - begin} of {part})"
            begin += count
        return f"{self.name}, frame {frame}"

    @contextlib.contextmanager
    def naming(self, frame: int) -> Iterator[None]:
        """What cannot be computed of the frame (ValueError) becomes a UserError that names it."""
        try:
            yield
        except ValueError as error:
            raise UserError(f"{self.where(frame)}: {error}; mend or remove the frame") from None


def checked(system: System) -> System:
    """The system, if it makes sense.

    Raises:
        UserError: a number is not finite or a cell is flat; names system, array and frame.
    """
    real = system.types >= 0
    _finite(system, "coord", system.coord, real[..., None])
    for name in LABELS:
        mask = real[..., None] if name == "force" else True
        _finite(system, name, system.labels[name], mask)
    if system.cell is not None:
        _finite(system, "box", system.cell, True)
        for frame, cell in enumerate(system.cell):
            try:
                completed(cell, system.periodic)
            except ValueError as error:
                raise UserError(
                    f"{system.where(frame)}: {error}; a system without a cell has an empty file `nopbc`"
                ) from None
    return system


def _finite(system: System, name: str, values: np.ndarray, mask: object) -> None:
    bad = ~np.isfinite(values) & mask
    if bad.any():
        frame = int(np.nonzero(bad)[0][0])
        raise UserError(f"{system.where(frame)}: {name} holds numbers that are not finite; mend or remove the frame")


def types_of(names: Sequence[str], numbers: np.ndarray, type_map: Sequence[str], place: str) -> np.ndarray:
    """Numbers in a data set's own list of names, as numbers in the model's; -1 stays.

    Args:
        names: the data set's names; empty where it has none, and its numbers are the model's.
        numbers: integers of any shape.
        type_map: the model's names.
        place: for the error.

    Raises:
        UserError: a number has no name, or a name that the model does not know occurs.
    """
    numbers = np.asarray(numbers)
    if len(set(names)) != len(names):
        raise UserError(f"{place}: type_map.raw names an element twice: {', '.join(names)}")
    limit = len(names) or len(type_map)
    if numbers.size and (numbers.max() >= limit or numbers.min() < -1):
        bad = int(numbers.max() if numbers.max() >= limit else numbers.min())
        known = list(names) or list(type_map)
        raise UserError(f"{place}: type {bad} is none of the {limit} types {known}; types count from 0")
    if not names:
        return numbers.astype(np.int32)
    unknown = [names[kind] for kind in np.unique(numbers) if kind >= 0 and names[kind] not in type_map]
    if unknown:
        raise UserError(
            f"{place}: element {unknown[0]} is not in the model's type_map={list(type_map)}; a new model may list it"
        )
    table = np.asarray([type_map.index(name) if name in type_map else -1 for name in names] + [-1], np.int32)
    return table[numbers]


def nothing_known(frames: int, atoms: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Labels of zeros, and that no frame has them."""
    shapes = {"energy": (frames,), "force": (frames, atoms, 3), "virial": (frames, 3, 3)}
    labels = {name: np.zeros(shape) for name, shape in shapes.items()}
    return labels, {name: np.zeros(frames, bool) for name in shapes}
