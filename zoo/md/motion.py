"""One step of motion in each ensemble: pure functions from a state to the next, for jit.

Units as in `zoo.md.units`. Forces come from a function of positions and cell; each step evaluates it once, at its end.
References: B. Leimkuhler, C. Matthews, Appl. Math. Res. Express 2013, 34 (splitting of Langevin's equation); G. J. Martyna,
M. L. Klein, M. Tuckerman, J. Chem. Phys. 97, 2635 (1992) (chains of thermostats); M. Bernetti, G. Bussi, J. Chem. Phys.
153, 114107 (2020) (rescaled cell); E. Bitzek et al., Phys. Rev. Lett. 97, 170201 (2006) (relaxation).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from zoo.md.units import ACCELERATION, BAR, BOLTZMANN

ENSEMBLES = ("nve", "nvt", "nose_hoover", "npt", "relax")
CHAIN = 3
"""Thermostats in a chain."""

Forces = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]


@dataclasses.dataclass(frozen=True)
class Motion:
    """How atoms move.

    Attributes:
        ensemble: "nve"; "nvt" (Langevin); "nose_hoover"; "npt" (Langevin, cell rescaled in all directions alike);
            "relax" (to a minimum of the energy, at constant cell).
        timestep_fs: length of a step.
        temperature_k: of the thermostat.
        pressure_bar: of the barostat.
        thermostat_fs, barostat_fs: how long their memory is.
        compressibility_per_bar: roughly the material's; only how fast the cell adapts depends on it.
    """

    ensemble: Literal["nve", "nvt", "nose_hoover", "npt", "relax"] = "nve"
    timestep_fs: float = 0.5
    temperature_k: float = 300.0
    pressure_bar: float = 1.0
    thermostat_fs: float = 100.0
    barostat_fs: float = 1000.0
    compressibility_per_bar: float = 4.5e-5


class State(NamedTuple):
    """Atoms in motion.

    Attributes:
        coord, velocity, force: [N, 3] in A, A/fs, eV/A.
        cell: [3, 3], vectors as rows; energy: (); virial: [3, 3] in eV.
        chain: [2, CHAIN], positions and velocities of the chain of thermostats.
        pace: [3], what relaxation remembers: time step, mixing, steps downhill.
        key: of the random numbers, as data (uint32).
    """

    coord: jax.Array
    velocity: jax.Array
    force: jax.Array
    cell: jax.Array
    energy: jax.Array
    virial: jax.Array
    chain: jax.Array
    pace: jax.Array
    key: jax.Array


def begin(motion: Motion, coord: Any, velocity: Any, cell: Any, forces: Forces, seed: int) -> State:
    """The state before the first step."""
    energy, force, virial = forces(coord, cell)
    pace = jnp.asarray([motion.timestep_fs, 0.1, 0.0])
    key = jax.random.key_data(jax.random.key(seed))
    return State(coord, velocity, force, cell, energy, virial, jnp.zeros((2, CHAIN)), pace, key)


def step(motion: Motion, mass: jax.Array, forces: Forces, state: State) -> State:
    """One time step; `mass` is [N, 1] in u."""
    if motion.ensemble == "relax":
        return relax(motion, mass, forces, state)
    half = 0.5 * motion.timestep_fs
    if motion.ensemble == "nose_hoover":
        state = chained(motion, mass, state)
    velocity = state.velocity + half * ACCELERATION * state.force / mass
    coord, cell, key = state.coord + half * velocity, state.cell, state.key
    if motion.ensemble in ("nvt", "npt"):
        drawn, after = jax.random.split(jax.random.wrap_key_data(key))
        velocity = refreshed(motion, mass, velocity, drawn)
        key = jax.random.key_data(after)
    coord = coord + half * velocity
    if motion.ensemble == "npt":
        drawn, after = jax.random.split(jax.random.wrap_key_data(key))
        scale = rescaling(motion, mass, velocity, cell, state.virial, drawn)
        coord, cell, velocity, key = coord * scale, cell * scale, velocity / scale, jax.random.key_data(after)
    energy, force, virial = forces(coord, cell)
    velocity = velocity + half * ACCELERATION * force / mass
    state = state._replace(
        coord=coord, velocity=velocity, force=force, cell=cell, energy=energy, virial=virial, key=key
    )
    return chained(motion, mass, state) if motion.ensemble == "nose_hoover" else state


def kinetic_energy(mass: jax.Array, velocity: jax.Array) -> jax.Array:
    """In eV."""
    return 0.5 * jnp.sum(mass * velocity**2) / ACCELERATION


def volume(cell: jax.Array) -> jax.Array:
    """In A^3; written out, since a determinant of a general matrix is no operator that is split over devices."""
    return jnp.abs(jnp.sum(cell[0] * jnp.cross(cell[1], cell[2])))


def pressure(mass: jax.Array, velocity: jax.Array, cell: jax.Array, virial: jax.Array) -> jax.Array:
    """In eV/A^3; of motion and forces, a third of the trace."""
    return (2 * kinetic_energy(mass, velocity) + jnp.trace(virial)) / (3 * volume(cell))


def refreshed(motion: Motion, mass: jax.Array, velocity: jax.Array, key: jax.Array) -> jax.Array:
    """Velocities after friction and noise of a whole step."""
    kept = jnp.exp(-motion.timestep_fs / motion.thermostat_fs)
    spread = jnp.sqrt((1 - kept**2) * BOLTZMANN * motion.temperature_k * ACCELERATION / mass)
    return kept * velocity + spread * jax.random.normal(key, velocity.shape, velocity.dtype)


def rescaling(
    motion: Motion, mass: jax.Array, velocity: jax.Array, cell: jax.Array, virial: jax.Array, key: jax.Array
) -> jax.Array:
    """By how much all lengths grow in a step."""
    rate = motion.compressibility_per_bar / BAR / motion.barostat_fs
    excess = pressure(mass, velocity, cell, virial) - motion.pressure_bar * BAR
    noise = jnp.sqrt(2 * BOLTZMANN * motion.temperature_k * rate * motion.timestep_fs / volume(cell))
    return jnp.exp((rate * excess * motion.timestep_fs + noise * jax.random.normal(key, (), cell.dtype)) / 3)


def chained(motion: Motion, mass: jax.Array, state: State) -> State:
    """Half a step of the chain of thermostats: velocities shrink or grow, and the chain moves."""
    freedom = state.velocity.size - 3  # the centre of mass rests
    heat = BOLTZMANN * motion.temperature_k
    weights = heat * motion.thermostat_fs**2 * jnp.ones(CHAIN).at[0].set(float(freedom))
    quarter, eighth = 0.25 * motion.timestep_fs, 0.125 * motion.timestep_fs
    place, pace = state.chain
    kinetic = 2 * kinetic_energy(mass, state.velocity)

    def push(kinetic: jax.Array, pace: jax.Array, link: int) -> jax.Array:
        drive = kinetic - freedom * heat if link == 0 else weights[link - 1] * pace[link - 1] ** 2 - heat
        return drive / weights[link]

    for link in reversed(range(CHAIN)):
        damping = jnp.exp(-eighth * pace[link + 1]) if link + 1 < CHAIN else 1.0
        pace = pace.at[link].set((pace[link] * damping + quarter * push(kinetic, pace, link)) * damping)
    scale = jnp.exp(-2 * quarter * pace[0])
    kinetic, place = kinetic * scale**2, place + 2 * quarter * pace
    for link in range(CHAIN):
        damping = jnp.exp(-eighth * pace[link + 1]) if link + 1 < CHAIN else 1.0
        pace = pace.at[link].set((pace[link] * damping + quarter * push(kinetic, pace, link)) * damping)
    return state._replace(velocity=state.velocity * scale, chain=jnp.stack([place, pace]))


def relax(motion: Motion, mass: jax.Array, forces: Forces, state: State) -> State:
    """One step of FIRE: along the forces, faster while it goes downhill, from rest where it goes up."""
    del mass  # all atoms alike
    length, mixing, downhill = state.pace
    power = jnp.sum(state.force * state.velocity)
    goes_down = power > 0
    downhill = jnp.where(goes_down, downhill + 1, 0.0)
    settled = goes_down & (downhill > 5)
    length = jnp.where(
        goes_down, jnp.where(settled, jnp.minimum(1.1 * length, 10 * motion.timestep_fs), length), 0.5 * length
    )
    mixing = jnp.where(goes_down, jnp.where(settled, 0.99 * mixing, mixing), 0.1)
    size = jnp.sqrt(jnp.sum(state.force**2)) + 1e-30
    along = state.force / size * jnp.sqrt(jnp.sum(state.velocity**2))
    velocity = jnp.where(goes_down, (1 - mixing) * state.velocity + mixing * along, 0.0)
    velocity = velocity + length * ACCELERATION * state.force
    move = length * velocity
    move = move * jnp.minimum(1.0, 0.1 / (jnp.max(jnp.abs(move)) + 1e-30))  # never more than 0.1 A
    coord = state.coord + move
    energy, force, virial = forces(coord, state.cell)
    pace = jnp.stack([length, mixing, downhill])
    return state._replace(coord=coord, velocity=velocity, force=force, energy=energy, virial=virial, pace=pace)
