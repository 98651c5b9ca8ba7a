"""A potential held against labelled frames: errors, files of given and predicted values, plots. What `dp test` gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.data.deepmd.system import System
from zoo.models.deepmd.evaluate import Evaluator

UNITS = {"e": "eV", "e_peratom": "eV/atom", "f": "eV/A", "v": "eV", "v_peratom": "eV/atom"}
NAMES = {
    "e": "Energy",
    "e_peratom": "Energy per atom",
    "f": "Force",
    "v": "Virial",
    "v_peratom": "Virial per atom",
}
COLUMNS = {"e": ("e",), "e_peratom": ("e",), "f": ("fx", "fy", "fz")}
VIRIAL = tuple(f"v{a}{b}" for a in "xyz" for b in "xyz")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Given and predicted values of some frames.

    Attributes:
        name: of the frames.
        frames: how many there were.
        given, predicted: "e" [F, 1], "e_peratom" [F, 1], "f" [atoms of all frames, 3], "v" and "v_peratom" [F, 9]; only
            frames that have the label.
    """

    name: str
    frames: int
    given: dict[str, np.ndarray]
    predicted: dict[str, np.ndarray]

    def errors(self) -> dict[str, tuple[float, float]]:
        """Mean absolute error and root mean square of each kind of value; kinds without a label are left out."""
        found = {}
        for kind, given in self.given.items():
            if len(given):
                error = self.predicted[kind] - given
                found[kind] = float(np.abs(error).mean()), float(np.sqrt((error**2).mean()))
        return found


def compare(evaluate: Evaluator, system: System) -> Comparison:
    """Evaluates the frames of a system; atoms that are not there do not count.

    Raises:
        UserError: two atoms of a frame lie on the same spot; names system and frame.
    """
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {kind: [] for kind in UNITS}
    for frame in range(len(system)):
        cell = None if system.cell is None else system.cell[frame]
        types = system.types[frame]
        real = types >= 0
        with system.naming(frame):
            found = evaluate(system.coord[frame], types, cell, system.periodic)
        count = int(real.sum())
        if system.known["energy"][frame]:
            energy = np.asarray([system.labels["energy"][frame]]), np.asarray([float(found.energy)])
            pairs["e"].append(energy)
            pairs["e_peratom"].append((energy[0] / count, energy[1] / count))
        if system.known["force"][frame]:
            pairs["f"] += list(zip(system.labels["force"][frame][real], np.asarray(found.force)[real], strict=True))
        if system.known["virial"][frame]:
            virial = system.labels["virial"][frame].reshape(9), np.asarray(found.virial).reshape(9)
            pairs["v"].append(virial)
            pairs["v_peratom"].append((virial[0] / count, virial[1] / count))
    return Comparison(
        system.name,
        len(system),
        {kind: np.asarray([given for given, _ in rows]) for kind, rows in pairs.items()},
        {kind: np.asarray([predicted for _, predicted in rows]) for kind, rows in pairs.items()},
    )


def together(parts: Sequence[Comparison]) -> Comparison:
    """All frames of several systems as one."""

    def joined(sides: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {
            kind: np.concatenate([side[kind] for side in sides if len(side[kind])] or [np.zeros((0, 1))])
            for kind in UNITS
        }

    frames = sum(part.frames for part in parts)
    given, predicted = ([getattr(part, side) for part in parts] for side in ("given", "predicted"))
    return Comparison("all systems", frames, joined(given), joined(predicted))


def text(comparison: Comparison) -> str:
    """The errors, a line each, as `dp test` words them."""
    lines = [f"# {comparison.name}: {comparison.frames} frames"]
    errors = comparison.errors()
    for kind, (mean, root) in errors.items():
        lines.append(f"{NAMES[kind] + ' MAE':<22s}: {mean:e} {UNITS[kind]}")
        lines.append(f"{NAMES[kind] + ' RMSE':<22s}: {root:e} {UNITS[kind]}")
    missing = [NAMES[kind].lower() for kind in ("e", "f", "v") if kind not in errors]
    return "\n".join([*lines, *([f"no labels of {', '.join(missing)}"] if missing else [])])


def write_details(comparison: Comparison, prefix: Path) -> list[Path]:
    """PREFIX.e.out, .e_peratom.out, .f.out, .v.out, .v_peratom.out: given values, then predicted ones."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    files = []
    for kind, given in comparison.given.items():
        if not len(given):
            continue
        columns = COLUMNS.get(kind, VIRIAL)
        heading = " ".join(f"{side}_{column}" for side in ("data", "pred") for column in columns)
        file = prefix.with_name(f"{prefix.name}.{kind}.out")
        np.savetxt(file, np.hstack([given, comparison.predicted[kind]]), header=f"{comparison.name}: {heading}")
        files.append(file)
    return files


def plot(comparison: Comparison, file: Path) -> Path:
    """Predicted over given values of each kind, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no window, no global state
    from matplotlib.figure import Figure

    kinds = [kind for kind in ("e_peratom", "f", "v_peratom") if len(comparison.given[kind])]
    figure = Figure(figsize=(4.5 * max(len(kinds), 1), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    errors = comparison.errors()
    for place, kind in enumerate(kinds):
        axes = figure.add_subplot(1, len(kinds), place + 1)
        given, predicted = comparison.given[kind].reshape(-1), comparison.predicted[kind].reshape(-1)
        ends = [min(given.min(), predicted.min()), max(given.max(), predicted.max())]
        axes.plot(ends, ends, color="0.6", linewidth=1)
        axes.plot(given, predicted, ".", markersize=3)
        axes.set_xlabel(f"given ({UNITS[kind]})")
        axes.set_ylabel(f"predicted ({UNITS[kind]})")
        axes.set_title(f"{NAMES[kind]}: RMSE {errors[kind][1]:.3g} {UNITS[kind]}")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)
    return file
