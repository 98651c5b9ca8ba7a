"""Copper labelled on the spot with ASE's EMT potential: real training data that needs no download.

Cells of 32 atoms of face-centred cubic copper, strained in all directions and shaken, and some with a vacancy. Reference
for the potential: K. W. Jacobsen, P. Stoltze, J. K. Norskov, Surf. Sci. 366, 394 (1996).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.deepmd import npy
from zoo.data.deepmd.system import System
from zoo.errors import UserError

FOLDER = "dp_copper"
LATTICE_A = 3.61
FRAMES = {"train": 160, "test": 40}
SEEDS = {"train": 0, "test": 1}
STRAIN, SHAKE_A = 0.05, 0.25


def open_copper(data_dir: Path, type_map: Sequence[str]) -> tuple[list[System], list[System], str]:
    """Train and test systems, and what to tell the user; makes them where they are missing.

    Raises:
        UserError: they are missing and ASE is not installed, or the model does not know Cu.
    """
    if "Cu" not in type_map:
        raise UserError(f"recipe.data.name=copper needs Cu in recipe.model.type_map={list(type_map)}")
    announcement = ""
    for split in FRAMES:
        for kind in ("bulk", "vacancy"):
            folder = data_dir / FOLDER / split / kind
            if not (folder / "type.raw").exists():
                announcement = f"data: copper labelled with ASE's EMT potential, now in {data_dir / FOLDER}"
                _write(folder, made(split, kind))
    found = [
        [npy.read(str(data_dir / FOLDER / split / kind), type_map) for kind in ("bulk", "vacancy")] for split in FRAMES
    ]
    return found[0], found[1], announcement


def made(split: str, kind: str) -> list[Any]:
    """Labelled frames as `ase.Atoms`; the same every time."""
    try:
        from ase.build import bulk
        from ase.calculators.emt import EMT
    except ImportError:
        raise UserError("copper is labelled with ASE; install it with: pip install ase") from None
    rng = np.random.default_rng([SEEDS[split], kind == "vacancy"])
    found = []
    for _ in range(FRAMES[split] // (1 if kind == "bulk" else 4)):
        atoms = bulk("Cu", "fcc", a=LATTICE_A, cubic=True) * (2, 2, 2)
        if kind == "vacancy":
            del atoms[0]
        strain = rng.uniform(-STRAIN, STRAIN, (3, 3))
        atoms.set_cell(np.asarray(atoms.cell) @ (np.eye(3) + (strain + strain.T) / 2), scale_atoms=True)
        atoms.positions += rng.uniform(0, SHAKE_A) * rng.normal(size=atoms.positions.shape) / 3**0.5
        atoms.calc = EMT()
        found.append(atoms)
    return found


def _write(folder: Path, frames: Sequence[Any]) -> None:
    """deepmd-kit's layout; type.raw comes last, since its presence says that the folder is whole."""
    inside = folder / "set.000"
    inside.mkdir(parents=True, exist_ok=True)
    virials = [-atoms.get_stress(voigt=False) * atoms.get_volume() for atoms in frames]
    np.save(inside / "coord.npy", np.stack([atoms.positions.reshape(-1) for atoms in frames]))
    np.save(inside / "box.npy", np.stack([np.asarray(atoms.cell).reshape(-1) for atoms in frames]))
    np.save(inside / "energy.npy", np.asarray([atoms.get_potential_energy() for atoms in frames]))
    np.save(inside / "force.npy", np.stack([atoms.get_forces().reshape(-1) for atoms in frames]))
    np.save(inside / "virial.npy", np.stack([virial.reshape(-1) for virial in virials]))
    (folder / "type_map.raw").write_text("Cu\n")
    (folder / "type.raw").write_text("0\n" * len(frames[0]))
