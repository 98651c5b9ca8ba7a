"""The energy of each type, fitted anew: for a trained model that meets other reference energies."""

from __future__ import annotations

from typing import Any

import numpy as np

from zoo.data.deepmd.frames import Frames
from zoo.data.deepmd.statistics import least_squares
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.evaluate import Evaluator

MOST_FRAMES = 200
"""Enough to fit a number per type."""


def refitted(model: Model, frames: Frames, afresh: bool = False) -> dict[str, Any]:
    """The model's statistics with energies per type such that its energies fit those of the frames best.

    Args:
        frames: evenly taken from them, at most MOST_FRAMES that have an energy.
        afresh: fit the frames' energies alone, as before a training, in place of what the model leaves of them.
    """
    numbers = [number for number in range(len(frames)) if _energy(frames, number) is not None]
    numbers = numbers[:: max(1, len(numbers) // MOST_FRAMES)]
    bias = np.zeros(model.config.num_types) if afresh else np.asarray(model.statistics["bias"], np.float64)
    rest = np.asarray([_energy(frames, number) for number in numbers], np.float64)
    if not afresh:
        rest = rest - np.asarray([predicted(Evaluator(model), frames, numbers)]).reshape(-1)
    change = least_squares(frames.counts[numbers].astype(np.float64), rest, (), model.config.fitting_net.rcond)
    return {**model.statistics, "bias": bias + change}


def predicted(evaluate: Evaluator, frames: Frames, numbers: list[int]) -> list[float]:
    """Energies of frames in eV."""
    found = []
    for number in numbers:
        system, frame = frames.locate(number)
        cell = None if system.cell is None else system.cell[frame]
        found.append(float(evaluate(system.coord[frame], system.types[frame], cell, system.periodic).energy))
    return found


def _energy(frames: Frames, number: int) -> float | None:
    system, frame = frames.locate(number)
    return float(system.labels["energy"][frame]) if system.known["energy"][frame] else None
