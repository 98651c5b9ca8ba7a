"""The command shows and verifies a checkpoint, and says in one line what is wrong with a directory."""

from __future__ import annotations

import os

import jax.numpy as jnp
import pytest

from zoo import checkpoint
from zoo.errors import exit_code
from zoo.training.checkpoints import Checkpoints

command = exit_code(checkpoint.main)


@pytest.fixture
def run_dir(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    for step in (1, 2):
        checkpoints.save(step, {"params": {"w": jnp.ones((4, 3))}, "step": step}, {"plan_hash": "abc"})
    checkpoints.wait()
    return tmp_path / "run"


def test_show_prints_the_tree(run_dir, capsys):
    assert command(["show", str(run_dir)]) == 0
    output = capsys.readouterr().out
    assert "step 2, 2 leaves" in output and 'plan_hash: "abc"' in output
    assert "params.w  float32[4,3]  on 1 device(s)" in output and "step      python 2" in output
    assert command(["show", str(run_dir / "checkpoints" / "1")]) == 0
    assert "step 1, 2 leaves" in capsys.readouterr().out


def test_verify_tells_whole_from_damaged(run_dir, capsys):
    assert command(["verify", str(run_dir)]) == 0
    assert "is whole" in capsys.readouterr().out
    file = run_dir / "checkpoints" / "2" / "arrays" / "manifest.ocdbt"
    os.truncate(file, 10)
    assert command(["verify", str(run_dir)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "arrays/manifest.ocdbt has 10 bytes" in captured.err and "step 1 before it is good" in captured.err


def test_show_of_a_damaged_tree_names_the_file(run_dir, capsys):
    file = run_dir / "checkpoints" / "2" / "leaves.json"
    file.write_text(file.read_text().replace("float32", "float16"))
    assert command(["show", str(run_dir)]) == 2
    assert "leaves.json has sha256" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "absent", "file"])
def test_a_directory_that_is_no_checkpoint(tmp_path, capsys, name):
    (tmp_path / "file").write_text("x")
    assert command(["show", str(tmp_path / name)]) == 2
    assert "name a run folder" in capsys.readouterr().err
