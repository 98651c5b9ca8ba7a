"""What a run shows while it trains: a bar on a terminal, plain lines elsewhere, nothing on other processes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from zoo.training.metrics import Numbers, Screen

FEW_STEPS = 20
"""A run of at most so many steps prints every one of them."""

SECONDS_BETWEEN_LINES = 5.0


def screen(start: int, steps: int, shows: bool) -> Screen:
    """The right one for this process and its standard output.

    Args:
        start: steps already done.
        steps: the step that the run ends with.
        shows: whether this process prints at all.
    """
    if not shows:
        return Silent()
    return Bar(start, steps) if sys.stdout.isatty() else Lines(start, steps)


class Silent:
    """For processes that do not print."""

    def step(self, number: int, numbers: Numbers) -> None:
        del number, numbers

    def say(self, sentence: str) -> None:
        del sentence

    def close(self) -> None:
        pass


class Bar:
    """A progress bar with steps per second, loss and time left."""

    def __init__(self, start: int, steps: int) -> None:
        columns = (
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[rate]} steps/s"),
            TextColumn("loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            TextColumn("left"),
        )
        self._progress = Progress(*columns, console=Console(file=sys.stdout))
        self._task = self._progress.add_task("train", total=steps, completed=start, rate="-", loss="-")
        self._progress.start()

    def step(self, number: int, numbers: Numbers) -> None:
        rate = f"{1 / max(numbers['step_s'], 1e-9):.3g}"
        self._progress.update(self._task, completed=number, rate=rate, loss=f"{numbers['loss']:.4g}")

    def say(self, sentence: str) -> None:
        self._progress.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """One line a step in a short run; in a long one a line every few seconds, and the first and last step."""

    def __init__(self, start: int, steps: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps = steps
        self._every = steps - start <= FEW_STEPS
        self._first = start + 1
        self._clock = clock
        self._shown = -SECONDS_BETWEEN_LINES

    def step(self, number: int, numbers: Numbers) -> None:
        now = self._clock()
        if not (self._every or number in (self._first, self._steps) or now - self._shown >= SECONDS_BETWEEN_LINES):
            return
        self._shown = now
        left = (self._steps - number) * numbers["step_s"]
        shown = "  ".join(
            f"{name} {value:.4g}" for name, value in numbers.items() if name not in ("step_s", "examples_per_s")
        )
        rate = f"{1 / max(numbers['step_s'], 1e-9):.3g} steps/s"
        self.say(f"step {number}/{self._steps}  {shown}  {rate}  {duration(left)} left")

    def say(self, sentence: str) -> None:
        print(sentence, flush=True)

    def close(self) -> None:
        pass


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
