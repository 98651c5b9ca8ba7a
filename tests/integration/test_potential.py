"""Deep potentials by their commands: a training goes on bit for bit, its model is used, and bad frames are told in one line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from ase.io import read as read_xyz

from zoo import predict, simulate, train
from zoo.models.deepmd import series
from zoo.models.deepmd.convert import read

MODEL = [
    "recipe.model.type_map=[O,H]",
    "recipe.model.descriptor={type: se_e2_a, sel: auto, rcut: 2.5, rcut_smth: 0.5, neuron: [2, 4], axis_neuron: 2}",
    "recipe.model.fitting_net={neuron: [4, 4]}",
]
DATA = ["recipe.data.train=[one,two]", "recipe.data.test=[one]", "recipe.data.batch_size=8", "recipe.data.readers=0"]
TINY = [
    "recipe=dp_water",
    "cluster=emulated",
    "cluster.n=8",
    *MODEL,
    *DATA,
    "recipe.optimizer.decay_steps=2",
    "recipe.training.steps=8",
    "recipe.training.ema_decay=0.9",
    "log_every=1",
    "eval_every=2",
    "checkpoint_every=4",
]


@pytest.fixture(autouse=True)
def single_precision_again() -> Any:
    """The commands switch 64-bit types on for their process, which here is that of all tests."""
    yield
    jax.config.update("jax_enable_x64", False)


def write(folder: Path, types: str, frames: int = 4, **changes: Any) -> Path:
    """A periodic system with energies and forces."""
    rng = np.random.default_rng(len(types))
    atoms = len(types.split())
    inside = folder / "set.000"
    inside.mkdir(parents=True)
    (folder / "type.raw").write_text(types)
    (folder / "type_map.raw").write_text("O H")
    arrays = {
        "coord": (np.arange(atoms)[:, None] * [1.1, 0.4, 0] + 0.1 * rng.normal(size=(frames, atoms, 3))).reshape(
            frames, -1
        ),
        "box": np.tile(5 * np.eye(3).reshape(-1), (frames, 1)),
        "energy": -3.0 * atoms + 0.1 * rng.normal(size=frames),
        "force": 0.1 * rng.normal(size=(frames, 3 * atoms)),
    }
    for name, values in (arrays | changes).items():
        if values is not None:
            np.save(inside / f"{name}.npy", values)
    return folder


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    write(folder / "one", "0 1 1")
    write(folder / "two", "0 1")
    return folder


@pytest.fixture(scope="module")
def straight(command: Any, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of eight steps."""
    run_dir = tmp_path_factory.mktemp("straight")
    result = command(train.main, *TINY, f"data_dir={data_dir}", f"run_dir={run_dir}", "steps=8", bare=True)
    assert result.code == 0, result.err
    assert "audit passed" in result.out and f"the potential is in {run_dir / 'model.dp'}" in result.out
    return run_dir


@pytest.mark.slow
def test_half_and_half_is_the_whole(command: Any, straight: Path, data_dir: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "halves"
    for steps in (4, 8):
        result = command(train.main, *TINY, f"data_dir={data_dir}", f"run_dir={run_dir}", f"steps={steps}", bare=True)
        assert result.code == 0, result.err
    assert (run_dir / "lcurve.out").read_bytes() == (straight / "lcurve.out").read_bytes()
    whole, halves = read(straight / "model.dp"), read(run_dir / "model.dp")
    assert jax.tree.all(
        jax.tree.map(np.array_equal, (whole.params, whole.statistics), (halves.params, halves.statistics))
    )


@pytest.mark.slow
def test_a_training_goes_on_where_its_nets_are_too_rough_for_series(
    command: Any, straight: Path, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, with the nets as they are, and remembers it; the curve is the same."""
    words = [*TINY, f"data_dir={data_dir}", f"run_dir={tmp_path / 'run'}"]
    monkeypatch.setitem(series.REST, "float64", -1.0)
    monkeypatch.setattr(series, "MOST_TRAINED", 96)
    result = command(train.main, *words, "steps=6", bare=True)
    assert result.code == 0 and "planned again" in result.out, result.err
    monkeypatch.undo()
    result = command(train.main, *words, "steps=8", bare=True)
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    seen = [line["step"] for line in lines if line["split"] == "train" and "series_rest" in line]
    assert seen == [1, 2]
    found, expected = (np.loadtxt(folder / "lcurve.out") for folder in (tmp_path / "run", straight))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.slow
def test_one_frame_over_eight_devices_is_rehearsed(command: Any, data_dir: Path, tmp_path: Path) -> None:
    words = [*TINY, "recipe.data.batch_size=1", f"data_dir={data_dir}", f"run_dir={tmp_path / 'run'}", "steps=2"]
    result = command(train.main, *words, bare=True)
    assert result.code == 0 and "rehearsal of emulated" in result.out, result.err


def test_another_cutoff_does_not_go_on(command: Any, straight: Path, data_dir: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(straight, run_dir)
    words = [*TINY, f"data_dir={data_dir}", f"run_dir={run_dir}", "steps=12", "recipe.model.descriptor.rcut=2.0"]
    result = command(train.main, *words, bare=True)
    assert result.code == 2 and "rcut" in result.err and len(result.err.splitlines()) == 1


@pytest.mark.slow
def test_the_model_is_tested_and_moves(command: Any, straight: Path, data_dir: Path, tmp_path: Path) -> None:
    model = f"model={straight / 'model.dp'}"
    words = ["recipe=dp", model, f"input={data_dir / 'one'},{data_dir / 'two'}", f"output={tmp_path / 'errors'}"]
    result = command(predict.main, *words, bare=True)
    assert result.code == 0 and "Force RMSE" in result.out and "no labels of virial" in result.out
    found = np.loadtxt(tmp_path / "errors/detail.000.f.out")
    assert found.shape == (12, 6) and (tmp_path / "errors/parity.png").stat().st_size > 1000
    frame = tmp_path / "frame.xyz"
    frame.write_text(
        '3\nLattice="5 0 0 0 5 0 0 0 5" Properties=species:S:1:pos:R:3 pbc="T T T"\nO 0 0 0\nH 1.1 0.4 0\nH 2.2 0.8 0\n'
    )
    ends = []
    for name, more in (("plain", []), ("split", ["cluster=emulated", "cluster.n=8"])):
        output = tmp_path / name
        words = [model, f"structure={frame}", "steps=6", "every=3", f"output={output}", "temperature_k=100", *more]
        result = command(simulate.main, *words, bare=True)
        assert result.code == 0, result.err
        ends.append(np.loadtxt(output / "thermo.log"))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9, atol=1e-9)
    assert (tmp_path / "split/plan.txt").exists()
    for steps in (3, 6):  # stopped half-way, it goes on to the same end
        words = [
            model,
            f"structure={frame}",
            f"steps={steps}",
            "every=3",
            f"output={tmp_path / 'halves'}",
            "temperature_k=100",
        ]
        result = command(simulate.main, *words, bare=True)
        assert result.code == 0, result.err
    assert "goes on after step 3" in result.out
    words = [model, f"structure={frame}", "steps=9", "every=3", f"output={tmp_path / 'halves'}"]
    result = command(simulate.main, *words, "temperature_k=900", bare=True)
    assert result.code == 2 and "is of another simulation: temperature_k was 100.0 and is 900.0" in result.err
    moved = read_xyz(frame)
    moved.positions += 0.1
    moved.write(tmp_path / "moved.xyz")
    words[1] = f"structure={tmp_path / 'moved.xyz'}"
    result = command(simulate.main, *words, "temperature_k=100", bare=True)
    assert result.code == 2 and "is of another simulation: structure was" in result.err
    moved.set_velocities(np.full((len(moved), 3), np.nan))
    moved.write(tmp_path / "moved.xyz")
    words[-1] = f"output={tmp_path / 'hot'}"
    result = command(simulate.main, *words, bare=True)
    assert result.code == 2 and "moved.xyz: the velocity of atom 0 is not finite" in result.err
    assert not (tmp_path / "hot/thermo.log").exists()
    for name in ("thermo.log", "trajectory.xyz", "final.xyz"):
        assert (tmp_path / "halves" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


BAD: list[tuple[dict[str, Any], str]] = [
    ({"energy": np.full(4, np.nan)}, "bad, frame 0: energy holds numbers that are not finite"),
    ({"coord": np.zeros((4, 9))}, "bad, frame 0: atoms 0 and 1 lie on the same spot"),
    ({"energy": np.zeros(3)}, "set.000/energy.npy has the shape [3]; expected [4] or [4, 1]"),
    ({"coord": np.asarray([[None]])}, "or is damaged: it holds Python objects, which are never read"),
    ({"force": np.zeros((3, 9))}, "set.000/force.npy has the shape [3, 9]; expected [4, 9]"),
    ({"box": np.zeros((4, 9))}, "bad, frame 0: the cell has no vector along its periodic direction 0"),
    ({"box": np.tile(0.01 * np.eye(3).reshape(-1), (4, 1))}, "bad, frame 0: 3 atoms in a cell of 1e-06 A^3 have some"),
    ({"energy": None, "force": None}, "no frame of recipe.data.train=['bad'] has an energy, forces or a virial"),
    ({"box": None}, "set.000/box.npy is missing; a system without a cell has an empty file `nopbc`"),
    ({"coord": None}, "set.000/coord.npy is missing"),
]


@pytest.mark.parametrize(("changes", "text"), BAD, ids=lambda value: value[:30] if isinstance(value, str) else "")
def test_bad_frames_are_told_in_one_line(command: Any, tmp_path: Path, changes: dict, text: str) -> None:
    write(tmp_path / "bad", "0 1 1", **changes)
    words = [
        *TINY,
        "recipe.data.train=[bad]",
        "recipe.data.test=[]",
        f"data_dir={tmp_path}",
        f"run_dir={tmp_path / 'run'}",
    ]
    result = command(train.main, *words, bare=True)
    assert result.code == 2 and len(result.err.splitlines()) == 1 and text in result.err, result.err
    assert not (tmp_path / "run").exists()


def test_a_missing_model_or_element_is_told_in_one_line(command: Any, tmp_path: Path) -> None:
    words = ["recipe=dp", f"model={tmp_path / 'none.dp'}", f"input={tmp_path}"]
    result = command(predict.main, *words, bare=True)
    assert result.code == 2 and "none.dp does not exist" in result.err and len(result.err.splitlines()) == 1
    result = command(train.main, "recipe=dp", "cluster=local", f"run_dir={tmp_path / 'run'}", bare=True)
    assert result.code == 2 and "recipe=dp says nothing of model and data; give input_json=FILE" in result.err
    result = command(simulate.main, f"model={tmp_path / 'none.pb'}", "structure=x.xyz", bare=True)
    assert result.code == 2 and "dp convert-backend" in result.err
    result = command(simulate.main, "model=m.dp", "structure=x.xyz", "stepps=3", bare=True)
    assert result.code == 2 and "'stepps=3' is not an option" in result.err
    result = command(simulate.main, "model=m.dp", "recipe=dp_water", "structure=x.xyz", bare=True)
    assert result.code == 2 and "model=m.dp and recipe=dp_water both name a model" in result.err
