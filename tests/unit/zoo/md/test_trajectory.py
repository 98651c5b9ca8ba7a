"""Trajectories of a potential: energy is kept while neighbours come and go, and the list with its skin changes nothing."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from flowaware_core import versions
from zoo.md.motion import Motion
from zoo.md.trajectory import Trajectory, sorted_system
from zoo.md.units import ACCELERATION, BOLTZMANN
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.model import initial_parameters, initial_statistics

KINDS: dict[str, dict[str, Any]] = {
    "se_e2_a": {"type": "se_e2_a", "sel": [60, 60], "neuron": [3, 6], "axis_neuron": 2},
    "se_atten_v2": {"type": "se_atten_v2", "sel": 120, "neuron": [3, 6], "axis_neuron": 2, "attn": 4, "attn_layer": 1},
}


def begun(kind: str, skin: float) -> tuple[Trajectory, Any]:
    """Eight atoms, shaken from a lattice, at 300 K; most pairs cross the cutoff now and then."""
    section = {"type_map": ["A", "B"], "descriptor": {"rcut": 3.5, "rcut_smth": 1.0, **KINDS[kind]}}
    config = potential({**section, "fitting_net": {"neuron": [5, 5]}}, "model")
    with versions.enable_x64():
        params = jax.device_get(jax.jit(lambda: initial_parameters(config, jax.random.key(1)))())
        statistics = jax.device_get(initial_statistics(config))
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(2)] * 3), axis=-1).reshape(-1, 3) * 2.6
    coord = grid + 0.2 * rng.normal(size=grid.shape)
    mass = np.full(8, 12.0)
    system = sorted_system(Model(config, params, statistics), np.arange(8) % 2, mass, (True, True, True), skin)
    velocity = np.sqrt(BOLTZMANN * 300 * ACCELERATION / system.mass) * rng.normal(size=coord.shape)
    run = Trajectory(system, Motion(timestep_fs=0.25))
    return run, run.begin(coord[system.order], velocity, 5.2 * np.eye(3), 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_energy_does_not_drift(kind: str) -> None:
    run, state = begun(kind, 1.0)
    mass, times, energies = run.system.mass, [], []
    for stretch in range(40):
        state = run.run(state, 100)
        kinetic = 0.5 * float(np.sum(mass * np.asarray(state.velocity) ** 2)) / ACCELERATION
        times.append((stretch + 1) * 0.025)
        energies.append(float(state.energy) + kinetic)
    drift = np.polyfit(times, energies, 1)[0] / len(mass)
    assert abs(drift) < 1e-5 and run.rebuilds > 5  # eV/atom/ps


@pytest.mark.slow
def test_the_skin_changes_nothing() -> None:
    ends = []
    for skin in (0.6, 1.5):
        run, state = begun("se_e2_a", skin)
        ends.append(np.asarray(run.run(state, 60).coord))
    np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-10)
