"""Relaxation of a predicted structure in a force field (Amber99SB through OpenMM), its heavy atoms held near where they were.

Stiffness, tolerance and constraints are those of the original (supplement, section 1.8.6); hydrogens are added for the force field
and left out again.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from zoo.errors import UserError
from zoo.proteins.residues import ATOM_INDEX, ATOMS, THREE, UNKNOWN
from zoo.proteins.structures import Structure

STIFFNESS = 10.0  # kcal/mol/A^2
TOLERANCE = 2.39  # kcal/mol
ROUNDS = 3  # of minimisation; residues that still clash are let loose after each
RADII = {"C": 1.7, "N": 1.55, "O": 1.52, "S": 1.8}  # van der Waals, angstrom
OVERLAP = 1.5  # angstrom; nearer atoms clash
PEPTIDE, PEPTIDE_SPREAD = 1.33, 12 * 0.014  # C-N bond and how far it may be off, angstrom
BRIDGE = 3.0  # sulphurs this near are a bridge, which is no clash
N, CA, C, OXYGEN = 0, 1, 2, 4


class RelaxationFailed(Exception):
    """Why a structure was not relaxed."""


@dataclasses.dataclass(frozen=True)
class Relaxed:
    """Attributes:
    structure: with the new positions; residues of unknown type have no atoms.
    energy_before, energy_after: potential energy with hydrogens in place, kcal/mol.
    violations_before, violations_after: residues with a clash or a broken peptide bond.
    moved: root mean square distance that the heavy atoms went, angstrom.
    """

    structure: Structure
    energy_before: float
    energy_after: float
    violations_before: int
    violations_after: int
    moved: float


def library() -> Any:
    try:
        import openmm
        import openmm.app
    except ImportError:
        raise UserError("relax= needs OpenMM, which is not installed: pip install openmm") from None
    return openmm


def relaxed(structure: Structure) -> Relaxed:
    """The structure at an energy minimum near it.

    Raises:
        UserError: OpenMM is not installed.
        RelaxationFailed: OpenMM cannot do it; says why.
    """
    openmm = library()
    known = (structure.aatype != UNKNOWN) & structure.mask[:, [N, CA, C, OXYGEN]].all(axis=1)
    keep = np.flatnonzero(known & in_a_row(known, structure.chain))
    if not len(keep):
        raise RelaxationFailed("no two residues in a row have atoms, and the force field knows no single ones")
    before = violations(structure)
    try:
        simulation, heavy, first = prepared(openmm, structure, keep)
        start = energy(openmm, simulation)
        result, loose = structure, np.zeros(len(structure.aatype), bool)
        for _ in range(ROUNDS):
            hold(openmm, simulation, heavy, first, ~loose)
            simulation.minimizeEnergy(tolerance=gradient(openmm), maxIterations=0)
            positions = simulation.context.getState(getPositions=True).getPositions(asNumpy=True)
            moved = structure.positions.copy()
            for atom, residue, slot in heavy:
                moved[residue, slot] = 10 * positions[atom].value_in_unit(openmm.unit.nanometer)
            mask = structure.mask * known[:, None]
            result = dataclasses.replace(structure, positions=moved * mask[..., None], mask=mask)
            wrong = violating(result)
            if not wrong.any():
                break
            loose |= wrong
        hold(openmm, simulation, heavy, first, np.zeros_like(loose))
        end = energy(openmm, simulation)
    except (ValueError, KeyError, RuntimeError, openmm.OpenMMException) as error:
        raise RelaxationFailed(str(error).splitlines()[0]) from None
    if not np.isfinite([start, end]).all():
        raise RelaxationFailed("the energy is not finite")
    both = (result.mask * structure.mask) > 0
    went = np.sqrt(np.mean(np.sum(np.square(result.positions - structure.positions), axis=-1)[both]))
    return Relaxed(result, start, end, before, violations(result), float(went))


def in_a_row(known: np.ndarray, chain: np.ndarray) -> np.ndarray:
    """[N] which residues have a known neighbour in their chain; others stay where they are."""
    joined = known[:-1] & known[1:] & (chain[:-1] == chain[1:])
    return np.append(joined, False) | np.insert(joined, 0, False)


def prepared(openmm: Any, structure: Structure, keep: np.ndarray) -> tuple[Any, list[tuple[int, int, int]], np.ndarray]:
    """The simulation with hydrogens, its heavy atoms as (atom, residue, slot of atom37), and their first places in nm."""
    app, unit = openmm.app, openmm.unit
    pdb = app.PDBFile(io.StringIO(segments(structure, keep)))
    model = app.Modeller(pdb.topology, pdb.positions)
    field = app.ForceField("amber99sb.xml")
    model.addHydrogens(field)
    system = field.createSystem(model.topology, constraints=app.HBonds)
    force = openmm.CustomExternalForce("0.5 * k * ((x-x0)^2 + (y-y0)^2 + (z-z0)^2)")
    for name in ("k", "x0", "y0", "z0"):
        force.addPerParticleParameter(name)
    positions = np.array(model.positions.value_in_unit(unit.nanometer))
    heavy = []
    for residue, number in zip(model.topology.residues(), keep, strict=True):
        for atom in residue.atoms():
            if atom.name in ATOM_INDEX and structure.mask[number, ATOM_INDEX[atom.name]]:
                heavy.append((atom.index, int(number), ATOM_INDEX[atom.name]))
                force.addParticle(atom.index, [0.0, *positions[atom.index]])
    force.setForceGroup(1)
    system.addForce(force)
    platform = openmm.Platform.getPlatformByName("CPU")
    integrator = openmm.LangevinIntegrator(0, 0.01, 0.0)
    simulation = app.Simulation(model.topology, system, integrator, platform, {"DeterministicForces": "true"})
    simulation.context.setPositions(model.positions)
    return simulation, heavy, positions


def hold(openmm: Any, simulation: Any, heavy: list[tuple[int, int, int]], first: np.ndarray, held: np.ndarray) -> None:
    """Springs from every heavy atom of these residues to its first place."""
    unit = openmm.unit
    stiff = (STIFFNESS * unit.kilocalories_per_mole / unit.angstrom**2).value_in_unit(
        unit.kilojoules_per_mole / unit.nanometer**2
    )
    system = simulation.context.getSystem()
    (force,) = (one for one in system.getForces() if isinstance(one, openmm.CustomExternalForce))
    for index, (atom, residue, _) in enumerate(heavy):
        force.setParticleParameters(index, atom, [stiff if held[residue] else 0.0, *first[atom]])
    force.updateParametersInContext(simulation.context)


def energy(openmm: Any, simulation: Any) -> float:
    """Without the springs, kcal/mol."""
    state = simulation.context.getState(getEnergy=True, groups={0})
    return float(state.getPotentialEnergy().value_in_unit(openmm.unit.kilocalories_per_mole))


def gradient(openmm: Any) -> Any:
    """The tolerance in the unit in which OpenMM wants it: that of a force."""
    unit = openmm.unit
    return TOLERANCE * unit.kilocalories_per_mole / unit.angstrom


def segments(structure: Structure, keep: np.ndarray) -> str:
    """A PDB file in which every unbroken stretch of residues is a chain of its own, with the second oxygen at its end."""
    lines: list[str] = []
    serial = 0
    for place, residue in enumerate(keep):
        following = keep[place + 1] if place + 1 < len(keep) else -1
        last = following != residue + 1 or structure.chain[following] != structure.chain[residue]
        atoms = [(ATOMS[slot], structure.positions[residue, slot]) for slot in np.flatnonzero(structure.mask[residue])]
        atoms = [atom for atom in atoms if atom[0] != "OXT"]
        if last:
            atoms.append(("OXT", second_oxygen(structure.positions[residue])))
        for name, (x, y, z) in atoms:
            serial += 1
            three = THREE[structure.aatype[residue]]
            lines.append(
                f"ATOM  {serial % 100_000:>5} {name if len(name) == 4 else ' ' + name:<4} {three:>3} A{place % 10_000:>4}    "
                f"{x:>8.3f}{y:>8.3f}{z:>8.3f}  1.00  0.00          {name[0]:>2}"
            )
        if last:
            lines.append("TER")
    return "\n".join([*lines, "END", ""])


def second_oxygen(positions: np.ndarray) -> np.ndarray:
    """O mirrored at the line through CA and C."""
    axis = positions[C] - positions[CA]
    axis = axis / np.linalg.norm(axis)
    bond = positions[OXYGEN] - positions[C]
    return positions[C] + 2 * axis * (axis @ bond) - bond


def violations(structure: Structure) -> int:
    return int(violating(structure).sum())


def violating(structure: Structure) -> np.ndarray:
    """[N] which residues clash with another or have a broken peptide bond."""
    wrong = np.zeros(len(structure.aatype), bool)
    residue, slot = np.nonzero(structure.mask)
    points = structure.positions[residue, slot]
    radius = np.array([RADII.get(ATOMS[one][0], 1.7) for one in slot])
    pairs = cKDTree(points).query_pairs(2 * max(RADII.values()) - OVERLAP, output_type="ndarray")
    i, j = pairs[:, 0], pairs[:, 1]
    far = np.linalg.norm(points[i] - points[j], axis=-1)
    clash = (far < radius[i] + radius[j] - OVERLAP) & (residue[i] != residue[j])
    clash &= ~(bonded(residue[i], slot[i], residue[j], slot[j]) | bonded(residue[j], slot[j], residue[i], slot[i]))
    clash &= ~((slot[i] == ATOM_INDEX["SG"]) & (slot[j] == ATOM_INDEX["SG"]) & (far < BRIDGE))
    wrong[residue[i][clash]] = wrong[residue[j][clash]] = True
    next_to = structure.chain[:-1] == structure.chain[1:]
    next_to &= (structure.mask[:-1, C] > 0) & (structure.mask[1:, N] > 0)
    length = np.linalg.norm(structure.positions[:-1, C] - structure.positions[1:, N], axis=-1)
    broken = np.flatnonzero(next_to & (np.abs(length - PEPTIDE) > PEPTIDE_SPREAD))
    wrong[broken] = wrong[broken + 1] = True
    return wrong


def bonded(residue: np.ndarray, slot: np.ndarray, other: np.ndarray, other_slot: np.ndarray) -> np.ndarray:
    """Whether the first atom is the C and the second the N of a peptide bond."""
    return (other == residue + 1) & (slot == C) & (other_slot == N)
