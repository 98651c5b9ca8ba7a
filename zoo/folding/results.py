"""What a run writes: structures, confidences, arrays and the status of each protein, and a table of all."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from zoo.folding.inputs import Item
from zoo.folding.predictor import Prediction
from zoo.proteins.residues import LETTER_INDEX, UNKNOWN
from zoo.proteins.structures import Structure, fits_pdb, residue_confidence, to_mmcif, to_pdb

DONE, FAILED, SKIPPED, WAITING = "done", "failed", "skipped", "waiting"
COLUMNS = (
    "name status reason residues chains alignment_rows model ranking mean_plddt ptm iptm lddt_ca tm_score rmsd recycles "
    "seconds mark"
).split()


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How one protein ended.

    Attributes:
        status: done, failed or skipped; waiting while a run has not come to it.
        reason: why it is not done, or what happened to it before.
        row: further columns of summary.csv, of the best prediction; and of what is done its "size" (see `buckets.Size`).
    """

    name: str
    status: str
    reason: str = ""
    row: dict[str, Any] = dataclasses.field(default_factory=dict)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    os.replace(partial, path)


def structure_of(item: Item, prediction: Prediction) -> Structure:
    assert item.record is not None
    chains = item.record.chains
    kinds = np.array([LETTER_INDEX.get(letter, UNKNOWN) for letter in "".join(chains)])
    return Structure(
        aatype=kinds,
        positions=prediction.positions,
        mask=prediction.mask,
        residue_index=np.concatenate([np.arange(1, len(chain) + 1) for chain in chains]),
        chain=np.repeat(np.arange(len(chains)), [len(chain) for chain in chains]),
        b_factors=residue_confidence(prediction.plddt),
    )


def write_prediction(
    folder: Path, stem: str, item: Item, prediction: Prediction, mark: str, representations: bool
) -> None:
    """The files of one model and seed: structure (PDB where the format can hold it, and mmCIF), confidences, arrays."""
    write_structure(folder, f"unrelaxed_{stem}", item, structure_of(item, prediction), mark)
    write_text(folder / f"confidence_{stem}.json", json.dumps(confidence_json(prediction, mark)))
    if prediction.error is not None:
        write_text(folder / f"pae_{stem}.json", json.dumps(error_json(prediction, mark)))
    kept = {
        path: value
        for path, value in prediction.arrays.items()
        if representations or not path.startswith("representations/")
    }
    scores = {name: np.asarray(value) for name, value in prediction.scores.items()}
    pairs = {f"chain_pair_{name}": value for name, value in prediction.pairs.items()}
    arrays = {**kept, **scores, **pairs, "plddt": prediction.plddt, "mark": np.array(mark)}
    if prediction.error is not None:
        arrays |= {
            "predicted_aligned_error": prediction.error,
            "max_predicted_aligned_error": np.asarray(prediction.max_error),
        }
    if prediction.trace:
        arrays["recycles/final_atom_positions"] = np.stack(prediction.trace)
    write_arrays(folder / f"result_{stem}.npz", arrays)


def write_structure(folder: Path, stem: str, item: Item, structure: Structure, mark: str) -> None:
    """STEM.cif and, where the format can hold it, STEM.pdb."""
    remarks = (mark,) if mark else ()
    write_text(folder / f"{stem}.cif", to_mmcif(structure, item.name, remarks))
    if fits_pdb(structure):
        write_text(folder / f"{stem}.pdb", to_pdb(structure, remarks))


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    partial = path.with_name(f".{path.name}.partial.npz")
    np.savez_compressed(partial, **arrays)
    os.replace(partial, path)


def confidence_json(prediction: Prediction, mark: str) -> dict[str, Any]:
    """pLDDT by residue with its category (D below 50, L, M, H from 90), and the scores."""
    category = np.array(list("DLMH"))[np.digitize(prediction.plddt, [50, 70, 90])]
    return {
        "residueNumber": list(range(1, len(prediction.plddt) + 1)),
        "confidenceScore": [round(float(value), 2) for value in prediction.plddt],
        "confidenceCategory": category.tolist(),
        **{name: round(value, 4) for name, value in prediction.scores.items()},
        **{f"chain_pair_{name}": np.round(value, 3).tolist() for name, value in prediction.pairs.items()},
        **({"mark": mark} if mark else {}),
    }


def error_json(prediction: Prediction, mark: str) -> list[dict[str, Any]]:
    """Aligned errors as the AlphaFold database writes them."""
    assert prediction.error is not None
    rounded = np.round(prediction.error, 1).tolist()
    found = {"predicted_aligned_error": rounded, "max_predicted_aligned_error": round(prediction.max_error, 2)}
    return [found | ({"mark": mark} if mark else {})]


RESULTS = (
    "ranked_*.pdb ranked_*.cif unrelaxed_*.pdb unrelaxed_*.cif relaxed_*.pdb relaxed_*.cif confidence_*.json pae_*.json "
    "result_*.npz coverage.png plddt_*.png pae_*.png relax_metrics.json ranking.json timings.json templates.json features.npz "
    "view.js status.json"
).split()


def emptied(folder: Path) -> bool:
    """Removes the results of an earlier run, so that none is taken for one of this; what was searched stays. Whether any were."""
    found = [path for pattern in RESULTS for path in folder.glob(pattern) if path.is_file()]
    for path in found:
        path.unlink()
    return any(path.name == "ranking.json" for path in found)


def write_status(folder: Path, outcome: Outcome, fingerprint: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "status.json", json.dumps(dataclasses.asdict(outcome) | {"fingerprint": fingerprint}, indent=1))


def finished_before(folder: Path, fingerprint: str) -> Outcome | None:
    """The outcome of an earlier run that did the same work, or None; failures are tried again."""
    try:
        status = json.loads((folder / "status.json").read_text())
        if (
            status.pop("fingerprint") != fingerprint
            or status["status"] != DONE
            or not (folder / "ranked_0.cif").is_file()
        ):
            return None
        return Outcome(**status)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_summary(path: Path, outcomes: list[Outcome]) -> None:
    """summary.csv: one row a protein, in the order of the input."""
    rows = [{"name": one.name, "status": one.status, "reason": one.reason, **one.row} for one in outcomes]
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    os.replace(partial, path)
