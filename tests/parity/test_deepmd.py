"""Models that deepmd-kit 3.2.0 makes, read here, give its energies, forces and virials, and the other way round; slow.

    ZOO_DEEPMD_PYTHON=/path/to/python pytest -m slow tests/parity/test_deepmd.py

The environment of its own: pip install 'deepmd-kit[lmp,cpu,jax]==3.2.0' mpich.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

from flowaware_core import versions
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import Model, read, write
from zoo.models.deepmd.evaluate import Evaluator
from zoo.models.deepmd.model import initial_parameters, initial_statistics

HERE = Path(__file__).parent
SPECS = HERE / "deepmd_models.json"
TOLERANCE = 1e-10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random models with what deepmd-kit says of a frame."""
    python = os.environ.get("ZOO_DEEPMD_PYTHON")
    if not python:
        pytest.skip("ZOO_DEEPMD_PYTHON names no Python with deepmd-kit 3.2.0")
    found = tmp_path_factory.mktemp("deepmd")
    subprocess.run([python, str(HERE / "deepmd_reference.py"), str(SPECS), str(found)], check=True)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", json.loads(SPECS.read_text()))
def test_energies_forces_and_virials_agree(folder: Path, name: str) -> None:
    wanted = np.load(folder / f"{name}.npz")
    evaluate = Evaluator(read(folder / f"{name}.dp"))
    for boundary, cell in (("periodic", wanted["box"]), ("free", None)):
        found = evaluate(wanted["coord"], wanted["types"], cell)
        np.testing.assert_allclose(found.energy, wanted[f"{boundary}_energy"][0], rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(found.force, wanted[f"{boundary}_force"], rtol=0, atol=TOLERANCE)
        virial = wanted[f"{boundary}_virial"].reshape(3, 3)
        np.testing.assert_allclose(found.virial, virial, rtol=0, atol=TOLERANCE)
        each = wanted[f"{boundary}_atom_energy"][:, 0]
        np.testing.assert_allclose(found.atom_energy, each, rtol=0, atol=TOLERANCE)


EXPORTED = {
    # One net per neighbour type: with a net per pair deepmd-kit 3.2 cannot trace its JAX model.
    "a": {"type": "se_e2_a", "sel": [40, 60], "rcut": 4.0, "neuron": [4, 8], "axis_neuron": 3, "type_one_side": True},
    "r": {"type": "se_e2_r", "sel": [40, 60], "rcut": 4.0, "neuron": [4, 8], "type_one_side": True},
    "v2": {
        "type": "se_atten_v2",
        "sel": 80,
        "rcut": 4.0,
        "neuron": [4, 8],
        "axis_neuron": 3,
        "attn": 5,
        "attn_layer": 1,
    },
}
WAYS = [("a", "jax"), ("r", "jax"), ("v2", "jax"), ("a", "pb"), ("r", "pb"), ("a", "lammps")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of ours with statistics and biases of their own, and a frame."""
    found = tmp_path_factory.mktemp("exported")
    rng = np.random.default_rng(0)
    for name, descriptor in EXPORTED.items():
        section = {"type_map": ["O", "H"], "descriptor": descriptor, "fitting_net": {"neuron": [6, 6]}}
        config = potential(section, "model")
        with versions.enable_x64():
            params = jax.device_get(jax.jit(lambda config=config: initial_parameters(config, jax.random.key(0)))())
            statistics = jax.device_get(initial_statistics(config))
        rows = statistics["descriptor"]["0"]
        rows["davg"] = np.pad(0.1 * rng.normal(size=(2, 1)), ((0, 0), (0, rows["davg"].shape[1] - 1)))
        rows["dstd"] = np.repeat(rng.uniform(0.1, 0.4, (2, 1)), rows["dstd"].shape[1], axis=1)
        statistics["bias"] = np.asarray([-2.5, 1.5])
        write(found / name / f"{name}.dp", Model(config, params, statistics))
    box = np.asarray([[5.0, 0, 0], [0.6, 5.2, 0], [-0.4, 0.3, 5.5]])
    grid = (np.stack(np.meshgrid(*[np.arange(3)] * 3), -1).reshape(-1, 3) + 0.2) / 3
    coord = (grid + 0.05 * rng.normal(size=grid.shape)) @ box
    np.savez(found / "frame.npz", coord=coord, types=np.sort(rng.integers(0, 2, len(coord))), box=box)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "way"), WAYS)
def test_models_written_here_are_read_there(written: Path, name: str, way: str) -> None:
    python = os.environ.get("ZOO_DEEPMD_PYTHON")
    if not python:
        pytest.skip("ZOO_DEEPMD_PYTHON names no Python with deepmd-kit 3.2.0")
    model, out = written / name / f"{name}.dp", written / name / f"{way}.npz"
    script = str(HERE / "deepmd_exported.py")
    subprocess.run([python, script, str(model), str(written / "frame.npz"), str(out), way], check=True)
    theirs, frame = np.load(out), np.load(written / "frame.npz")
    ours = Evaluator(read(model))(frame["coord"], frame["types"], frame["box"])
    np.testing.assert_allclose(theirs["energy"][0], ours.energy, rtol=0, atol=1e-8 if way == "lammps" else TOLERANCE)
    if way != "lammps":
        np.testing.assert_allclose(theirs["force"], ours.force, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(theirs["virial"].reshape(3, 3), ours.virial, rtol=0, atol=TOLERANCE)
