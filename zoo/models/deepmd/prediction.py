"""Models held against labelled frames: what `python -m zoo.predict recipe=dp...` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from zoo.data.deepmd import systems
from zoo.errors import UserError
from zoo.models.deepmd import convert, deviation, report
from zoo.models.deepmd.evaluate import Evaluator
from zoo.training.run_folder import check_place


def compared(words: Mapping[str, str], run_dir: Path, say: Callable[[str], None]) -> None:
    """Errors, detail files and plots of one model; for several models their deviation.

    Args:
        words: input, output, model and most of `zoo.predict`.
        run_dir: where model.dp of a training lies.
        say: prints a line.

    Raises:
        UserError: models or frames are missing or make no sense.
    """
    if "input" not in words:
        raise UserError("input= is missing; name folders or files of frames, such as input=water/data_3")
    most = words.get("most")
    if most is not None and (not most.isdigit() or int(most) < 1):
        raise UserError(f"most={most}; it must be a whole number of at least 1")
    output = Path(words.get("output", "predictions"))
    files = [Path(name) for name in words.get("model", "").split(",") if name] or [run_dir / "model.dp"]
    if missing := next((file for file in files if not file.exists()), None):
        raise UserError(f"{missing} does not exist; train first, or name a .dp, .yaml or .pt file with model=")
    check_place(output, option="output")
    models = [convert.read(file) for file in files]
    found = systems.read(words["input"].split(","), models[0].config.type_map)
    limit = None if most is None else int(most)
    if len(models) > 1:
        rows = deviation.deviations(deviation.stacked(models), [system.first(limit) for system in found])
        deviation.write(output / "model_devi.out", range(len(rows)), rows)
        return say(f"written {output / 'model_devi.out'}")
    evaluate = Evaluator(models[0])
    parts = []
    for number, system in enumerate(found):
        parts.append(report.compare(evaluate, system.first(limit)))
        report.write_details(parts[-1], output / f"detail.{number:03d}")
        say(report.text(parts[-1]))
    whole = report.together(parts)
    if len(parts) > 1:
        say(report.text(whole))
    say(f"written {report.plot(whole, output / 'parity.png')} and, beside it, detail.*.out")
