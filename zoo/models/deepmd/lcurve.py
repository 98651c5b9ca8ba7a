"""lcurve.out, the learning curve in deepmd-kit's format, line by line as a training goes on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

Numbers = Mapping[str, float]


class Lcurve:
    """Writes a line whenever a step was both trained and evaluated.

    Columns: step, then the errors of validation and training frames in turn (rmse, the root of the loss; rmse_e in
    eV/atom; rmse_f in eV/A; where virials are trained rmse_v in eV/atom), then the learning rate. nan: no such label.
    """

    def __init__(self, file: Path, start: int, labels: tuple[str, ...]) -> None:
        """Goes on after step `start`: later lines of an interrupted run are dropped."""
        self._labels = labels
        self._training: tuple[int, Numbers] | None = None
        kept = lines_until(file, start)
        self._stream = open(file, "w", encoding="utf-8")  # noqa: SIM115 (closed by `close`)
        self._stream.writelines(kept or [header(labels)])
        self._stream.flush()

    def training(self, step: int, numbers: Numbers) -> None:
        """Takes the metrics of a step."""
        self._training = (step, numbers)

    def evaluation(self, step: int, numbers: Numbers) -> None:
        if self._training is None or self._training[0] != step:
            return
        self._stream.write(line(step, numbers, self._training[1], self._labels))
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()


def header(labels: tuple[str, ...]) -> str:
    names = ["rmse", *(f"rmse_{label[0]}" for label in labels)]
    columns = "".join(f"   {name + '_val':>11s} {name + '_trn':>11s}" for name in names)
    return f"# {'step':5s}{columns}   {'lr':8s}\n# If there is no available reference data, rmse_*_{{val,trn}} will print nan\n"


def line(step: int, test: Numbers, train: Numbers, labels: tuple[str, ...]) -> str:
    pairs = [(root(test), root(train))]
    pairs += [(test.get(f"rmse_{label[0]}", math.nan), train.get(f"rmse_{label[0]}", math.nan)) for label in labels]
    columns = "".join(f"   {a:11.2e} {b:11.2e}" for a, b in pairs)
    return f"{step:7d}{columns}   {train['learning_rate']:8.1e}\n"


def root(numbers: Numbers) -> float:
    return math.sqrt(numbers["loss"]) if "loss" in numbers else math.nan


def lines_until(file: Path, step: int) -> list[str]:
    """The heading and the lines up to `step` of what is there; nothing for a new run."""
    if not step or not file.exists():
        return []
    found = file.read_text(encoding="utf-8").splitlines(keepends=True)
    return [text for text in found if text.startswith("#") or (text.endswith("\n") and int(text.split()[0]) <= step)]
