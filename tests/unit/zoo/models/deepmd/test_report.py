"""Errors of a potential on frames: what counts, what is written, how it is worded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.data.deepmd.system import System, nothing_known
from zoo.errors import UserError
from zoo.md.cells import NOWHERE
from zoo.models.deepmd import report
from zoo.models.deepmd.model import Outputs


def system(types: list[list[int]], virial: bool) -> System:
    """Frames of energy 1 eV without forces; of virial 0 where there is one."""
    frames, atoms = np.asarray(types).shape
    labels, known = nothing_known(frames, atoms)
    labels["energy"][:], known["energy"][:], known["force"][:], known["virial"][:] = 1.0, True, True, virial
    return System("made", np.asarray(types, np.int32), np.zeros((frames, atoms, 3)), None, NOWHERE, labels, known)


def evaluate(coord: np.ndarray, types: np.ndarray, cell: Any, periodic: Any) -> Outputs:
    """A model that is off by 0.3 eV, by 2 eV/A along x and, for atoms that are not there, by far."""
    force = np.where((types >= 0)[:, None], [2.0, 0.0, 0.0], 1e9)
    return Outputs(np.float64(1.3), force, 0.6 * np.ones((3, 3)), None)


def test_errors_are_of_atoms_that_are_there_and_of_labels_that_are_known(tmp_path: Path) -> None:
    parts = [report.compare(evaluate, one) for one in (system([[0, 1, -1], [0, -1, -1]], False), system([[1]], True))]  # type: ignore[arg-type]
    first, second = (part.errors() for part in parts)
    assert set(first) == {"e", "e_peratom", "f"} and set(second) == {"e", "e_peratom", "f", "v", "v_peratom"}
    np.testing.assert_allclose(first["e"], 0.3)
    np.testing.assert_allclose(first["e_peratom"], [(0.15 + 0.3) / 2, np.sqrt((0.15**2 + 0.3**2) / 2)])
    np.testing.assert_allclose(first["f"], [2 / 3, 2 / np.sqrt(3)])
    whole = report.together(parts)
    assert whole.frames == 3 and len(whole.given["f"]) == 4 and len(whole.given["v"]) == 1
    words = report.text(parts[0])
    assert "Energy MAE            : 3.000000e-01 eV" in words and "no labels of virial" in words
    files = {file.name: np.loadtxt(file, ndmin=2) for file in report.write_details(parts[1], tmp_path / "detail")}
    shapes = {"e": (1, 2), "e_peratom": (1, 2), "f": (1, 6), "v": (1, 18), "v_peratom": (1, 18)}
    assert {name: values.shape for name, values in files.items()} == {
        f"detail.{kind}.out": shape for kind, shape in shapes.items()
    }
    np.testing.assert_allclose(files["detail.e.out"], [[1.0, 1.3]])
    assert "data_fx data_fy data_fz pred_fx pred_fy pred_fz" in (tmp_path / "detail.f.out").read_text().splitlines()[0]


def test_a_frame_that_cannot_be_evaluated_is_named() -> None:
    def touching(*args: Any) -> Outputs:
        raise ValueError("atoms 0 and 1 lie on the same spot")

    with pytest.raises(UserError, match="made, frame 0: atoms 0 and 1 lie on the same spot; mend or remove the frame"):
        report.compare(touching, system([[0, 1]], False))  # type: ignore[arg-type]
