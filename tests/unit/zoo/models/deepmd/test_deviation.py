"""How far the models of an ensemble differ: deepmd-kit's definitions and its file."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from flowaware_core import versions
from zoo.data.deepmd.system import System, nothing_known
from zoo.errors import UserError
from zoo.md.cells import NOWHERE
from zoo.models.deepmd import deviation
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.model import Outputs, initial_parameters, initial_statistics

DESCRIPTOR: dict[str, Any] = {"type": "se_e2_r", "sel": [4, 4], "rcut": 3.0, "neuron": [2, 4]}


def model(seed: int, **changes: Any) -> Model:
    section = {"type_map": ["O", "H"], "descriptor": DESCRIPTOR | changes, "fitting_net": {"neuron": [3]}}
    config = potential(section, "model")
    with versions.enable_x64():
        params = jax.device_get(jax.jit(lambda: initial_parameters(config, jax.random.key(seed)))())
        return Model(config, params, jax.device_get(initial_statistics(config)))


def by_hand(energy_M: np.ndarray, force_MN3: np.ndarray, virial_M9: np.ndarray) -> list[float]:
    """Population deviations; energies and virials per atom, of forces the length of the three components' deviations."""
    atoms = force_MN3.shape[1]
    virial, force = np.std(virial_M9 / atoms, axis=0), np.linalg.norm(np.std(force_MN3, axis=0), axis=-1)
    of_virial = [virial.max(), virial.min(), np.linalg.norm(virial) / 3]
    return [*of_virial, force.max(), force.min(), force.mean(), np.std(energy_M / atoms)]


def test_atoms_that_are_not_there_count_for_nothing() -> None:
    rng = np.random.default_rng(0)
    energy, force, virial = rng.normal(size=4), rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 3, 3))
    real = np.asarray([True, True, False, True, False])
    found = deviation.frame_deviation(Outputs(energy, force, virial, None), real)
    np.testing.assert_allclose(found, by_hand(energy, force[:, real], virial.reshape(4, 9)), rtol=1e-13)


@pytest.mark.slow
def test_all_models_in_one_pass_are_each_on_its_own() -> None:
    models = [model(seed) for seed in range(3)]
    labels, known = nothing_known(1, 3)
    coord, types = np.asarray([[0.0, 0, 0], [1.1, 0.2, 0], [-0.3, 1.2, 0.4]]), np.asarray([1, 0, 1], np.int32)
    system = System("made", types[None], coord[None], None, NOWHERE, labels, known)
    (row,) = deviation.deviations(deviation.stacked(models), [system])
    each = [Evaluator(one)(coord, types, None) for one in models]
    parts = (np.asarray([getattr(one, name) for one in each]) for name in ("energy", "force", "virial"))
    energy, force, virial = parts
    np.testing.assert_allclose(row, by_hand(energy, force, virial.reshape(3, 9)), rtol=1e-9)


def test_models_of_another_make_or_one_alone_are_refused() -> None:
    one = model(0)
    with pytest.raises(UserError, match="1 model given; a deviation needs at least two"):
        deviation.stacked([one])
    other = dataclasses.replace(one, config=model(0, rcut=3.5).config)
    with pytest.raises(UserError, match="model 1 and model 2 are not of one make: descriptor.rcut"):
        deviation.stacked([one, other])


def test_the_file_has_a_step_and_seven_numbers_a_line(tmp_path: Path) -> None:
    rows = np.asarray([[1e-3, 2e-4, 3.25e-3, 0.125, 0.0625, 0.1, 1.5e-5]])
    deviation.write(tmp_path / "model_devi.out", [100], rows)
    heading, line = (tmp_path / "model_devi.out").read_text().splitlines()
    assert heading.split() == ["#", "step", *deviation.HEADING.split()]
    assert line == "         100" + "".join(f"{value:19.6e}" for value in rows[0]) and len(heading) == len(line)
    np.testing.assert_array_equal(np.loadtxt(tmp_path / "model_devi.out"), [100, *rows[0]])
