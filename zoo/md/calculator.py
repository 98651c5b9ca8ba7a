"""Deep potentials for ASE: energy, forces and stress of `ase.Atoms`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase.calculators.calculator import Calculator, all_changes

from zoo.models.deepmd.convert import Model, read
from zoo.models.deepmd.evaluate import Evaluator


class DeepPotential(Calculator):
    """An ASE calculator of a .dp or .yaml model.

    Example:
        atoms.calc = DeepPotential("runs/dp_copper-local/model.dp")
    """

    implemented_properties = ["energy", "free_energy", "energies", "forces", "stress"]

    def __init__(self, model: str | Path | Model, **options: Any) -> None:
        super().__init__(**options)
        self.model = model if isinstance(model, Model) else read(Path(model))
        self._evaluate = Evaluator(self.model)

    def calculate(
        self, atoms: Any = None, properties: Sequence[str] = ("energy",), system_changes: Sequence[str] = all_changes
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        here: Any = self.atoms
        types = numbers_of(self.model, here.get_chemical_symbols())
        a, b, c = map(bool, here.pbc)
        cell = np.asarray(here.cell) if any(here.pbc) else None
        found = self._evaluate(here.positions, types, cell, (a, b, c))
        energy = float(found.energy)
        self.results = {"energy": energy, "free_energy": energy, "energies": found.atom_energy, "forces": found.force}
        if all(here.pbc):
            stress = -np.asarray(found.virial) / here.get_volume()
            symmetric = 0.5 * (stress + stress.T)
            self.results["stress"] = symmetric[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]


def numbers_of(model: Model, symbols: Sequence[str]) -> np.ndarray:
    """Chemical symbols as numbers in the model's type_map.

    Raises:
        ValueError: the model does not know an element.
    """
    names = model.config.type_map
    unknown = next((symbol for symbol in symbols if symbol not in names), None)
    if unknown is not None:
        raise ValueError(f"the model knows {', '.join(names)} and not {unknown}")
    return np.asarray([names.index(symbol) for symbol in symbols], np.int32)
