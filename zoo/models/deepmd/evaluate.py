"""A potential on frames as people have them: atoms in any order, any cell, one frame after the other.

Sorts atoms by type, finds neighbours on the host, and compiles once per composition; slots grow when a frame needs more.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from zoo.errors import UserError
from zoo.md import neighbours
from zoo.md.cells import EVERYWHERE, NOWHERE, Periodic
from zoo.md.neighbours import Pairs
from zoo.models.deepmd import series
from zoo.models.deepmd.config import Potential, vacancies_matter
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.descriptors import SeAtten, parts
from zoo.models.deepmd.layout import Layout
from zoo.models.deepmd.model import Outputs, displacements, outputs, sorted_by_type

SPARE = 4
"""Slots are made in steps of so many per type, so that another frame rarely needs a new program."""


def limits(config: Potential) -> tuple[int, ...] | int | None:
    """The most neighbours that go into a table: per type, or of all types together.

    None: all of them; each part of a hybrid then looks at the nearest (`zoo.models.deepmd.model.describe`).
    """
    found = [part.sel for part in parts(config.descriptor)]
    if len(found) > 1:
        return None
    return found[0] if isinstance(parts(config.descriptor)[0], SeAtten) else tuple(found[0])


def shortages(config: Potential, found: Sequence[Pairs]) -> list[tuple[Any, Any, int]]:
    """For each part of the descriptor whose `sel` is less than the neighbours there are: what it is, what they are, and the
    number of the first frame that has more.
    """
    short: list[tuple[Any, Any, int]] = []
    for part in parts(config.descriptor):
        counts = [pairs.within(part.rcut) for pairs in found]
        if isinstance(part.sel, int):
            each = np.asarray([count.sum(axis=1).max(initial=0) for count in counts])[:, None]
        else:
            each = np.asarray([count.max(axis=0, initial=0) for count in counts])
        more = np.flatnonzero((each > np.asarray(part.sel)).any(axis=1))
        if len(more):
            most = each.max(axis=0).tolist()
            alone = isinstance(part.sel, int)
            short.append((part.sel if alone else list(part.sel), most[0] if alone else most, int(more[0])))
    return short


def nearness(model: Model, found: Pairs) -> str:
    """In words, that atoms are nearer than the series of a compressed model are made for; empty where they are not."""
    if not model.compressed or model.nearest_a is None:
        return ""
    nearest, least = float(found.distance.min(initial=np.inf)), series.CLOSER * model.nearest_a
    if nearest >= least:
        return ""
    return (
        f"two atoms are {nearest:.4f} A apart, and the compressed model is made for distances from {least:.4f} A on; nearer, "
        "its embedding nets go on as straight lines, not as those of the model it was made from"
    )


def arrays(model: Model) -> tuple[Any, Any]:
    """What the compiled functions take: parameters, with embedding nets as series where the model says so, and statistics.

    Raises:
        UserError: the model is said to be compressed, and cannot be.
    """
    if not model.compressed:
        return model.params, model.statistics
    if model.nearest_a is None:
        raise UserError("a compressed model says no smallest distance; compress the model that it was made from again")
    return series.compressed(model.config, model.params, model.statistics, model.nearest_a), model.statistics


class Evaluator:
    """Energy, force, virial and energies of atoms of frames, one at a time."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._arrays = arrays(model)
        self._slots: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._warned: set[str] = set()

    def __call__(
        self, coord_N3: np.ndarray, types_N: np.ndarray, cell_33: np.ndarray | None, periodic: Periodic | None = None
    ) -> Outputs:
        """Evaluates one frame; numpy arrays in the caller's order of atoms.

        Args:
            coord_N3: positions in angstrom, inside the cell or not.
            types_N: numbers in the model's type_map; -1 for an atom that is not there.
            cell_33: cell vectors as rows; None for none.
            periodic: along which of them the frame repeats; by default all, or none without a cell.

        Raises:
            ValueError: positions or cell make no sense.
        """
        config = self.model.config
        if periodic is None:
            periodic = NOWHERE if cell_33 is None else EVERYWHERE
        here = np.flatnonzero(np.asarray(types_N) >= 0)
        order, counts = sorted_by_type(np.asarray(types_N)[here], config.num_types)
        order = here[order]
        coord, types = np.asarray(coord_N3, np.float64)[order], np.asarray(types_N)[order]
        found = neighbours.pairs(coord, cell_33, periodic, types, config.num_types, config.rcut)
        self._warn(found)
        vacant = int(np.asarray(types_N)[here[0]]) if vacancies_matter(config) else None
        layout = self._layout(counts, found.most(), vacant)
        table = neighbours.table(found, layout.slots, limits(config))
        cell = np.zeros((3, 3)) if cell_33 is None else np.asarray(cell_33, np.float64)
        with versions.enable_x64():
            result = jax.device_get(compiled(config, layout)(*self._arrays, coord, cell, table.neighbour, table.image))
        return _unsorted(result, order, len(types_N))

    def _warn(self, found: Pairs) -> None:
        if "sel" not in self._warned and (short := shortages(self.model.config, [found])):
            self._warned.add("sel")
            given, most, _ = short[0]
            warnings.warn(f"atoms have up to {most} neighbours, more than sel={given}; the nearest count", stacklevel=3)
        if "near" not in self._warned and (sentence := nearness(self.model, found)):
            self._warned.add("near")
            warnings.warn(sentence, stacklevel=3)

    def _layout(self, counts: tuple[int, ...], most: tuple[int, ...], vacant: int | None) -> Layout:
        before = self._slots.get(counts, (0,) * len(counts))
        slots = tuple(max(a, -(-b // SPARE) * SPARE) for a, b in zip(before, most, strict=True))
        self._slots[counts] = slots
        return Layout(counts, slots, vacant)


@functools.lru_cache(maxsize=64)
def compiled(config: Potential, layout: Layout) -> Any:
    """The compiled `outputs` of one composition; call it with 64-bit types switched on."""

    def run(params: Any, statistics: Any, coord: Any, cell: Any, neighbour: Any, image: Any) -> Outputs:
        displacement = displacements(coord, cell, neighbour, image)
        return outputs(config, params, statistics, layout, displacement, neighbour, jnp.ones(layout.num_atoms, bool))

    return jax.jit(run)


def _unsorted(result: Outputs, order: np.ndarray, count: int) -> Outputs:
    force, each = np.zeros((count, 3)), np.zeros(count)
    force[order] = result.force
    each[order] = result.atom_energy
    return Outputs(result.energy, force, result.virial, each)
