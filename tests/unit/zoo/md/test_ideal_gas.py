"""The barostat on atoms that do not interact: the volume is that of an ideal gas."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from zoo.md.motion import Motion, State, begin, step
from zoo.md.units import BAR, BOLTZMANN

ATOMS, TEMPERATURE_K, PRESSURE_BAR = 64, 300.0, 5000.0


def test_mean_volume() -> None:
    def forces(coord: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return jnp.zeros(()), jnp.zeros_like(coord), jnp.zeros((3, 3))

    motion = Motion("npt", 1.0, TEMPERATURE_K, PRESSURE_BAR, 50.0, 200.0, 1 / PRESSURE_BAR)
    # N atoms and the cell's own measure: the mean of p(V) ~ V^N exp(-P V / kT) is (N + 1) kT / P.
    wanted = (ATOMS + 1) * BOLTZMANN * TEMPERATURE_K / (PRESSURE_BAR * BAR)
    mass = jnp.full((ATOMS, 1), 40.0)
    with versions.enable_x64():
        length = wanted ** (1 / 3)
        start = begin(motion, jnp.zeros((ATOMS, 3)), jnp.zeros((ATOMS, 3)), length * jnp.eye(3), forces, 0)

        def one(carry: State, _: None) -> tuple[State, jax.Array]:
            after = step(motion, mass, forces, carry)
            return after, jnp.linalg.det(after.cell)

        volumes = jax.jit(lambda s: jax.lax.scan(one, s, None, length=60000)[1])(start)
    np.testing.assert_allclose(np.asarray(volumes)[5000:].mean(), wanted, rtol=0.03)
