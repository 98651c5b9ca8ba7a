"""A signal saves and ends the run with exit code 75, on one process and on two; the same command goes on."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from zoo.runtime.signals import StopSignals
from zoo.train import main


def stopped(process, run_dir, number):
    """Sends the signal once some steps are done; returns what the command said."""
    log, deadline = run_dir / "metrics.jsonl", time.monotonic() + 400
    while not log.exists() or len(log.read_text().splitlines()) < 8:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no step in time"
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 75, err
    return out, err


def test_ctrl_c_saves_and_the_same_command_goes_on(start, command, tmp_path, lines):
    process = start(f"run_dir={tmp_path}", "steps=100000")
    _, err = stopped(process, tmp_path, signal.SIGINT)
    last = lines(tmp_path)[-1]["step"]
    assert f"stopped: step {last} of 100000 is saved in {tmp_path}/checkpoints/{last}" in err
    result = command(main, f"run_dir={tmp_path}", f"steps={last + 1}")
    assert result.code == 0 and f"resumed after step {last}" in result.out
    assert [line["step"] for line in lines(tmp_path)] == list(range(1, last + 2))


def test_two_processes_train_as_one_and_stop_together(start, command, straight, tmp_path, lines):
    process = start(f"run_dir={tmp_path}", "steps=100000", "processes=2")
    _, err = stopped(process, tmp_path, signal.SIGTERM)
    trained = lines(tmp_path)
    last = trained[-1]["step"]
    assert [line["step"] for line in trained] == list(range(1, last + 1))  # one process logs, and it logs every step
    # Processes add up in another order, and so few examples a batch norm make rounding grow tenfold a step.
    one = [line["loss"] for line in lines(straight[0])[:4]]
    assert [line["loss"] for line in trained[:4]] == pytest.approx(one, rel=1e-5)
    assert f"stopped: step {last} of 100000 is saved" in err
    result = command(main, f"run_dir={tmp_path}", f"steps={last + 1}")
    assert result.code == 0 and f"resumed after step {last}" in result.out


@pytest.mark.parametrize("steps", [5, 10])
def test_a_stop_in_an_evaluation_does_not_change_the_run(command, straight, tmp_path, lines, monkeypatch, steps):
    words = (f"run_dir={tmp_path}", "checkpoint_every=5", "eval_every=5")
    with monkeypatch.context() as patch:
        patch.setattr(StopSignals, "wanted", lambda self: sys._getframe(1).f_code.co_name == "evaluate")
        result = command(main, *words, f"steps={steps}")
    assert result.code == 75 and f"step 5 of {steps} is saved" in result.err
    assert not lines(tmp_path, "test")
    result = command(main, *words, "steps=10")
    assert result.code == 0, result.err
    for split in ("train", "test"):
        assert lines(tmp_path, split) == lines(straight[0], split)
