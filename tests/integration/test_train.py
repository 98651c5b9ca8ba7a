"""What a run does from its first line to its last, on a tiny ResNet."""

from __future__ import annotations

import json
import math
import os
import shutil

import numpy as np
import pytest

from zoo.train import main
from zoo.training import arrays
from zoo.training.checkpoints import Checkpoints
from zoo.training.leaves import Wanted


@pytest.fixture
def copy(straight, tmp_path):
    """The ten steps once more, to go on with."""
    shutil.copytree(straight[0], tmp_path / "run")
    return tmp_path / "run"


def saved(run_dir, step):
    """Every array of a checkpoint by its name, as it lies on disk."""
    records = Checkpoints(run_dir / "checkpoints").records(step)
    wanted = {
        name: Wanted(one.shape, np.dtype(one.dtype), None) for name, one in records.items() if one.kind == "array"
    }
    return arrays.read(run_dir / "checkpoints" / str(step) / "arrays", wanted)


def test_the_run_folder_holds_the_files_of_the_contract(straight):
    run_dir, result = straight
    names = {"config.yaml", "plan.json", "plan.txt", "audit.json", "environment.json", "metrics.jsonl", "checkpoints"}
    assert names | {"events", "plan.html", "predicted_trace.json"} == set(os.listdir(run_dir))
    plan = json.loads((run_dir / "plan.json").read_text())
    assert plan["recipe"] == "resnet50" and plan["cluster"] == "emulated"
    assert json.loads((run_dir / "audit.json").read_text())["target"] == "emulated"
    environment = json.loads((run_dir / "environment.json").read_text())
    assert environment["command"].startswith("python -m zoo.train recipe=resnet50")
    assert environment["level"] == "emulated" and environment["rehearsal"] == {}
    assert (run_dir / "plan.txt").read_text().strip() in result.out
    assert sorted(os.listdir(run_dir / "checkpoints")) == ["10", "5"]


def test_every_step_is_logged_with_its_level_of_truth(straight, lines):
    run_dir, result = straight
    steps = lines(run_dir)
    assert [line["step"] for line in steps] == list(range(1, 11))
    assert all(math.isfinite(line["loss"]) and line["level"] == "emulated" for line in steps)
    assert [line["learning_rate"] for line in steps[:2]] == pytest.approx([0.0, 0.001])
    assert [line["step"] for line in lines(run_dir, "test")] == [5, 10]
    assert "step 10/10  loss " in result.out


@pytest.mark.smoke
def test_ten_steps_are_five_and_five_more_bit_for_bit(straight, command, tmp_path, lines):
    for steps in (5, 10):
        result = command(main, f"run_dir={tmp_path}", f"steps={steps}", "checkpoint_every=5", "eval_every=5")
        assert result.code == 0, result.err
    assert "resumed after step 5" in result.out and "rounding" not in result.out
    assert lines(tmp_path) == lines(straight[0]) and lines(tmp_path, "test") == lines(straight[0], "test")
    one, other = saved(straight[0], 10), saved(tmp_path, 10)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)


def test_a_finished_run_says_so_and_does_nothing(straight, command):
    before = (straight[0] / "metrics.jsonl").read_bytes()
    result = command(main, f"run_dir={straight[0]}", "steps=10")
    assert result.code == 0 and "is finished: 10 of 10 steps are done" in result.out and "Plan" not in result.out
    assert (straight[0] / "metrics.jsonl").read_bytes() == before


def test_a_changed_recipe_is_shown_and_refused_unless_allowed(copy, command, lines):
    change = (f"run_dir={copy}", "steps=11", "recipe.optimizer.momentum=0.5", "seed=1")
    result = command(main, *change)
    assert result.code == 2 and len(result.err.splitlines()) == 1
    assert "recipe.optimizer.momentum: 0.9 -> 0.5" in result.err and "recipe.seed: 0 -> 1" in result.err
    result = command(main, *change, "allow_changed_recipe=true")
    assert result.code == 0 and "recipe.optimizer.momentum: 0.9 -> 0.5" in result.out
    assert [line["step"] for line in lines(copy)] == list(range(1, 12))


def test_resume_never_keeps_what_was_there_and_starts_again(copy, command, lines):
    result = command(main, f"run_dir={copy}", "steps=1", "resume=never")
    assert result.code == 0 and "earlier-1" in result.out
    assert [line["step"] for line in lines(copy)] == [1]
    assert [line["step"] for line in lines(copy / "earlier-1")] == list(range(1, 11))
    assert os.listdir(copy / "checkpoints") == ["1"]


def test_going_back_leaves_no_checkpoint_of_the_other_past(copy, command, straight, lines):
    result = command(main, f"run_dir={copy}", "steps=6", f"resume={copy}/checkpoints/5")
    assert result.code == 0, result.err
    assert "that plan is used again" in result.out
    assert sorted(os.listdir(copy / "checkpoints")) == ["5", "6"]
    assert lines(copy) == lines(straight[0])[:6]


def test_fine_tuning_takes_parameters_and_begins_at_step_one(straight, command, tmp_path, lines):
    result = command(
        main, f"run_dir={tmp_path}", "steps=1", f"init_from={straight[0]}", "recipe.optimizer.warmup_steps=9"
    )
    assert result.code == 0, result.err
    assert [line["step"] for line in lines(tmp_path)] == [1]
    start, end = saved(straight[0], 10), saved(tmp_path, 1)
    kernels = [name for name in start if name.startswith("params.")]
    assert kernels and all(np.array_equal(start[name], end[name]) for name in kernels)  # the first learning rate is 0


def test_a_loss_that_is_not_finite_ends_the_run_and_names_the_last_good_checkpoint(command, tmp_path, lines):
    words = ("steps=9", "checkpoint_every=1", "recipe.optimizer.learning_rate=1e30", "recipe.optimizer.warmup_steps=4")
    result = command(main, f"run_dir={tmp_path}", *words)
    last = lines(tmp_path)[-1]
    assert result.code == 2 and len(result.err.splitlines()) == 1
    assert last["loss"] is None and last["nonfinite"] == ["loss"]
    assert f"at step {last['step']}, and training stopped" in result.err
    assert f"the last good checkpoint is {tmp_path}/checkpoints/{last['step'] - 2}" in result.err
    assert all(math.isfinite(line["loss"]) for line in lines(tmp_path)[:-1])


def test_a_smaller_rehearsal_says_what_it_changed(command, tmp_path, monkeypatch, lines):
    monkeypatch.setattr("zoo.runtime.devices.free_host_memory", lambda: 5 * 2**20)
    words = ("cluster.nodes=2", "recipe.data.global_batch=16", "steps=2", "recipe.model.width=32")  # the state: 1 MiB
    result = command(main, f"run_dir={tmp_path}", *words)
    assert result.code == 0, result.err
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["rehearsal"]["devices"] == [4, 2] and environment["rehearsal"]["global batch"] == [16, 2]
    assert "devices 4 -> 2" in result.out and "compiled the step for 2 devices" in result.out
    assert [line["global_batch"] for line in lines(tmp_path)] == [2, 2]
    assert json.loads((tmp_path / "audit.json").read_text())["devices"] == 4
