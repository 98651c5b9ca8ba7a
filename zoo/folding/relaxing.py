"""Relaxes predictions of one item; what cannot be relaxed stays as it is, and the reason is told."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from zoo.folding.inputs import Item
from zoo.folding.predictor import Prediction
from zoo.folding.results import structure_of, write_structure, write_text
from zoo.proteins.relaxation import RelaxationFailed, relaxed


def relax_predictions(folder: Path, item: Item, predictions: Sequence[tuple[str, Prediction]], mark: str) -> str:
    """Writes relaxed_STEM.pdb and .cif of each, and relax_metrics.json.

    Returns:
        which were not relaxed, or not wholly, and why; empty where all were.
    """
    report: dict[str, object] = {}
    failed = []
    for stem, prediction in predictions:
        try:
            found = relaxed(structure_of(item, prediction))
        except RelaxationFailed as error:
            failed.append(f"{stem} is not relaxed: {error}")
            report[stem] = {"failed": str(error)}
            continue
        write_structure(folder, f"relaxed_{stem}", item, found.structure, mark)
        if found.violations_after:
            failed.append(f"{stem} is relaxed, but {found.violations_after} violations remain")
        report[stem] = {
            field.name: round(getattr(found, field.name), 4)
            for field in dataclasses.fields(found)
            if field.name != "structure"
        }
    if predictions:
        write_text(folder / "relax_metrics.json", json.dumps(report, indent=1))
    return "; ".join(failed)
