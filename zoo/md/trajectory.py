"""A trajectory of a potential: neighbours with a skin, found anew before any pair can slip in unseen; compiled steps between."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import flowaware_core as fa
from flowaware_core import versions
from zoo.md import motion as moving
from zoo.md import neighbours
from zoo.md.cells import Periodic
from zoo.md.motion import Motion, State, volume
from zoo.models.deepmd.config import Potential, vacancies_matter
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.evaluate import SPARE, arrays, nearness, shortages
from zoo.models.deepmd.layout import Layout
from zoo.models.deepmd.model import displacements, outputs, sorted_by_type

TOO_FAST = "atoms move further in one step than the neighbour list allows"


@dataclasses.dataclass(frozen=True)
class System:
    """Atoms that do not change while they move, sorted by type.

    Attributes:
        model: the potential.
        order: where each sorted atom stood in the caller's order, [N].
        counts: atoms of each type.
        mass: [N, 1] in u.
        periodic: along which cell vectors space repeats.
        skin: how much further than the cutoff neighbours are looked for, in A.
        vacant: as in `Layout`.
    """

    model: Model
    order: np.ndarray
    counts: tuple[int, ...]
    mass: np.ndarray
    periodic: Periodic
    skin: float = 1.0
    vacant: int | None = None


class Trajectory:
    """Goes on from a state; the number of slots grows where it must."""

    def __init__(self, system: System, motion: Motion, cluster: fa.Cluster | None = None) -> None:
        """On one device, or on those of a cluster, over which the engine then splits atoms and neighbours."""
        self.system, self.motion = system, motion
        self.cluster = cluster
        self.plan: fa.Plan | None = None
        self._arrays = arrays(system.model)
        self._slots = (0,) * len(system.counts)
        self._steps: dict[Layout, fa.Step] = {}
        self._warned = False
        self.rebuilds = 0

    def begin(self, coord: np.ndarray, velocity: np.ndarray, cell: np.ndarray, seed: int) -> State:
        """The state before the first step; positions and velocities in the sorted order."""
        with versions.enable_x64():
            layout, table = self._neighbours(coord, cell)
            first = started(self.system.model.config, layout, self.motion)
            return first(*self._arrays, coord, velocity, cell, table, seed)

    def run(self, state: State, steps: int) -> State:
        """The state `steps` later.

        Raises:
            FloatingPointError: the energy is not finite.
        """
        if self.cluster is not None:
            return self._run_split(self.cluster, state, steps)
        model, system = self.system.model, self.system
        done = 0
        with versions.enable_x64():
            while done < steps:
                layout, table = self._neighbours(np.asarray(state.coord), np.asarray(state.cell))
                stretch = stretched(model.config, layout, self.motion, system.skin)
                state, count = stretch(*self._arrays, state, table, system.mass, steps - done)
                done += int(count)
                refuse_explosion(state)
                if not int(count):
                    raise FloatingPointError(TOO_FAST)
        return state

    def _run_split(self, cluster: fa.Cluster, state: State, steps: int) -> State:
        """The same, a step at a time on many devices."""
        system, done = self.system, 0
        with versions.enable_x64():
            while done < steps:
                state = jax.device_get(state)
                layout, table = self._neighbours(np.asarray(state.coord), np.asarray(state.cell))
                fixed = (*self._arrays, table, system.mass, state.coord, state.cell)
                one = functools.partial(stepped, system.model.config, layout, self.motion, system.skin)
                if float(margin(system.model.config, self.motion, system.skin, state.coord, state.cell, state)) <= 0:
                    raise FloatingPointError(TOO_FAST)
                step = self._planned(cluster, layout, one, (state, *fixed))
                placed = jax.device_put(fixed, step.in_shardings[1:])
                state, left = jax.device_put(state, step.in_shardings[0]), 1.0
                while done < steps and left > 0:
                    state, left = step(state, *placed)
                    done += 1
                refuse_explosion(state)
        return jax.device_get(state)

    def _planned(self, cluster: fa.Cluster, layout: Layout, one: Any, args: tuple[Any, ...]) -> fa.Step:
        """The compiled step of a layout; planned once for each."""
        if layout not in self._steps:
            task = fa.Task(one, args, mode="simulation", carried={0: 0}, name="molecular dynamics")
            self.plan = fa.plan(task, cluster)
            self._steps[layout] = fa.apply(self.plan, task, devices=jax.devices()[: cluster.num_devices])
        return self._steps[layout]

    def _neighbours(self, coord: np.ndarray, cell: np.ndarray) -> tuple[Layout, Any]:
        config, system = self.system.model.config, self.system
        types = np.repeat(np.arange(len(system.counts)), system.counts)
        found = neighbours.pairs(coord, cell, system.periodic, types, config.num_types, config.rcut + system.skin)
        most = found.most()
        refuse_truncation(config, found)
        if not self._warned and (sentence := nearness(system.model, found)):
            self._warned = True
            warnings.warn(sentence, stacklevel=3)
        self._slots = tuple(max(a, -(-b // SPARE) * SPARE) for a, b in zip(self._slots, most, strict=True))
        self.rebuilds += 1
        table = neighbours.table(found, self._slots)
        return Layout(system.counts, self._slots, system.vacant), (table.neighbour, table.image)


def refuse_truncation(config: Potential, found: neighbours.Pairs) -> None:
    """While atoms move, the nearest are not always the same; so `sel` must leave room for all within the cutoff."""
    for given, most, _ in shortages(config, [found]):
        raise ValueError(
            f"atoms have up to {most} neighbours within the cutoff, more than the model's sel={given}: either the structure is "
            "denser than those of the training, or its atoms have run into each other"
        )


def forces_of(config: Potential, layout: Layout, params: Any, statistics: Any, table: Any) -> moving.Forces:
    """Energy, forces and virial as a function of positions and cell, with neighbours as they are."""
    neighbour, image = table

    def forces(coord: jax.Array, cell: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        vectors = displacements(coord, cell, neighbour, image)
        there = jnp.ones(layout.num_atoms, bool)
        found = outputs(config, params, statistics, layout, vectors, neighbour, there)
        return found.energy, found.force, found.virial

    return forces


@functools.lru_cache(maxsize=32)
def started(config: Potential, layout: Layout, motion: Motion) -> Any:
    def first(params: Any, statistics: Any, coord: Any, velocity: Any, cell: Any, table: Any, seed: Any) -> State:
        return moving.begin(motion, coord, velocity, cell, forces_of(config, layout, params, statistics, table), seed)

    return jax.jit(first, static_argnums=6)


@functools.lru_cache(maxsize=32)
def stretched(config: Potential, layout: Layout, motion: Motion, skin: float) -> Any:
    """Steps until a number is done or the next one could bring atoms nearer than the neighbour list knows."""

    def stretch(params: Any, statistics: Any, begun: State, table: Any, mass: Any, steps: Any) -> tuple[State, Any]:
        forces = forces_of(config, layout, params, statistics, table)

        def going(carry: tuple[State, jax.Array]) -> jax.Array:
            state, count = carry
            left = margin(config, motion, skin, begun.coord, begun.cell, state)
            return (count < steps) & (left > 0) & jnp.isfinite(state.energy)

        def next_one(carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
            state, count = carry
            return moving.step(motion, mass, forces, state), count + 1

        return jax.lax.while_loop(going, next_one, (begun, jnp.zeros((), jnp.int32)))

    return jax.jit(stretch)


def margin(config: Potential, motion: Motion, skin: float, coord: Any, cell: Any, state: State) -> jax.Array:
    """How much of the skin, in A, is left after one more step, for neighbours found at `coord` in `cell`."""
    # What the cell's growth moves alike is no displacement; its shrinking brings what was outside nearer.
    scale = jnp.cbrt(volume(state.cell) / volume(cell))
    moved = jnp.max(jnp.sqrt(jnp.sum((state.coord - coord * scale) ** 2, axis=1)))
    ahead = 2 * motion.timestep_fs * jnp.max(jnp.sqrt(jnp.sum(state.velocity**2, axis=1)))
    ahead = jnp.where(motion.ensemble == "relax", 0.2, ahead)
    return skin - 2 * (moved + ahead) - jnp.maximum(1 - scale, 0.0) * (config.rcut + skin)


def stepped(
    config: Potential,
    layout: Layout,
    motion: Motion,
    skin: float,
    state: State,
    params: Any,
    statistics: Any,
    table: Any,
    mass: Any,
    coord: Any,
    cell: Any,
) -> tuple[State, jax.Array]:
    """The state after a step, and the `margin` of neighbours found at `coord` in `cell`."""
    state = moving.step(motion, mass, forces_of(config, layout, params, statistics, table), state)
    return state, margin(config, motion, skin, coord, cell, state)


def refuse_explosion(state: State) -> None:
    if not np.isfinite(float(state.energy)):
        raise FloatingPointError(f"the energy is {float(state.energy)}")


def sorted_system(model: Model, types: np.ndarray, mass: np.ndarray, periodic: Periodic, skin: float) -> System:
    """Atoms sorted by type; `types` and `mass` are [N] in the caller's order."""
    order, counts = sorted_by_type(types, model.config.num_types)
    vacant = int(types[0]) if vacancies_matter(model.config) else None
    return System(model, order, counts, np.asarray(mass, np.float64)[order, None], periodic, skin, vacant)
