import json
import os

import pytest

from zoo.errors import UserError
from zoo.training.run_folder import RunFolder, check_place


def test_a_file_is_written_whole_and_replaced(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "a")
    folder.write("plan.txt", "one\n")
    folder.write("plan.txt", "two\n")
    folder.write("plan.json", {"operators": 1})
    assert (folder.path / "plan.txt").read_text() == "two\n"
    assert json.loads((folder.path / "plan.json").read_text()) == {"operators": 1}
    assert sorted(os.listdir(folder.path)) == ["plan.json", "plan.txt"]


def test_only_the_first_process_writes(tmp_path):
    RunFolder(tmp_path / "a", writes=False).write("plan.txt", "one")
    assert not (tmp_path / "a").exists()


def test_a_write_below_a_file_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="another run_dir"):
        RunFolder(tmp_path / "file" / "a").write("plan.txt", "one")


def test_checking_a_place_leaves_nothing_behind(tmp_path):
    check_place(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []


def test_a_place_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(UserError, match="is a file"):
            check_place(path)


def test_a_place_that_is_too_full_is_refused(tmp_path):
    with pytest.raises(UserError, match="GiB of free disk"):
        check_place(tmp_path / "a", needed_bytes=2**60)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_may_not_be_written_is_refused(tmp_path):
    if os.geteuid() == 0:
        target = "/proc/zoo-run"  # the superuser may write anywhere else
    else:
        tmp_path.chmod(0o500)
        target = tmp_path / "a"
    with pytest.raises(UserError, match="cannot be written"):
        check_place(type(tmp_path)(target))


def folder_with_runs(tmp_path, steps):
    folder = RunFolder(tmp_path)
    for step in steps:
        (folder.checkpoints / str(step)).mkdir(parents=True)
    folder.metrics.write_text("{}\n")
    folder.events.mkdir()
    return folder


def test_a_new_run_sets_everything_aside(tmp_path):
    folder = folder_with_runs(tmp_path, [2, 4])
    place = folder.set_aside(0)
    assert sorted(os.listdir(place)) == ["checkpoints", "events", "metrics.jsonl"]
    assert sorted(os.listdir(place / "checkpoints")) == ["2", "4"]
    assert folder.set_aside(0) is None


def test_a_resumed_run_sets_aside_only_later_checkpoints(tmp_path):
    folder = folder_with_runs(tmp_path, [2, 4])
    assert os.listdir(folder.set_aside(2) / "checkpoints") == ["4"]
    assert os.listdir(folder.checkpoints) == ["2"] and folder.metrics.exists()
    assert folder.set_aside(2) is None
