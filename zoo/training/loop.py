"""The loop: batch, step, metrics, evaluation, checkpoint. It knows no recipe, no plan and no file format."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from zoo.errors import UserError
from zoo.training.metrics import Journal

State = Any


class Ending(enum.Enum):
    """Why the loop came back."""

    FINISHED = "finished"
    STOPPED = "stopped"
    OUTGROWN = "outgrown"


class NotFinite(Exception):
    """A number of a step is NaN or infinite; nothing computed from then on is of use."""

    def __init__(self, step: int, name: str, value: float) -> None:
        super().__init__(f"{name} is {value} at step {step}")
        self.step, self.name, self.value = step, name, value


@dataclasses.dataclass(frozen=True)
class Periods:
    """Lengths in steps; whatever has a period also happens at the last step.

    Attributes:
        steps: the step that the training ends with.
        examples: examples in a step over all devices.
    """

    steps: int
    eval_every: int
    checkpoint_every: int
    examples: int


@dataclasses.dataclass(frozen=True)
class Deeds:
    """What the loop does, each as a function.

    Attributes:
        step: `(state, batch) -> (state, metrics)`; takes its state away (donates it).
        evaluate: the state -> figures of the test split, or None where a stop cut it short; None where nothing is evaluated.
        save: starts to save `(step, state, owed)`; owed: its evaluation is still to come.
        stopping: called once a step, before the next begins: whether to end here. All processes get the same answer.
        improved: takes the figures of an evaluation: whether its state is to be saved as the best so far.
        enough: asked after an evaluation: whether the training ends early.
        outgrown: takes the metrics of a step: whether this program no longer serves, and another one has to go on.
    """

    step: Callable[[State, Any], tuple[State, Mapping[str, jax.Array]]]
    evaluate: Callable[[State], Mapping[str, float] | None] | None
    save: Callable[[int, State, bool], None]
    stopping: Callable[[], bool]
    improved: Callable[[int, Mapping[str, float]], bool] = lambda step, figures: False
    enough: Callable[[], bool] = lambda: False
    outgrown: Callable[[Mapping[str, float]], bool] = lambda metrics: False


def run(
    state: State,
    start: int,
    batches: Iterator[Any],
    deeds: Deeds,
    periods: Periods,
    journal: Journal,
    owed: bool = False,
) -> tuple[State, Ending, int]:
    """Trains from step `start` to the end, or until told to stop, it is enough or outgrown; the last state is saved.

    The metrics of a step are fetched while the next one runs, so the host never holds the devices up. Where evaluation
    or a checkpoint wants the state, they are fetched first: nothing is saved after a loss that is not finite. A stop does
    not wait for an evaluation; it is made up for when the run goes on, which so is the same as one that was not stopped.

    Args:
        state: after `start` steps.
        batches: those of step `start + 1` on.
        owed: whether the state was to be evaluated when it was saved, and a stop came before.

    Returns:
        The state, why it came back, and the last step done.

    Raises:
        NotFinite: a metric is NaN or infinite; found one step late.
        UserError: a batch cannot be read; the steps before it are saved.
    """
    report = Reporter(journal, periods, deeds.outgrown)
    for number in range(start if owed else start + 1, periods.steps + 1):
        if number > start:
            with _saved_on_failure(deeds, report, start, number - 1, state):
                batch = next(batches)
            report.finished()
            state, metrics = deeds.step(state, batch)
            report.later(number, metrics)
        last, stop = number == periods.steps, deeds.stopping()
        due = deeds.evaluate is not None and (last or number == start or number % periods.eval_every == 0)
        saves = last or stop or report.outgrown or number == start or number % periods.checkpoint_every == 0
        if due or saves:
            report.now()
        figures = None
        if due and deeds.evaluate is not None and not stop:
            with _saved_on_failure(deeds, report, start, number, state, owes=True):
                figures = deeds.evaluate(state)
        owes, enough = due and figures is None, False
        if figures is not None:
            journal.evaluation(number, "test", figures)
            saves = deeds.improved(number, figures) or saves
            enough = deeds.enough()
        if saves or enough or owes:
            deeds.save(number, state, owes)
        if owes or (stop and not last):
            return state, Ending.STOPPED, number
        if enough:
            return state, Ending.FINISHED, number
        if report.outgrown and not last:
            return state, Ending.OUTGROWN, number
        if due or saves:
            report.restart_clock()
    report.now()
    return state, Ending.FINISHED, max(start, periods.steps)


@contextlib.contextmanager
def _saved_on_failure(
    deeds: Deeds, report: Reporter, start: int, number: int, state: State, owes: bool = False
) -> Iterator[None]:
    """Where data turns out to be damaged, the steps done are kept; among several processes only one may know of it."""
    try:
        yield
    except UserError:
        if number > start and jax.process_count() == 1:
            report.now()
            deeds.save(number, state, owes)
        raise


def _ready(metrics: Mapping[str, jax.Array]) -> bool:
    return all(value.is_ready() for value in jax.tree.leaves(metrics))


class Reporter:
    """Fetches metrics one step late, times the steps, and stops on numbers that are not finite.

    Attributes:
        outgrown: whether metrics said that the program no longer serves.
    """

    def __init__(
        self,
        journal: Journal,
        periods: Periods,
        outgrown: Callable[[Mapping[str, float]], bool] = lambda metrics: False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._journal, self._periods, self._clock = journal, periods, clock
        self._outgrown, self.outgrown = outgrown, False
        self._waiting: tuple[int, Mapping[str, jax.Array]] | None = None
        self._mark = clock()
        self._done: float | None = None

    def later(self, number: int, metrics: Mapping[str, jax.Array]) -> None:
        """Takes the metrics of a step that was just sent off, and reports those of the step before."""
        if self._waiting is not None and self._done is None and _ready(metrics):
            # Both are done by now: where the first ended is not known, so each gets half of the time.
            self._done = (self._mark + self._clock()) / 2
        self.now()
        self._waiting = (number, metrics)

    def finished(self) -> None:
        """Called before a step is sent off: where the step before is done, this is when its time ends."""
        if self._waiting is not None and _ready(self._waiting[1]):
            self._done = self._clock()

    def now(self) -> None:
        """Reports what is waiting, and so waits for its step."""
        if self._waiting is None:
            return
        number, metrics = self._waiting
        self._waiting = None
        fetched = jax.device_get(dict(metrics))  # jit sorts names; people look for the loss first
        numbers = {name: float(fetched[name]) for name in sorted(fetched, key=lambda name: (name != "loss", name))}
        done, self._done = self._clock() if self._done is None else self._done, None
        seconds, self._mark = done - self._mark, done
        speed = {"examples_per_s": self._periods.examples / max(seconds, 1e-9), "step_s": seconds}
        bad = next((name for name, value in numbers.items() if not math.isfinite(value)), None)
        self._journal.training(number, {**numbers, **speed}, last=bad is not None or number == self._periods.steps)
        if bad is not None:
            raise NotFinite(number, bad, numbers[bad])
        self.outgrown = self.outgrown or self._outgrown(numbers)

    def restart_clock(self) -> None:
        """The next step is timed from here: evaluation and saving are not part of it."""
        self._mark = self._clock()
