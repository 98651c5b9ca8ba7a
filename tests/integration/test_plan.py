"""Planning alone: the same plan every time, the strategies side by side, and what is said when nothing fits."""

from __future__ import annotations

import json
import os

import pytest

import flowaware_core as fa
from zoo import plan


@pytest.mark.smoke
def test_the_same_command_gives_the_same_plan_apart_from_seconds(command, tmp_path):
    texts = []
    for name in ("a", "b"):
        result = command(plan.main, f"run_dir={tmp_path / name}")
        assert result.code == 0, result.err
        tree = json.loads((tmp_path / name / "plan.json").read_text())
        assert set(tree.pop("seconds")) >= {"capture", "analyse", "search"}
        texts.append(json.dumps(tree))
    assert texts[0] == texts[1]
    assert set(os.listdir(tmp_path / "a")) == {
        "config.yaml",
        "plan.json",
        "plan.txt",
        "plan.html",
        "predicted_trace.json",
        "environment.json",
    }
    assert json.loads((tmp_path / "a" / "environment.json").read_text())["level"] == "predicted"


def test_strategies_stand_side_by_side(command, tmp_path):
    result = command(plan.main, "cluster.n=2", f"run_dir={tmp_path}", "compare=all")
    assert result.code == 0, result.err
    rows = [line for line in result.out.splitlines() if line.startswith("│ ")]
    assert [row.split()[1] for row in rows] == list(fa.STRATEGIES)
    assert "(fastest)" in rows[0] and all("GiB" in row and "MiB" in row for row in rows)


def test_all_meshes_can_be_searched(command, tmp_path):
    steps, searched = [], []
    for meshes in ("few", "all"):
        words = "recipe=bert_tiny", "cluster=gpu16", f"run_dir={tmp_path / meshes}", f"meshes={meshes}"
        result = command(plan.main, *words, bare=True)
        assert result.code == 0, result.err
        tree = json.loads((tmp_path / meshes / "plan.json").read_text())
        steps.append(tree["predicted"]["step_s"])
        searched.append(tree["searched"]["meshes"])
    assert searched == [3, 4]
    assert steps[1] <= steps[0] * (1 + 1e-9)


def test_a_plan_can_be_compiled_and_audited(command, tmp_path):
    result = command(plan.main, f"run_dir={tmp_path}", "audit=true")
    assert result.code == 0, result.err
    audit = json.loads((tmp_path / "audit.json").read_text())
    assert audit["devices"] == 4 and audit["ok"], audit
    assert json.loads((tmp_path / "environment.json").read_text())["level"] == "audited"


def test_what_does_not_fit_ends_with_3_and_the_nearest_thing_that_does(command, tmp_path):
    result = command(plan.main, "cluster.device.memory_gib=0.00001", f"run_dir={tmp_path / 'run'}")
    assert result.code == 3 and "would fit" in result.err and len(result.err.splitlines()) == 1
    assert os.listdir(tmp_path) == []
