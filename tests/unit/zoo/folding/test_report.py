"""The page holds every protein and reads nothing from a network; pictures are files with the same bytes each time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from zoo.folding.plots import local_confidence, write_plots
from zoo.folding.predictor import Prediction
from zoo.folding.report import write_report, write_view
from zoo.folding.results import Outcome


def prediction(num_res: int = 6) -> Prediction:
    rng = np.random.default_rng(0)
    mask = np.ones((num_res, 37))
    mask[2] = 0  # an X
    return Prediction(
        rng.normal(size=(num_res, 37, 3)), mask, rng.uniform(0, 100, num_res), rng.uniform(0, 31, (num_res, num_res)), 31.75,
        {}, {}, 0,
    )  # fmt: skip


def test_the_page_holds_every_protein_and_no_address(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/ranking.json").write_text('{"order": ["m_seed_0"]}')
    (tmp_path / "a/pae_m_seed_0.png").touch()
    outcomes = [
        Outcome("a", "done", "", {"residues": 6, "mark": "random parameters"}), Outcome("b", "failed", "</script><b>column 3"),
    ]  # fmt: skip
    write_report(tmp_path, outcomes)
    page = (tmp_path / "index.html").read_text()
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    data = json.loads(text[1])
    assert data["columns"] == ["name", "status", "reason", "residues"]
    assert data["rows"][0]["plots"] == ["pae_m_seed_0.png"] and data["rows"][1]["reason"] == "</script><b>column 3"
    assert "//" not in re.sub(r"(?m)^\s*//.*|  // .*", "", page).replace("<!doctype", "")


def test_the_view_holds_the_atoms_that_are_there(tmp_path: Path) -> None:
    write_view(tmp_path, 'odd"name', prediction(), np.array([0, 0, 0, 1, 1, 1]))
    name, points = json.loads("[" + (tmp_path / "view.js").read_text().removeprefix("structure(").rstrip(");\n") + "]")
    assert name == 'odd"name' and len(points) == 5 and [point[4] for point in points] == [0, 0, 1, 1, 1]


def test_plots_are_written_and_always_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    msa = np.random.default_rng(1).integers(0, 22, (9, 6))
    write_plots(tmp_path, "m", msa, prediction(), [4, 2], "random parameters")
    assert {path.name for path in tmp_path.iterdir()} == {"coverage.png", "plddt_m.png", "pae_m.png"}
    local_confidence(tmp_path / "again.png", prediction().plddt, [4, 2], "random parameters")
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "plddt_m.png").read_bytes()
    local_confidence(tmp_path / "other.png", prediction().plddt / 2, [4, 2], "random parameters")
    assert (tmp_path / "other.png").read_bytes() != (tmp_path / "plddt_m.png").read_bytes()
