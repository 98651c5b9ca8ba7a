"""The default potential, trained to its end: copper's lattice and elastic constants are those of EMT, which labelled its frames.

Its atoms then move as they must: energy is kept, thermostats give the canonical ensemble, the barostat ASE's mean volume.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from zoo import train
from zoo.md.calculator import DeepPotential
from zoo.md.motion import Motion, State
from zoo.md.properties import elastic_constants, relaxed
from zoo.md.trajectory import Trajectory, sorted_system
from zoo.md.units import ACCELERATION, BAR, BOLTZMANN
from zoo.models.deepmd.convert import Model, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
TEMPERATURE_K = 300.0
ATOMS = 32


@pytest.fixture(scope="module")
def model(command: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copper")
    words = ["recipe=dp_copper", "cluster=local", f"data_dir={folder}", f"run_dir={folder / 'run'}"]
    try:
        result = command(train.main, *words, "eval_every=3000", bare=True)
    finally:
        jax.config.update("jax_enable_x64", False)  # the command switches it on for its process
    assert result.code == 0, result.err
    return folder / "run/model.dp"


def crystal() -> Any:
    build = pytest.importorskip("ase.build")
    return build.bulk("Cu", "fcc", a=3.62, cubic=True)


def test_lattice_and_elastic_constants(model: Path) -> None:
    emt = pytest.importorskip("ase.calculators.emt")
    found = []
    for calculator in (emt.EMT(), DeepPotential(model)):
        atoms = crystal()
        atoms.calc = calculator
        atoms = relaxed(atoms, 1e-4, cell=True)
        stiffness = elastic_constants(atoms, 0.004, 1e-4).stiffness
        found.append([atoms.cell.cellpar()[0], stiffness[0, 0], stiffness[0, 1], stiffness[3, 3]])
    (lattice, *elastic), (ours, *moduli) = found
    print(f"lattice {lattice:.4f} {ours:.4f} A; C11 C12 C44 {np.round(elastic, 2)} {np.round(moduli, 2)} GPa")
    assert abs(ours / lattice - 1) < 0.005
    np.testing.assert_allclose(moduli, elastic, rtol=0.1)


def compressed(model: Path) -> Model:
    return dataclasses.replace(read(model), compressed=True)


def moving(model: Path, motion: Motion, steps: int, every: int) -> Iterator[tuple[State, float]]:
    """States of a crystal of 32 atoms, and their kinetic energies in eV."""
    atoms = crystal() * (2, 2, 2)
    system = sorted_system(compressed(model), np.zeros(ATOMS, int), atoms.get_masses(), (True, True, True), 1.0)
    speed = np.sqrt(
        BOLTZMANN * 2 * TEMPERATURE_K * ACCELERATION / system.mass
    )  # half of it turns into potential energy
    velocity = speed * np.random.default_rng(0).normal(size=(ATOMS, 3))
    run = Trajectory(system, motion)
    state = run.begin(atoms.positions, velocity - velocity.mean(axis=0), np.asarray(atoms.cell), 0)
    for _ in range(steps // every):
        state = run.run(state, every)
        yield state, 0.5 * float(np.sum(system.mass * np.asarray(state.velocity) ** 2)) / ACCELERATION


def test_energy_does_not_drift(model: Path) -> None:
    """Two picoseconds."""
    energies = [float(state.energy) + kinetic for state, kinetic in moving(model, Motion("nve", 0.25), 8000, 100)]
    drift = np.polyfit(0.025 * np.arange(len(energies)), energies, 1)[0] / ATOMS
    print(f"drift {drift:.2e} eV/atom/ps")
    assert abs(drift) < 1e-5


@pytest.mark.parametrize(("ensemble", "freedom"), [("nvt", 3 * ATOMS), ("nose_hoover", 3 * ATOMS - 3)])
def test_kinetic_energy_is_canonical(model: Path, ensemble: Any, freedom: int) -> None:
    motion = Motion(ensemble, 2.0, TEMPERATURE_K, thermostat_fs=50.0)
    kinetic = np.asarray([kinetic for _, kinetic in moving(model, motion, 8000, 20)])[50:]
    heat = BOLTZMANN * TEMPERATURE_K
    mean, variance = kinetic.mean() / (freedom * heat / 2), kinetic.var() / (freedom * heat**2 / 2)
    print(f"{ensemble}: mean {mean:.4f}, variance {variance:.4f} of the canonical ones")
    assert abs(mean - 1) < 0.03 and abs(variance - 1) < 0.3


def test_mean_volume_is_that_of_ase(model: Path) -> None:
    """At 20 kbar the volume is a percent and a half below that at rest, and fluctuates by about one."""
    md, distribution = (
        pytest.importorskip("ase.md.nose_hoover_chain"),
        pytest.importorskip("ase.md.velocitydistribution"),
    )
    from ase import units

    pressure_bar, steps, settled = 20000.0, 12000, 2000
    motion = Motion("npt", 2.0, TEMPERATURE_K, pressure_bar, 100.0, 500.0, 7e-7)
    ours = [abs(np.linalg.det(state.cell)) for state, _ in moving(model, motion, steps, 10)][settled // 10 :]
    atoms = crystal() * (2, 2, 2)
    atoms.calc = DeepPotential(compressed(model))
    distribution.MaxwellBoltzmannDistribution(atoms, temperature_K=2 * TEMPERATURE_K, rng=np.random.default_rng(0))
    pressure = pressure_bar * BAR
    barostat = md.IsotropicMTKNPT(atoms, 2 * units.fs, TEMPERATURE_K, pressure, 100 * units.fs, 500 * units.fs)
    theirs: list[float] = []
    barostat.attach(lambda: theirs.append(atoms.get_volume()), interval=10)
    barostat.run(steps)
    theirs = theirs[settled // 10 :]
    print(f"volume {np.mean(ours):.3f} A^3, ASE {np.mean(theirs):.3f}; spread {np.std(ours):.3f}, {np.std(theirs):.3f}")
    assert abs(np.mean(ours) / np.mean(theirs) - 1) < 0.004
