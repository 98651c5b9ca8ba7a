"""The recipe of deep potentials: shapes, a few steps, masks, evaluation, export, fine-tuning, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from recipes.deepmd import DeepmdRecipe
from zoo.errors import UserError
from zoo.models.deepmd.convert import read
from zoo.models.deepmd.evaluate import Evaluator

DESCRIPTOR = {
    "type": "se_e2_a",
    "rcut": 2.5,
    "rcut_smth": 0.5,
    "neuron": [2, 4],
    "axis_neuron": 2,
    "type_one_side": True,
}
SECTIONS: dict[str, dict[str, Any]] = {
    "model": {"type_map": ["O", "H"], "descriptor": DESCRIPTOR, "fitting_net": {"neuron": [4, 4]}},
    "data": {"train": ["one", "two"], "batch_size": 2, "readers": 0},
    "optimizer": {"start_lr": 0.01, "stop_lr": 0.001, "decay_steps": 2},
    "training": {"steps": 10, "loss": {"start_pref_v": 1.0, "limit_pref_v": 1.0}},
}


@pytest.fixture(autouse=True)
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two systems of 3 and 2 atoms; only the first has virials."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for name, types in (("one", "0 1 1"), ("two", "0 1")):
        atoms = len(types.split())
        inside = folder / name / "set.000"
        inside.mkdir(parents=True)
        (folder / name / "type.raw").write_text(types)
        (folder / name / "type_map.raw").write_text("O H")
        coord = np.arange(atoms)[:, None] * [1.1, 0.4, 0] + 0.1 * rng.normal(size=(2, atoms, 3))
        np.save(inside / "coord.npy", coord.reshape(2, -1))
        np.save(inside / "box.npy", np.tile(5 * np.eye(3).reshape(-1), (2, 1)))
        np.save(inside / "energy.npy", -3.0 * atoms + rng.normal(size=2))
        np.save(inside / "force.npy", rng.normal(size=(2, 3 * atoms)))
        if name == "one":
            np.save(inside / "virial.npy", rng.normal(size=(2, 9)))
    return folder


def recipe(data_dir: Path, **changes: dict[str, Any]) -> DeepmdRecipe:
    sections = {name: section | changes.get(name, {}) for name, section in SECTIONS.items()}
    return DeepmdRecipe(SimpleNamespace(name="tiny", **sections), data_dir)  # type: ignore[arg-type]


def test_steps_evaluation_and_export(data_dir: Path, tmp_path: Path) -> None:
    ours = recipe(data_dir, training={"ema_decay": 0.5, "frozen": ["fitting/0/*"]})
    task = ours.task()
    batch = next(ours.batches("train", 0, 0, 2))
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in batch.items()} == {
        name: (leaf.shape, leaf.dtype) for name, leaf in task.args[1].items()
    }
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    before = jax.device_get(state["params"])
    step = jax.jit(ours.step)
    losses = []
    for _ in range(5):
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0]
    assert set(metrics) == {*ours.metrics, "rmse_v", "series_rest"}
    np.testing.assert_allclose(metrics["learning_rate"], 0.01 * 0.1 ** (4 / 10), rtol=1e-12)
    same = jax.tree.map(np.array_equal, before, jax.device_get(state["params"]))
    assert jax.tree.all(same["fitting"]["0"]) and not jax.tree.all(same["fitting"]["1"])
    # Evaluation of all frames, the last batch filled up, is what the exported model says of them.
    evaluate = jax.jit(ours.evaluate)
    totals: dict[str, float] = {}
    for part in ours.batches("test", 0, 0, 3):
        for name, value in jax.device_get(evaluate(state, part)).items():
            totals[name] = totals.get(name, 0.0) + float(value)
    figures = ours.figures(totals)
    assert totals["count"] == 4 and totals["number_virial"] == 2 and totals["number_force"] == 2 * 3 + 2 * 2
    ours.export(jax.device_get({**state, "rng": None}), tmp_path)
    potential = Evaluator(read(tmp_path / "model.dp"))
    squares = []
    for system in ours.dataset().train.systems:
        for frame in range(len(system)):
            found = potential(system.coord[frame], system.types[frame], system.cell[frame])
            squares += list(((found.force - system.labels["force"][frame]) ** 2).reshape(-1))
    np.testing.assert_allclose(figures["rmse_f"], np.sqrt(np.mean(squares)), rtol=1e-9)
    # Going on from the file, energies per type fitted anew: the mean error of the energies is gone.
    begun = recipe(data_dir).read(tmp_path / "model.dp")
    assert jax.tree.all(jax.tree.map(np.array_equal, begun["params"], jax.device_get(state["ema"])))
    with pytest.raises(UserError, match="descriptor.rcut is 2.5 there and 3.0 here"):
        recipe(data_dir, model={"descriptor": DESCRIPTOR | {"rcut": 3.0}}).read(tmp_path / "model.dp")


@pytest.mark.slow
def test_a_step_with_series_is_that_with_nets(data_dir: Path) -> None:
    ours, plain = recipe(data_dir), recipe(data_dir, training={"series": 0})
    batch = next(ours.batches("train", 0, 0, 2))
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    (after, metrics), (exact, expected) = (jax.jit(one.step)(state, batch) for one in (ours, plain))
    assert set(metrics) - set(expected) == {"series_rest"} and metrics["series_rest"] < 1e-13
    for name in expected:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-10)
    for one, other in zip(jax.tree.leaves(after["params"]), jax.tree.leaves(exact["params"]), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


def test_nets_too_rough_for_their_series_get_longer_ones(data_dir: Path) -> None:
    ours = recipe(data_dir)
    assert not ours.outgrown({"loss": 1.0, "series_rest": 1e-13}) and ours.facts() == {"series_terms": 96}
    for terms in (192, 384, 0):
        assert ours.outgrown({"series_rest": 1e-8}) and ours.facts() == {"series_terms": terms}
    assert not ours.outgrown({"loss": 1.0})  # without series there is nothing to outgrow
    again, other = recipe(data_dir), recipe(data_dir, training={"series": 128})
    for one in (again, other):
        one.recall({"series_terms": 192, "recipe": {"training": {"series": 96}}})
    assert again.facts() == {"series_terms": 192} and other.facts() == {"series_terms": 128}


def test_batches_depend_on_seed_and_step_alone(data_dir: Path) -> None:
    ours = recipe(data_dir)
    ahead = ours.batches("train", 3, 0, 2)
    batches = [next(ahead) for _ in range(4)]
    later = next(ours.batches("train", 3, 2, 2))
    halves = [next(ours.batches("train", 3, 2, 2, (index, 2))) for index in range(2)]
    for name, leaf in later.items():
        np.testing.assert_array_equal(leaf, batches[2][name])
        np.testing.assert_array_equal(leaf, np.concatenate([half[name] for half in halves]))


def test_missing_data_is_named_unless_rehearsing(tmp_path: Path) -> None:
    ours = recipe(tmp_path)
    assert "no one, two" in ours.dataset(rehearsal=True).announcement
    with pytest.raises(UserError, match="one does not exist"):
        ours.dataset()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": {"type_map": ["O", "O"]}}, "recipe.model.type_map"),
        ({"data": {"train": []}}, r"recipe.data.train=\[\]"),
        ({"data": {"batch_size": "auto:x"}}, "recipe.data.batch_size='auto:x'"),
        ({"optimizer": {"stop_lr": 1.0}}, "recipe.optimizer.start_lr=0.01"),
        ({"training": {"loss": {"start_pref_x": 1.0}}}, "recipe.training.loss.start_pref_x is not known"),
        ({"training": {"ema_decay": 1.5}}, "recipe.training.ema_decay=1.5"),
    ],
)
def test_bad_options_name_the_section(data_dir: Path, changes: dict, text: str) -> None:
    with pytest.raises(UserError, match=text):
        recipe(data_dir, **changes)
