"""From the same weights, on the same frame, a training here makes the errors that `dp --tf train` prints, step for step; slow.

    ZOO_DEEPMD_PYTHON=/path/to/python pytest -m slow tests/parity/test_deepmd_training.py

The environment of its own: pip install 'deepmd-kit[cpu]==3.2.0' tensorflow-cpu.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from flowaware_core import versions
from recipes.deepmd import DeepmdRecipe
from zoo.config import RecipeConfig, Rehearsal
from zoo.models.deepmd.convert import read

DESCRIPTOR = {
    "type": "se_e2_a",
    "sel": [46, 92],
    "rcut": 6.0,
    "rcut_smth": 0.5,
    "neuron": [6, 12, 24],
    "axis_neuron": 4,
    "type_one_side": True,
}
FITTING = {"neuron": [24, 24, 24], "resnet_dt": True}
LOSS = {"start_pref_e": 0.02, "limit_pref_e": 1.0, "start_pref_f": 1000.0, "limit_pref_f": 1.0}
STEPS, DROPS = 30, 10


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory, reference_data: Path) -> Path:
    """one/: a frame of water; init.dp: the weights before the first step; lcurve.out: a line for every step from there."""
    python = os.environ.get("ZOO_DEEPMD_PYTHON")
    if not python:
        pytest.skip("ZOO_DEEPMD_PYTHON names no Python with deepmd-kit 3.2.0")
    folder, water = tmp_path_factory.mktemp("training"), reference_data / "deepmd/water/data_0"
    (folder / "one/set.000").mkdir(parents=True)
    for name in ("type.raw", "type_map.raw"):
        (folder / "one" / name).write_text((water / name).read_text())
    for name in ("coord", "box", "energy", "force"):
        np.save(folder / f"one/set.000/{name}.npy", np.load(water / f"set.000/{name}.npy")[:1])

    def dp(*words: str) -> None:
        subprocess.run([str(Path(python).parent / "dp"), *words], cwd=folder, check=True, capture_output=True)

    # A rate of nothing leaves the weights of the seed as they are.
    for name, steps, first, last, drops in (("init", 1, 1e-30, 1e-31, 1), ("lcurve", STEPS, 1e-3, 1e-4, DROPS)):
        rate = {"type": "exp", "start_lr": first, "stop_lr": last, "decay_steps": drops}
        (folder / "input.json").write_text(json.dumps(section(steps, rate, f"{name}.out")))
        dp("--tf", "train", "input.json", "--skip-neighbor-stat")
        if name == "init":
            dp("--tf", "freeze", "-o", "init.pb")
            dp("convert-backend", "init.pb", "init.dp")
    return folder


def section(steps: int, rate: dict[str, Any], curve: str) -> dict[str, Any]:
    """An input.json that shows every step."""
    data = {"systems": ["one"], "batch_size": 1}
    model = {
        "type_map": ["O", "H"],
        "descriptor": {**DESCRIPTOR, "precision": "float64", "seed": 1},
        "fitting_net": {**FITTING, "precision": "float64", "seed": 1},
    }
    shown = {"numb_steps": steps, "disp_freq": 1, "disp_file": curve, "save_freq": steps, "seed": 1}
    training = {"training_data": data, "validation_data": {**data, "numb_btch": 1}, **shown}
    loss = {"type": "ener", **LOSS, "start_pref_v": 0, "limit_pref_v": 0}
    return {"model": model, "learning_rate": rate, "loss": loss, "training": training}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_errors_are_the_same_step_for_step(theirs: Path) -> None:
    model = {"type_map": ["O", "H"], "descriptor": DESCRIPTOR, "fitting_net": FITTING}
    data = {"train": ["one"], "test": ["one"], "batch_size": 1, "readers": 0}
    optimizer = {"start_lr": 1e-3, "stop_lr": 1e-4, "decay_steps": DROPS}
    config = RecipeConfig(
        "one", "recipes.deepmd.DeepmdRecipe", model, data, optimizer, {"steps": STEPS, "loss": LOSS}, Rehearsal(3, 1)
    )
    ours, begun = DeepmdRecipe(config, theirs), read(theirs / "init.dp")
    with versions.enable_x64():
        state = jax.jit(ours.initial_state)(jax.random.key(0))
        for name, value in begun.statistics["descriptor"]["0"].items():
            np.testing.assert_allclose(state["statistics"]["descriptor"]["0"][name], value, atol=1e-12)
        np.testing.assert_allclose(state["statistics"]["bias"], begun.statistics["bias"], rtol=1e-12)
        state["params"] = jax.tree.map(jax.numpy.asarray, begun.params)
        step, batch = jax.jit(ours.step), next(ours.batches("train", 0, 0, 1))
        found = []
        for _ in range(STEPS + 1):
            state, metrics = step(state, batch)
            found.append([float(metrics[name]) for name in ("rmse_e", "rmse_f", "learning_rate")])
    lines = [line.split() for line in (theirs / "lcurve.out").read_text().splitlines() if not line.startswith("#")]
    wanted = np.asarray(
        [[line[4], line[6], line[7]] for line in lines], float
    )  # errors of the training batch, and the rate
    assert len(wanted) == STEPS + 1
    # They print three digits, and two of the rate; energies near 0 are differences of large numbers.
    np.testing.assert_allclose(np.asarray(found)[:, 0], wanted[:, 0], rtol=6e-3, atol=2e-5)
    np.testing.assert_allclose(np.asarray(found)[:, 1], wanted[:, 1], rtol=6e-3)
    np.testing.assert_allclose(np.asarray(found)[:, 2], wanted[:, 2], rtol=6e-2)
