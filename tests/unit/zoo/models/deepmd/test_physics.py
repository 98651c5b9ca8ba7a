"""What any potential must obey, in float64: symmetries, periodic images, forces and virials as derivatives, smoothness."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowaware_core import versions
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.model import initial_parameters, initial_statistics

KINDS: dict[str, dict[str, Any]] = {
    "se_e2_a": {"type": "se_e2_a", "sel": [60, 60], "neuron": [3, 6], "axis_neuron": 2, "exclude_types": [[0, 0]]},
    "se_e2_r": {"type": "se_e2_r", "sel": [60, 60], "neuron": [3, 6], "type_one_side": True},
    "se_atten_v2": {"type": "se_atten_v2", "sel": 120, "neuron": [3, 6], "axis_neuron": 2, "attn": 4, "attn_layer": 1},
}
CELL = np.asarray([[3.6, 0.0, 0.0], [0.7, 3.3, 0.0], [-0.4, 0.5, 3.9]])
TYPES = np.asarray([0, 1, 1, 0, 1])


def evaluator(kind: str, descriptor: dict[str, Any] | None = None) -> Evaluator:
    described = descriptor or KINDS[kind]
    if described["type"] != "hybrid":
        described = {"rcut": 3.5, "rcut_smth": 1.0, **described}
    section = {"type_map": ["A", "B"], "descriptor": described}
    config = potential({**section, "fitting_net": {"neuron": [5, 5]}}, "model")
    with versions.enable_x64():
        params = jax.jit(lambda: initial_parameters(config, jax.random.key(1)))()
        statistics = initial_statistics(config)
    statistics["bias"] = np.asarray([-1.0, 0.5])
    return Evaluator(Model(config, params, statistics))


@pytest.fixture(scope="module", params=KINDS)
def potential_of(request: pytest.FixtureRequest) -> Evaluator:
    return evaluator(request.param)


@pytest.fixture(scope="module")
def coord() -> np.ndarray:
    fractional = np.asarray([[0.1, 0.1, 0.1], [0.5, 0.2, 0.2], [0.2, 0.6, 0.3], [0.6, 0.7, 0.7], [0.1, 0.3, 0.7]])
    return fractional @ CELL


def test_symmetries(potential_of: Evaluator, coord: np.ndarray) -> None:
    base = potential_of(coord, TYPES, CELL)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = potential_of(coord @ rotation, TYPES, CELL @ rotation)
    moved = potential_of(coord + np.asarray([1.3, -7.0, 0.2]), TYPES, CELL)
    images = np.asarray([[0, 0, 0], [1, 0, -2], [0, 3, 0], [-1, -1, -1], [0, 0, 5]])
    wrapped = potential_of(coord + images @ CELL, TYPES, CELL)
    for other in (turned, moved, wrapped):
        assert abs(other.energy - base.energy) < 1e-10
    np.testing.assert_allclose(turned.force, base.force @ rotation, atol=1e-10)
    np.testing.assert_allclose(turned.virial, rotation.T @ base.virial @ rotation, atol=1e-10)
    np.testing.assert_allclose(wrapped.force, base.force, atol=1e-10)
    order = np.asarray([3, 1, 4, 0, 2])
    permuted = potential_of(coord[order], TYPES[order], CELL)
    assert abs(permuted.energy - base.energy) < 1e-10
    np.testing.assert_allclose(permuted.force, base.force[order], atol=1e-10)
    np.testing.assert_allclose(permuted.atom_energy, base.atom_energy[order], atol=1e-10)
    np.testing.assert_allclose(base.force.sum(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(base.virial, base.virial.T, atol=1e-10)


def test_forces_and_virial_are_derivatives(potential_of: Evaluator, coord: np.ndarray) -> None:
    base = potential_of(coord, TYPES, CELL)
    step = 1e-4
    for atom, axis in ((0, 0), (2, 1), (3, 2)):
        shift = np.zeros_like(coord)
        shift[atom, axis] = step
        up, down = (potential_of(coord + sign * shift, TYPES, CELL).energy for sign in (1, -1))
        np.testing.assert_allclose(base.force[atom, axis], -(up - down) / (2 * step), rtol=1e-6, atol=1e-7)
    for a, b in ((0, 0), (1, 2)):
        strain = np.zeros((3, 3))
        strain[a, b] = step
        up, down = (
            potential_of(coord @ (np.eye(3) + s * strain), TYPES, CELL @ (np.eye(3) + s * strain)).energy
            for s in (1, -1)
        )
        np.testing.assert_allclose(base.virial[a, b], -(up - down) / (2 * step), rtol=1e-6, atol=1e-7)


def test_a_small_cell_is_its_supercell(potential_of: Evaluator, coord: np.ndarray) -> None:
    base = potential_of(coord, TYPES, CELL)
    twice = potential_of(np.concatenate([coord, coord + CELL[0]]), np.tile(TYPES, 2), CELL * [[2], [1], [1]])
    assert abs(twice.energy - 2 * base.energy) < 1e-10
    np.testing.assert_allclose(twice.force, np.tile(base.force, (2, 1)), atol=1e-10)
    np.testing.assert_allclose(twice.virial, 2 * base.virial, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("atoms", [1, 2])
def test_a_cell_of_an_atom_or_two_repeats_as_often_as_it_must(atoms: int) -> None:
    """The cutoff, 6 A, is more than twice the cell; against the same crystal in a cell five times as long each way."""
    section = {"type": "se_e2_r", "sel": [400, 400], "neuron": [3, 6], "type_one_side": True, "rcut": 6.0}
    potential = evaluator("se_e2_r", section)
    cell = np.asarray([[2.6, 0.0, 0.0], [0.4, 2.7, 0.0], [-0.3, 0.2, 2.5]])
    coord = np.asarray([[0.1, 0.2, 0.3], [1.3, 1.5, 1.2]])[:atoms]
    base = potential(coord, TYPES[:atoms], cell)
    shifts = np.stack(np.meshgrid(*[np.arange(5)] * 3, indexing="ij"), axis=-1).reshape(-1, 1, 3) @ cell
    many = potential((coord + shifts).reshape(-1, 3), np.tile(TYPES[:atoms], 125), 5 * cell)
    assert abs(many.energy / 125 - base.energy) < 1e-10
    np.testing.assert_allclose(many.force, np.tile(base.force, (125, 1)), atol=1e-10)


def test_a_pair_leaves_smoothly(potential_of: Evaluator) -> None:
    def pair(distance: float) -> Any:
        return potential_of(np.asarray([[0.0, 0, 0], [distance, 0, 0]]), np.asarray([1, 1]), None)

    apart, alone = pair(20.0), potential_of(np.zeros((1, 3)), np.asarray([1]), None)
    assert abs(apart.energy - 2 * alone.energy) < 1e-12 and not apart.force.any()
    near = pair(3.5 - 1e-4)
    assert abs(near.energy - apart.energy) < 1e-8 and np.abs(near.force).max() < 1e-5
    assert np.isfinite(pair(3.5).force).all() and abs(pair(3.5).energy - apart.energy) < 1e-12
    dilute = potential_of(np.full((1, 3), 50.0), np.asarray([1]), 100 * np.eye(3))
    assert abs(dilute.energy - alone.energy) < 1e-12 and not dilute.force.any() and not dilute.virial.any()


def test_no_setting_of_the_process_changes(potential_of: Evaluator, coord: np.ndarray) -> None:
    before = dict(jax.config.values), jnp.ones(1).dtype, jax.random.normal(jax.random.key(0))
    assert np.asarray(potential_of(coord, TYPES, CELL).energy).dtype == np.float64
    after = dict(jax.config.values), jnp.ones(1).dtype, jax.random.normal(jax.random.key(0))
    assert before == after and after[1] == np.float32


@pytest.mark.parametrize("kind", ["se_e2_a", pytest.param("se_atten_v2", marks=pytest.mark.slow)])
def test_a_part_of_a_hybrid_looks_at_the_nearest_as_it_does_alone(kind: str, coord: np.ndarray) -> None:
    narrow = {**KINDS[kind], "sel": 7 if kind == "se_atten_v2" else [3, 4]}
    with pytest.warns(UserWarning, match="neighbours, more than sel="):
        alone = evaluator(kind, narrow)(coord, TYPES, CELL)
    with pytest.warns(UserWarning, match="neighbours, more than sel="):
        part = evaluator(kind, {"type": "hybrid", "list": [{"rcut": 3.5, "rcut_smth": 1.0, **narrow}]})(
            coord, TYPES, CELL
        )
    assert abs(alone.energy - part.energy) < 1e-12
    np.testing.assert_allclose(part.force, alone.force, atol=1e-12)


def test_atoms_that_are_not_there_change_nothing(coord: np.ndarray) -> None:
    potential = evaluator("se_e2_a")
    base = potential(coord, TYPES, CELL)
    more = potential(np.concatenate([coord, np.full((2, 3), 9.9)]), np.append(TYPES, [-1, -1]), CELL)
    assert more.energy == base.energy and not more.force[5:].any() and not more.atom_energy[5:].any()


def test_boundaries_may_differ_between_frames(coord: np.ndarray) -> None:
    """Periodic, a slab and free frames one after the other: each as if it were alone, wherever its atoms are wrapped to."""
    potential = evaluator("se_e2_a")
    slab = (True, True, False)
    frames: list[tuple[Any, Any]] = [(CELL, None), (CELL, slab), (None, None), (CELL, (False, False, False))]
    energies = [float(potential(coord, TYPES, cell, periodic).energy) for cell, periodic in frames]
    again = [float(potential(coord, TYPES, cell, periodic).energy) for cell, periodic in reversed(frames)]
    assert energies == again[::-1] and len({round(energy, 9) for energy in energies[:3]}) == 3
    assert energies[2] == energies[3]  # a cell that repeats nowhere says nothing
    high = np.asarray([CELL[0], CELL[1], 50 * CELL[2]])
    assert abs(float(potential(coord, TYPES, high).energy) - energies[1]) < 1e-10  # a slab is a cell that is very high
    moved = coord + np.asarray([[1, 0, 0], [0, -2, 0], [0, 0, 0], [3, 1, 0], [0, 0, 0]]) @ CELL
    assert abs(float(potential(moved, TYPES, CELL, slab).energy) - energies[1]) < 1e-10


def test_single_precision_nets_sum_in_double_precision() -> None:
    """Many copies of one atom: the energy is so many times that of one, far beyond the digits of float32."""
    section = {"type_map": ["A"], "descriptor": {"type": "se_e2_a", "sel": [4], "rcut": 3.0, "neuron": [2, 4]}}
    section["descriptor"] |= {"axis_neuron": 2, "precision": "float32"}  # type: ignore[attr-defined]
    config = potential({**section, "fitting_net": {"neuron": [3], "precision": "float32"}}, "model")
    with versions.enable_x64():
        params, statistics = initial_parameters(config, jax.random.key(0)), initial_statistics(config)
    statistics["bias"] = np.asarray([-467.123456789])
    alone = Evaluator(Model(config, params, statistics))
    count = 20000
    one = float(alone(np.zeros((1, 3)), np.zeros(1, int), None).energy)
    many = alone(np.arange(count)[:, None] * np.asarray([[10.0, 0, 0]]), np.zeros(count, int), None)
    assert np.asarray(many.energy).dtype == np.float64
    assert abs(float(many.energy) / count - one) < 1e-9 and not many.force.any()


@pytest.mark.slow
def test_forces_are_finite_however_little_the_compiler_optimises() -> None:
    """Attention once took the derivative of a maximum, which was 0 / 0 where scores were computed twice."""
    flags = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    names = [f"{__file__}::{test.__name__}" for test in (test_symmetries, test_forces_and_virial_are_derivatives)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "se_atten_v2", *names]
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout[-2000:]
