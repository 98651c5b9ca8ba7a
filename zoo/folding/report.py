"""index.html: all proteins in a table that can be sorted, each with a view of its structure; nothing comes from a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from zoo.folding.predictor import Prediction
from zoo.folding.results import COLUMNS, Outcome, write_text

PLACE = "/*DATA*/"


def write_report(output: Path, outcomes: Sequence[Outcome]) -> None:
    """Writes index.html from what summary.csv holds; structures are read by the page when they are opened."""
    rows: list[dict[str, Any]] = [
        {"name": one.name, "status": one.status, "reason": one.reason, **one.row, "plots": plots_of(output / one.name)}
        for one in outcomes
    ]
    used = [column for column in COLUMNS if column != "mark" and any(row.get(column, "") != "" for row in rows)]
    page = resources.files("zoo.folding").joinpath("report.html").read_text(encoding="utf-8")
    # `<` cannot end the script element early where it is written as an escape.
    data = json.dumps({"columns": used, "rows": rows}).replace("<", "\\u003c")
    write_text(output / "index.html", page.replace(PLACE, data))


def plots_of(folder: Path) -> list[str]:
    """Those of the best prediction."""
    try:
        best = json.loads((folder / "ranking.json").read_text())["order"][0]
    except (OSError, ValueError, KeyError, IndexError):
        return []
    names = ("coverage.png", f"plddt_{best}.png", f"pae_{best}.png")
    return [name for name in names if (folder / name).exists()]


def write_view(folder: Path, name: str, found: Prediction, chain: np.ndarray) -> None:
    """view.js: the CA atoms as [x, y, z, pLDDT, chain]; X has none.

    It is a script, as a page that is opened from a disk may read no other file.
    """
    seen = np.flatnonzero(found.mask[:, 1])
    points = [
        [
            *(round(float(value), 2) for value in found.positions[residue, 1]),
            round(float(found.plddt[residue]), 1),
            int(chain[residue]),
        ]
        for residue in seen
    ]
    write_text(folder / "view.js", f"structure({json.dumps(name)}, {json.dumps(points, separators=(',', ':'))});\n")
