"""Properties of crystals from a potential: lattice, equation of state, elastic constants. At rest, at zero temperature.

ASE's calculators and optimisers do the work, so any calculator will do. Lengths in angstrom, energies in eV, moduli in GPa.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from zoo.errors import UserError

MOST_STEPS = 1000
LEAST = 1e-9
"""Differences of energy, in eV an atom, below which a volume makes none."""


@dataclasses.dataclass(frozen=True)
class EquationOfState:
    """Energy over volume, and the Birch-Murnaghan curve through it.

    Attributes:
        volume: A^3, [P]; energy: eV, [P].
        best_volume, best_energy: where the curve is lowest.
        bulk_modulus: GPa, there.
    """

    volume: np.ndarray
    energy: np.ndarray
    best_volume: float
    best_energy: float
    bulk_modulus: float


@dataclasses.dataclass(frozen=True)
class Elastic:
    """Elastic constants.

    Attributes:
        stiffness: [6, 6] in GPa, Voigt's order xx, yy, zz, yz, xz, xy, with engineering shear strains.
    """

    stiffness: np.ndarray

    @property
    def bulk_modulus(self) -> float:
        """Hill's mean of Voigt's and Reuss' bounds, for a polycrystal."""
        c, s = self.stiffness, np.linalg.inv(self.stiffness)
        return float(0.5 * (c[:3, :3].sum() / 9 + 1 / s[:3, :3].sum()))

    @property
    def shear_modulus(self) -> float:
        """Hill's mean."""
        c, s = self.stiffness, np.linalg.inv(self.stiffness)
        off = c[0, 1] + c[0, 2] + c[1, 2]
        voigt = (np.trace(c[:3, :3]) - off + 3 * np.trace(c[3:, 3:])) / 15
        off = s[0, 1] + s[0, 2] + s[1, 2]
        reuss = 15 / (4 * np.trace(s[:3, :3]) - 4 * off + 3 * np.trace(s[3:, 3:]))
        return float(0.5 * (voigt + reuss))


def relaxed(atoms: Any, max_force: float, cell: bool, steps: int = MOST_STEPS) -> Any:
    """A copy with no force larger than `max_force` (eV/A) and, if `cell`, without stress; `atoms` has a calculator.

    Raises:
        UserError: it does not come to rest.
    """
    from ase.filters import FrechetCellFilter
    from ase.optimize import BFGSLineSearch

    moved = atoms.copy()
    moved.calc = atoms.calc
    moving: Any = FrechetCellFilter(moved) if cell else moved
    silent: Any = None
    if not BFGSLineSearch(moving, logfile=silent).run(fmax=max_force, steps=steps):
        raise UserError(
            f"the structure does not come to rest in {steps} steps; raise steps or max_force, or mend the structure"
        )
    return moved


def equation_of_state(atoms: Any, strain: float, points: int, max_force: float) -> EquationOfState:
    """Energies over volumes from (1 - strain) to (1 + strain) times the cell's; atoms are relaxed in each.

    Raises:
        UserError: the energy has no minimum among them.
    """
    from ase.eos import EquationOfState as Fit
    from ase.units import GPa

    volumes, energies = [], []
    for scale in np.linspace(1 - strain, 1 + strain, points):
        scaled = atoms.copy()
        scaled.set_cell(np.asarray(atoms.cell) * scale ** (1 / 3), scale_atoms=True)
        scaled.calc = atoms.calc
        scaled = relaxed(scaled, max_force, cell=False)
        volumes.append(scaled.get_volume())
        energies.append(scaled.get_potential_energy())
    if np.ptp(energies) < LEAST * len(atoms):
        raise UserError("the energy does not depend on the volume; no two atoms lie within the cutoff")
    try:
        volume, energy, modulus = Fit(volumes, energies, eos="birchmurnaghan").fit()
    except (RuntimeError, ValueError) as error:
        raise UserError(f"no equation of state fits the energies ({error}); give a structure nearer to rest") from None
    if not volumes[0] < volume < volumes[-1]:
        raise UserError(
            f"the lowest energy lies at {volume:.3f} A^3, outside {volumes[0]:.3f} to {volumes[-1]:.3f}; "
            "relax the cell first (relax_cell=true) or raise strain"
        )
    return EquationOfState(np.asarray(volumes), np.asarray(energies), volume, energy, modulus / GPa)


def elastic_constants(atoms: Any, strain: float, max_force: float) -> Elastic:
    """From stresses of cells strained by +-`strain` in each of six ways; atoms are relaxed in each.

    Raises:
        UserError: some strain needs no force.
    """
    from ase.units import GPa

    stiffness = np.zeros((6, 6))
    for column, (a, b) in enumerate(((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))):
        stresses = []
        for sign in (1, -1):
            change = np.eye(3)
            change[a, b] += 0.5 * sign * strain
            change[b, a] += 0.5 * sign * strain
            strained = atoms.copy()
            strained.set_cell(np.asarray(atoms.cell) @ change, scale_atoms=True)
            strained.calc = atoms.calc
            stresses.append(relaxed(strained, max_force, cell=False).get_stress())
        stiffness[:, column] = (stresses[0] - stresses[1]) / (2 * strain) / GPa
    if np.linalg.matrix_rank(stiffness) < len(stiffness):
        raise UserError(
            "some strain needs no force; no two atoms lie within the cutoff, or the structure is no crystal"
        )
    return Elastic(0.5 * (stiffness + stiffness.T))
