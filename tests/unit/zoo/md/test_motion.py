"""Motion in a harmonic well: energy is kept, thermostats give their temperature, relaxation finds the bottom."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowaware_core import versions
from zoo.md.motion import ENSEMBLES, Motion, State, begin, kinetic_energy, step
from zoo.md.units import BOLTZMANN

ATOMS, STIFFNESS = 50, 5.0  # eV/A^2


def forces(coord: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    force = -STIFFNESS * coord
    return 0.5 * STIFFNESS * jnp.sum(coord**2), force, coord.T @ force


def run(
    ensemble: str, steps: int, timestep_fs: float = 0.5, speed: float = 0.005
) -> tuple[State, np.ndarray, np.ndarray]:
    """The last state, and total and kinetic energy after each step."""
    motion = Motion(ensemble=ensemble, timestep_fs=timestep_fs, temperature_k=200.0, thermostat_fs=20.0)  # type: ignore[arg-type]
    mass = jnp.full((ATOMS, 1), 20.0)
    with versions.enable_x64():
        rng = np.random.default_rng(0)
        velocity = speed * rng.normal(size=(ATOMS, 3))
        state = begin(
            motion, 0.1 * jnp.asarray(rng.normal(size=(ATOMS, 3))), jnp.asarray(velocity), 9.0 * jnp.eye(3), forces, 1
        )

        def one(carry: State, _: None) -> tuple[State, tuple[jax.Array, jax.Array]]:
            after = step(motion, mass, forces, carry)
            kinetic = kinetic_energy(mass, after.velocity)
            return after, (after.energy + kinetic, kinetic)

        state, (total, kinetic) = jax.jit(lambda s: jax.lax.scan(one, s, None, length=steps))(state)
        return jax.device_get(state), np.asarray(total), np.asarray(kinetic)


def test_energy_is_kept_and_its_error_falls_with_the_square_of_the_step() -> None:
    errors = []
    for length in (1.0, 0.5):
        _, total, _ = run("nve", int(400 / length), length)
        errors.append(np.ptp(total))
        assert abs(total[-1] / total[0] - 1) < 1e-3
    assert 3 < errors[0] / errors[1] < 5


@pytest.mark.parametrize("ensemble", ["nvt", "nose_hoover"])
def test_thermostats_give_mean_and_variance_of_the_canonical_ensemble(ensemble: str) -> None:
    _, _, kinetic = run(ensemble, 40000, 1.0)
    freedom = 3 * ATOMS - (3 if ensemble == "nose_hoover" else 0)
    wanted = 0.5 * freedom * BOLTZMANN * 200.0
    np.testing.assert_allclose(kinetic[2000:].mean(), wanted, rtol=0.02)
    if ensemble == "nvt":
        np.testing.assert_allclose(kinetic[2000:].var(), wanted**2 * 2 / freedom, rtol=0.15)


def test_relaxation_finds_the_bottom() -> None:
    state, _, _ = run("relax", 400)
    assert np.abs(state.force).max() < 1e-3


def test_every_ensemble_is_tested_or_named() -> None:
    assert set(ENSEMBLES) == {"nve", "nvt", "nose_hoover", "npt", "relax"}
