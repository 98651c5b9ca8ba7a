"""What a model takes from data before training: how many neighbours, mean and deviation of rows, energy per type.

Averages go over all slots that `sel` gives, empty ones (zeros) included: that is how the models are defined.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from zoo.data.deepmd.frames import Frames
from zoo.models.deepmd import short_range
from zoo.models.deepmd.config import Potential
from zoo.models.deepmd.descriptors import Hybrid, SeAtten, SeR, auto_factor, parts

LEAST_DEVIATION = 1e-2
"""Rows are never divided by less."""


def settled(config: Potential, frames: Frames) -> Potential:
    """The model with every `sel: auto` replaced by what the frames need, times its factor, up to a multiple of 4.

    A short-range table is read, so that its grid is known.
    """
    described = tuple(_settled(part, frames) for part in parts(config.descriptor))
    descriptor = Hybrid(described) if isinstance(config.descriptor, Hybrid) else described[0]
    short = config.short_range
    if short is not None:
        short = short_range.settled(short, short_range.table(short, config.type_map, descriptor.rcut))
    return dataclasses.replace(config, descriptor=descriptor, short_range=short)


def _settled(part: Any, frames: Frames) -> Any:
    if not isinstance(part.sel, str):
        return part
    factor = auto_factor(part.sel)
    assert factor is not None, part.sel
    near = np.concatenate([pairs.within(part.rcut) for pairs in frames.pairs])
    if isinstance(part, SeAtten):
        return dataclasses.replace(part, sel=_rounded(int(near.sum(axis=1).max(initial=0)), factor))
    return dataclasses.replace(part, sel=tuple(_rounded(int(most), factor) for most in near.max(axis=0)))


def _rounded(most: int, factor: float) -> int:
    return max(4, 4 * math.ceil(most * factor / 4))


def statistics(config: Potential, frames: Frames) -> dict[str, Any]:
    """Mean and deviation of each part's rows, and the energy of each type: what `initial_statistics` has the shape of."""
    dtype = np.dtype(config.fitting_net.precision)
    described = {}
    for index, part in enumerate(parts(config.descriptor)):
        mean, deviation = rows(part, frames)
        described[str(index)] = {"davg": mean.astype(dtype), "dstd": deviation.astype(dtype)}
    found = {"descriptor": described, "bias": energy_bias(config, frames)}
    if config.short_range is not None:
        rows_of = short_range.table(config.short_range, config.type_map, config.rcut)
        inside = np.zeros(config.num_types)
        found["short_range"] = {"splines": short_range.splines(rows_of, config.num_types), "inside": inside}
    return found


def rows(part: Any, frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation [T, A] of the rows around atoms of each type."""
    totals = np.zeros((frames.num_types, 4))  # radial sum, radial squares, axial sum, axial squares
    atoms = np.zeros(frames.num_types)
    start = 0
    for system in frames.systems:
        for frame in range(len(system)):
            _add_rows(part, frames, start + frame, totals, atoms)
        start += len(system)
    slots = part.sel if isinstance(part.sel, int) else sum(part.sel)
    number = np.maximum(atoms * slots, 1)
    mean = totals[:, 0] / number
    radial = _deviation(totals[:, 1] / number, mean)
    axial = _deviation(totals[:, 3] / (3 * number), totals[:, 2] / (3 * number))
    if part.set_davg_zero:
        mean = np.zeros_like(mean)
    if isinstance(part, SeR):
        return mean[:, None], radial[:, None]
    zeros = np.zeros_like(mean)
    return np.stack([mean, zeros, zeros, zeros], axis=1), np.stack([radial, axial, axial, axial], axis=1)


def _add_rows(part: Any, frames: Frames, number: int, totals: np.ndarray, atoms: np.ndarray) -> None:
    system, frame = frames.locate(number)
    pairs, types = frames.pairs[number], system.types[frame]
    near = pairs.distance < part.rcut
    first, second, distance = pairs.first[near], pairs.second[near], pairs.distance[near]
    vector = system.coord[frame][second] - system.coord[frame][first]
    if system.cell is not None:
        vector += pairs.image[near] @ system.cell[frame]
    u = np.clip((distance - part.rcut_smth) / (part.rcut - part.rcut_smth), 0, 1)
    inverse = 1 / (distance + part.env_protection)
    radial = (u**3 * (-6 * u**2 + 15 * u - 10) + 1) * inverse
    axial = radial[:, None] * vector * inverse[:, None]
    weights = (radial, radial**2, axial.sum(axis=1), (axial**2).sum(axis=1))
    for column, weight in enumerate(weights):
        totals[:, column] += np.bincount(types[first], weight, minlength=frames.num_types)
    atoms += np.bincount(types[types >= 0], minlength=frames.num_types)


def _deviation(square: np.ndarray, mean: np.ndarray) -> np.ndarray:
    return np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), LEAST_DEVIATION)


def energy_bias(config: Potential, frames: Frames) -> np.ndarray:
    """Energy [T] per atom of each type that explains the frames' energies best (least squares, least norm)."""
    energies = np.concatenate([system.labels["energy"] for system in frames.systems])
    known = np.concatenate([system.known["energy"] for system in frames.systems])
    counts = frames.counts.astype(np.float64)
    counts[:, list(config.atom_exclude_types)] = 0
    return least_squares(counts[known], energies[known], config.fitting_net.atom_ener, config.fitting_net.rcond)


def least_squares(
    counts_FT: np.ndarray, energies_F: np.ndarray, given: Sequence[float | None], rcond: float | None
) -> np.ndarray:
    """Energy per atom of each type [T]; types with a given one keep it, and types that do not occur get 0."""
    types = counts_FT.shape[1]
    stated = list(given) + [None] * (types - len(given))
    found = np.asarray([0.0 if value is None else value for value in stated])
    free = [kind for kind in range(types) if stated[kind] is None and counts_FT[:, kind].any()]
    if len(counts_FT) and free:
        rest = energies_F - counts_FT @ found
        found[free] = np.linalg.lstsq(counts_FT[:, free], rest, rcond=rcond)[0]
    return found
