"""Models that deepmd-kit 3.2.0 makes, read here, give its energies, forces and virials; slow, in an environment of its own.

    ZOO_DEEPMD_PYTHON=/path/to/python pytest -m slow tests/parity/test_deepmd.py

The environment: pip install 'deepmd-kit[cpu,jax]==3.2.0'.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from zoo.models.deepmd.convert import read
from zoo.models.deepmd.evaluate import Evaluator

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
