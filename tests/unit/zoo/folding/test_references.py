"""A prediction that is its experiment scores 1, one that is moved stays so, and what is missing is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zoo.folding.inputs import Item, read_items
from zoo.folding.predictor import Prediction
from zoo.folding.references import likeness, reference_chains
from zoo.proteins.experiments import read_known

pytest.importorskip("gemmi")


def item_of(folder: Path, name: str, sequence: str) -> Item:
    (folder / "x.fasta").write_text(f">{name}\n{sequence}\n")
    return read_items(folder / "x.fasta", None)[0]


def predicted(positions: np.ndarray, mask: np.ndarray) -> Prediction:
    return Prediction(positions, mask, np.zeros(len(mask)), None, 0.0, {}, {}, 0)


def test_the_experiment_itself_scores_one(reference_data: Path, tmp_path: Path) -> None:
    folder = reference_data / "proteins/structures"
    known, _ = read_known(folder / "2q2k.cif.gz")
    assert known is not None
    chain = known.chains[0]
    item = item_of(tmp_path, "2q2k_A", chain.letters)
    (wanted,), notes = reference_chains(item, folder)
    assert wanted.name == "A" and not notes
    turned = chain.positions @ np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]) + 7
    scores = likeness(item, predicted(turned, np.ones_like(chain.mask)), [wanted])
    assert scores["lddt_ca"] == 1 and scores["tm_score"] == pytest.approx(1) and scores["rmsd"] < 1e-4
    noisy = turned + np.random.default_rng(0).normal(0, 2, turned.shape)
    worse = likeness(item, predicted(noisy, np.ones_like(chain.mask)), [wanted])
    assert worse["lddt_ca"] < 0.8 and worse["tm_score"] < 0.8 and 2 < worse["rmsd"] < 5
    (both,) = read_items(tmp_path / "x.fasta", None)
    assert both.name == "2q2k_A"


def test_chains_of_a_complex_are_matched_and_others_are_refused(reference_data: Path, tmp_path: Path) -> None:
    folder = reference_data / "proteins/structures"
    known, _ = read_known(folder / "2q2k.cif.gz")
    assert known is not None
    one = known.chains[0].letters
    chains, _ = reference_chains(item_of(tmp_path, "2q2k", f"{one}:{one}"), folder)
    assert [chain.name for chain in chains] == ["A", "B"]
    chains, notes = reference_chains(item_of(tmp_path, "2q2k", "MKTAYIAKQRQISFVKSHFSRQ"), folder)
    assert not chains and "no chain of this sequence" in notes[0].reason
    chains, notes = reference_chains(item_of(tmp_path, "other", one), folder)
    assert not chains and "no reference other.cif" in notes[0].reason
