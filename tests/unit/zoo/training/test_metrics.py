import json
import math

from zoo.training.metrics import Journal, keep_until
from zoo.training.progress import Bar, Lines, Silent
from zoo.training.run_folder import RunFolder

NUMBERS = {"loss": 1.5, "learning_rate": 0.1, "step_s": 0.5, "examples_per_s": 8.0}


def lines_of(folder):
    return [json.loads(text) for text in folder.metrics.read_text().splitlines()]


def test_lines_hold_the_numbers_and_the_level_of_truth(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with Journal(folder, Silent(), {"level": "emulated"}, start=0, log_every=2) as journal:
        for step in range(1, 6):
            journal.training(step, NUMBERS, last=step == 5)
        journal.evaluation(5, "test", {"accuracy": 0.25})
    assert [(line["step"], line["split"]) for line in lines_of(folder)] == [
        (1, "train"), (2, "train"), (4, "train"), (5, "train"), (5, "test"),
    ]  # fmt: skip
    assert lines_of(folder)[0] == {"step": 1, "split": "train", **NUMBERS, "level": "emulated"}
    assert list(folder.events.glob("events*"))


def test_a_number_that_is_not_finite_is_null_and_named(tmp_path):
    folder = RunFolder(tmp_path)
    with Journal(folder, Silent(), {}, start=0, log_every=1) as journal:
        journal.training(1, {**NUMBERS, "loss": math.nan})
    assert lines_of(folder)[0]["loss"] is None and lines_of(folder)[0]["nonfinite"] == ["loss"]


def test_resuming_drops_what_will_be_written_again(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4, "lo')
    keep_until(folder.metrics, 2)
    assert lines_of(folder) == [{"step": 1}, {"step": 2}]


def test_other_processes_write_nothing(tmp_path):
    folder = RunFolder(tmp_path / "run", writes=False)
    with Journal(folder, Silent(), {}, start=0, log_every=1) as journal:
        journal.training(1, NUMBERS)
        journal.evaluation(1, "test", {"accuracy": 0.25})
    assert not folder.path.exists()


def test_a_bar_shows_steps_and_lets_sentences_pass(capsys):
    bar = Bar(0, 2)
    bar.step(1, NUMBERS)
    bar.say("step 1  test  accuracy 0.5")
    bar.step(2, NUMBERS)
    bar.close()
    shown = capsys.readouterr().out
    assert "step 1  test  accuracy 0.5" in shown and "2/2" in shown and "loss 1.5" in shown and "2 steps/s" in shown


def test_a_short_run_prints_every_step_and_a_long_one_a_line_now_and_then(capsys):
    short, times = Lines(0, 3), iter(range(1000))
    for step in (1, 2, 3):
        short.step(step, NUMBERS)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("step 1/3  loss 1.5  learning_rate 0.1  2 steps/s  0:00:01 left") and len(shown) == 3
    long = Lines(0, 100, clock=lambda: float(next(times)))
    for step in range(1, 101):
        long.step(step, NUMBERS)
    assert [int(line.split()[1].split("/")[0]) for line in capsys.readouterr().out.splitlines()][:3] == [1, 6, 11]
