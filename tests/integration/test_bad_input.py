"""Whatever is wrong is said in one line, with exit code 2, before anything is planned or written."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from zoo import plan, train
from zoo.errors import UserError
from zoo.locks import locked


@pytest.fixture
def refused(command, tmp_path):
    """Runs zoo.train, expects exit code 2 and one line, and returns the line; nothing may be left behind."""

    def refused(*words, run_dir=None, main=train.main):
        before = tree(tmp_path)
        result = command(main, f"run_dir={run_dir or tmp_path / 'run'}", *words)
        assert result.code == 2 and "Plan" not in result.out, result
        assert len(result.err.splitlines()) == 1 and result.err.startswith("error: "), result.err
        assert tree(tmp_path) == before
        return result.err

    return refused


def tree(folder):
    return sorted((str(path), path.stat().st_size) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    "words, said",
    [
        (["cluster.levels.card.bandwidth_bytes_per_s=-1"], "cluster.levels.card.bandwidth_bytes_per_s=-1"),
        (["steps=-1"], "steps=-1"),
        (["recipe.model.widht=8"], "recipe.model.widht is not known"),
        (["recipe._target_=recipes.resnet.ResNet50"], "recipe._target_=recipes.resnet.ResNet50"),
        (["recipe._target_=os.system"], "recipe._target_=os.system is no recipe"),
        (["recipe.optimizer.learning_rate=inf"], "recipe.optimizer.learning_rate=inf: expected a finite number"),
        (["recipe._target_=recipes.resnett.ResNetRecipe"], "give the dotted name of a class"),
        (["strategy=tensr"], "did you mean tensor?"),
        (["cluster.n=6", "processes=2", "recipe.data.global_batch=9"], "2 processes can share 8 or 10 examples"),
        (["processes=3"], "choose one of 1, 2, 4"),
        (["cluster.n=null"], "cluster.n"),
    ],
)
def test_options(refused, words, said):
    assert said in refused(*words)


def test_planning_refuses_the_same(refused):
    assert "steps=-1" in refused("steps=-1", main=plan.main)
    assert "strategy=best is not known" in refused("strategy=best", main=plan.main)


def test_a_folder_that_another_run_is_at_work_in(refused, tmp_path):
    place = tmp_path / "run"
    place.mkdir()
    (place / "of the other").write_text("")
    with locked(place):
        for main in (train.main, plan.main):
            said = refused(run_dir=place, main=main)
            assert f"run_dir={place} is in use by another run" in said
    assert not (place / ".lock").exists()


def test_a_run_dir_below_a_file(refused, tmp_path):
    (tmp_path / "file").write_text("")
    for main in (train.main, plan.main):
        assert "is a file" in refused(run_dir=tmp_path / "file" / "run", main=main)


def test_a_run_dir_that_may_not_be_written(refused):
    assert "cannot be written" in refused(run_dir="/proc/run")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of half a mebibyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder]).returncode:
        pytest.skip("mounting a small file system needs the superuser")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_run_dir_on_a_full_disk(refused, small_disk):
    assert "GiB of free disk" in refused(run_dir=small_disk / "run")


def test_nothing_to_resume_or_to_start_from(refused, tmp_path):
    (tmp_path / "empty").mkdir()
    assert f"resume={tmp_path}/empty holds no complete checkpoint" in refused(f"resume={tmp_path}/empty")
    assert f"init_from={tmp_path}/nowhere does not exist" in refused(f"init_from={tmp_path}/nowhere")


def test_real_training_without_its_data(command, tmp_path, monkeypatch):
    def no_network(name, data_dir):
        raise UserError("its source cannot be reached")

    monkeypatch.setattr("zoo.data.choice.fetch", no_network)
    words = ["recipe=resnet50", "cluster=local", f"run_dir={tmp_path}/run", f"data_dir={tmp_path}/data"]
    result = command(train.main, *words, bare=True)
    assert result.code == 2 and len(result.err.splitlines()) == 1, result.err
    assert "python -m zoo.data.download cifar10" in result.err and os.listdir(tmp_path) == []


def test_a_truncated_checkpoint_is_named_and_the_previous_good_one_offered(command, straight, tmp_path):
    run_dir = tmp_path / "run"
    shutil.copytree(straight[0], run_dir)
    largest = max((run_dir / "checkpoints" / "10").rglob("*"), key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)
    before = tree(run_dir)
    result = command(train.main, f"run_dir={run_dir}", "steps=11")
    assert result.code == 2 and len(result.err.splitlines()) == 1 and tree(run_dir) == before
    assert str(largest.relative_to(run_dir / "checkpoints" / "10")) in result.err
    assert f"resume={run_dir}/checkpoints/5" in result.err
