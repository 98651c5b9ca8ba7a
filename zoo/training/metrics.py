"""Where the numbers of a run go: metrics.jsonl, TensorBoard event files, and the screen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from zoo.errors import UserError
from zoo.training.run_folder import RunFolder, replace

Numbers = Mapping[str, float]


class Screen(Protocol):
    """Shows a run to whoever started it (zoo/training/progress.py)."""

    def step(self, number: int, numbers: Numbers) -> None: ...
    def say(self, sentence: str) -> None: ...
    def close(self) -> None: ...


class Listener(Protocol):
    """Writes a file of a recipe's own beside metrics.jsonl."""

    def training(self, step: int, numbers: Numbers) -> None: ...
    def evaluation(self, step: int, numbers: Numbers) -> None: ...
    def close(self) -> None: ...


class Journal:
    """Writes every number of a run, as long as the `with` block lasts; on processes that do not write it does nothing.

    A line of metrics.jsonl is `{"step", "split", <metrics>, "level", ...}`. A number that is not finite is null,
    because JSON knows no NaN, and its name is listed under `nonfinite`.
    """

    def __init__(
        self,
        folder: RunFolder,
        screen: Screen,
        facts: Mapping[str, Any],
        start: int,
        log_every: int,
        listener: Listener | None = None,
    ) -> None:
        """
        Args:
            folder: the run's folder.
            screen: shows training steps.
            facts: what holds for every line: the level of truth, the global batch.
            start: the step that the run goes on after; later lines of an interrupted run are dropped.
            log_every: steps between two lines of the training split; the first and the last step always have one.
            listener: gets the same numbers, for a file of the recipe's own; only on the process that writes.
        """
        self._screen = screen
        self._facts = dict(facts)
        self._log_every = log_every
        self._stream = None
        self._events = None
        self._listener = listener
        if folder.writes:
            from tensorboardX import SummaryWriter  # here: it is slow to import and only one process needs it

            folder.path.mkdir(parents=True, exist_ok=True)
            keep_until(folder.metrics, start)
            self._stream = open(folder.metrics, "a", encoding="utf-8")  # noqa: SIM115 (closed by __exit__)
            self._events = SummaryWriter(str(folder.events), purge_step=start + 1 if start else None)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._screen.close()
        if self._stream is not None:
            self._stream.close()
        if self._events is not None:
            self._events.close()
        if self._listener is not None:
            self._listener.close()

    def training(self, step: int, numbers: Numbers, last: bool = False) -> None:
        """One training step; `last` forces the line."""
        self._screen.step(step, numbers)
        if self._listener is not None:
            self._listener.training(step, numbers)
        if last or step == 1 or step % self._log_every == 0:
            self._write(step, "train", numbers)

    def evaluation(self, step: int, split: str, numbers: Numbers) -> None:
        self._screen.say(
            f"step {step}  {split}  " + "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        )
        self._write(step, split, numbers)
        if self._listener is not None:
            self._listener.evaluation(step, numbers)

    def _write(self, step: int, split: str, numbers: Numbers) -> None:
        if self._stream is None or self._events is None:
            return
        bad = [name for name, value in numbers.items() if not math.isfinite(value)]
        line: dict[str, Any] = {"step": step, "split": split}
        line |= {name: None if name in bad else value for name, value in numbers.items()}
        line |= self._facts | ({"nonfinite": bad} if bad else {})
        try:
            self._stream.write(json.dumps(line, allow_nan=False) + "\n")
            self._stream.flush()
        except OSError as error:
            raise UserError(f"cannot write {self._stream.name}: {error.strerror}; mend it and run again") from error
        for name, value in numbers.items():
            if name not in bad:
                self._events.add_scalar(f"{split}/{name}", value, step)


def keep_until(metrics: Path, step: int) -> None:
    """Drops the lines after `step`, and one that was cut off: the steps that follow are made, and written, again."""
    if not metrics.exists():
        return
    kept = []
    for text in metrics.read_text(encoding="utf-8").splitlines(keepends=True):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        if line["step"] <= step and text.endswith("\n"):
            kept.append(text)
    replace(metrics, "".join(kept))
