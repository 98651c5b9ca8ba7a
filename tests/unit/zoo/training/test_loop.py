import math

import jax.numpy as jnp
import pytest

from zoo.errors import UserError
from zoo.training.loop import Deeds, Ending, NotFinite, Periods, Reporter, run


class Recorder:
    """Stands where the journal does, and keeps what it is told."""

    def __init__(self):
        self.events = []

    def training(self, step, numbers, last=False):
        self.events.append(("report", step, numbers["loss"]))

    def evaluation(self, step, split, numbers):
        self.events.append(("test", step))


def train(
    steps,
    *,
    start=0,
    losses=None,
    stop_at=None,
    eval_every=1000,
    checkpoint_every=1000,
    outgrown_at=None,
    figures=({"accuracy": 0.5},) * 100,
    owed=False,
):
    journal = Recorder()
    evaluations = iter(figures)

    def step(state, batch):
        assert batch == state + 1
        journal.events.append(("step", batch))
        return state + 1, {"loss": jnp.asarray((losses or {}).get(batch, 1.0 / batch))}

    deeds = Deeds(
        step=step,
        evaluate=lambda state: next(evaluations),
        save=lambda number, state, owes: journal.events.append(("save", number, state, *(("owes",) if owes else ()))),
        outgrown=lambda metrics: metrics["loss"] == jnp.asarray(1.0 / (outgrown_at or math.inf)),
        stopping=lambda: ("step", stop_at) in journal.events[-2:],
    )
    periods = Periods(steps, eval_every, checkpoint_every, examples=4)
    result = run(start, start, iter(range(start + 1, 100)), deeds, periods, journal, owed)
    return result, journal.events


def test_metrics_are_fetched_one_step_late_and_the_end_is_saved_and_evaluated():
    result, events = train(3)
    assert result == (3, Ending.FINISHED, 3)
    assert [event[:2] for event in events] == [
        ("step", 1), ("step", 2), ("report", 1), ("step", 3), ("report", 2), ("report", 3), ("test", 3), ("save", 3),
    ]  # fmt: skip


def test_a_save_waits_for_the_loss_of_its_step():
    _, events = train(4, checkpoint_every=2)
    assert [event[1] for event in events if event[0] == "save"] == [2, 4]
    assert events.index(("report", 2, 0.5)) < events.index(("save", 2, 2))


def test_nothing_is_saved_after_a_loss_that_is_not_finite():
    with pytest.raises(NotFinite) as caught:
        train(6, losses={4: math.nan}, checkpoint_every=2)
    assert (caught.value.step, caught.value.name) == (4, "loss")


def test_a_stop_saves_and_says_where():
    (state, ending, last), events = train(9, start=2, stop_at=5)
    assert (state, ending, last) == (5, Ending.STOPPED, 5)
    assert events[-1] == ("save", 5, 5)
    assert [event[1] for event in events if event[0] == "report"] == [3, 4, 5]


def test_an_evaluation_that_a_stop_cut_short_is_made_up_for():
    result, events = train(6, eval_every=4, figures=[None])
    assert result == (4, Ending.STOPPED, 4) and events[-1] == ("save", 4, 4, "owes")
    result, events = train(6, eval_every=4, start=4, owed=True)
    assert result == (6, Ending.FINISHED, 6)
    assert events[:3] == [("test", 4), ("save", 4, 4), ("step", 5)]


def test_a_stop_at_the_last_step_leaves_its_evaluation_for_later():
    result, events = train(6, stop_at=6)
    assert result == (6, Ending.STOPPED, 6) and events[-1] == ("save", 6, 6, "owes")
    result, events = train(6, start=6, owed=True)
    assert result == (6, Ending.FINISHED, 6) and events == [("test", 6), ("save", 6, 6)]


@pytest.mark.parametrize("broken", ["batch", "evaluation"])
def test_damaged_data_does_not_cost_the_steps_done(broken):
    journal = Recorder()

    def batches():
        yield from (1, 2, 3)
        raise UserError("no image")

    def evaluate(state):
        if state == 2 and broken == "evaluation":
            raise UserError("no image")
        return {}

    deeds = Deeds(
        step=lambda state, batch: (state + 1, {"loss": jnp.ones(())}),
        evaluate=evaluate,
        save=lambda number, state, owes: journal.events.append(("save", number, state, owes)),
        stopping=lambda: False,
    )
    with pytest.raises(UserError, match="no image"):
        run(0, 0, batches(), deeds, Periods(9, 2, 100, examples=4), journal)
    assert journal.events[-1] == (("save", 3, 3, False) if broken == "batch" else ("save", 2, 2, True))


def test_what_is_outgrown_is_saved_and_left():
    """The metrics of a step are known while the next one runs, which is the last of this program."""
    (state, ending, last), events = train(9, outgrown_at=4)
    assert (state, ending, last) == (5, Ending.OUTGROWN, 5) and events[-1] == ("save", 5, 5)
    assert train(9, outgrown_at=4, checkpoint_every=2)[0] == (4, Ending.OUTGROWN, 4)
    assert train(5, outgrown_at=4)[0] == (5, Ending.FINISHED, 5)


def test_a_run_without_steps_left_returns_its_state():
    assert train(3, start=3)[0] == (3, Ending.FINISHED, 3)


def test_the_clock_leaves_out_what_is_not_a_step():
    times = iter([0.0, 2.0, 10.0, 11.0])
    journal = Recorder()
    seen = []
    journal.training = lambda step, numbers, last=False: seen.append((numbers["step_s"], numbers["examples_per_s"]))
    report = Reporter(journal, Periods(9, 9, 9, examples=4), clock=lambda: next(times))
    report.later(1, {"loss": 1.0})
    report.now()
    report.restart_clock()
    report.later(2, {"loss": 1.0})
    report.now()
    assert seen == [(2.0, 2.0), (1.0, 4.0)]


def test_a_step_that_is_done_before_the_next_begins_is_not_timed_with_it():
    times = iter([0.0, 2.0, 7.0])
    journal = Recorder()
    seen = []
    journal.training = lambda step, numbers, last=False: seen.append(numbers["step_s"])
    report = Reporter(journal, Periods(9, 9, 9, examples=4), clock=lambda: next(times))
    report.later(1, {"loss": jnp.ones(()).block_until_ready()})
    report.finished()
    report.later(2, {"loss": jnp.ones(())})
    report.now()
    assert seen == [2.0, 5.0]
