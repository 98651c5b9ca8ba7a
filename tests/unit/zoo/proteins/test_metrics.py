"""lDDT, TM-score and RMSD against published programs and against what must not change them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from zoo.proteins.metrics import lddt, rmsd, superposition, tm_of, tm_score

RNG = np.random.default_rng(0)
POINTS = np.cumsum(RNG.normal(0, 2.2, (40, 3)), axis=0)


def models(path: Path) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(heavy atoms, their residues, CA atoms) of every model."""
    found = []
    for text in gzip.decompress(path.read_bytes()).decode().split("ENDMDL")[:-1]:
        rows = [line for line in text.splitlines() if line.startswith("ATOM") and line[76:78].strip() != "H"]
        place = np.array([[float(line[start : start + 8]) for start in (30, 38, 46)] for line in rows])
        alpha = np.array([line[12:16].strip() == "CA" for line in rows])
        found.append((place, np.array([int(line[22:26]) for line in rows]), place[alpha]))
    return found


def test_lddt_of_an_ensemble(reference_data: Path) -> None:
    known = json.loads((reference_data / "proteins/metrics/lddt_1l2y.json").read_text())
    found = models(reference_data / "proteins/structures/1l2y.pdb.gz")
    for model, value in zip(known["subject_models"], known["lddt"], strict=True):
        points, residues, _ = found[model - 1]
        assert abs(lddt(points, found[0][0], residues=residues) - value) <= 0.01


def test_tm_scores_as_deposited_and_superposed(reference_data: Path) -> None:
    known = json.loads((reference_data / "proteins/metrics/tm_scores_usalign.json").read_text())["1l2y"]
    found = models(reference_data / "proteins/structures/1l2y.pdb.gz")
    for (_, _, alpha), value in zip(found, known, strict=True):
        as_deposited = tm_of(np.sum(np.square(alpha - found[0][2]), axis=-1), len(alpha))
        assert abs(as_deposited - value) < 1e-5
        assert tm_score(alpha, found[0][2]) >= as_deposited - 1e-3  # the search is not exhaustive


def test_tm_scores_are_those_of_tm_align(reference_data: Path) -> None:
    """Models of one protein, of which TM-align pairs the same residues as their numbers do."""
    tmtools = pytest.importorskip("tmtools")
    (_, _, first), *others = models(reference_data / "proteins/structures/1gya.pdb.gz")
    letters = "A" * len(first)
    for _, _, alpha in others[:6]:
        theirs = tmtools.tm_align(alpha, first, letters, letters)
        assert tm_score(alpha, first) == pytest.approx(theirs.tm_norm_chain2, abs=0.003)
        assert 0.5 < theirs.tm_norm_chain2 < 1


def test_superposition_undoes_a_motion() -> None:
    rotation, _ = np.linalg.qr(RNG.normal(size=(3, 3)))
    rotation *= np.linalg.det(rotation)
    turned = POINTS @ rotation.T + 5
    assert rmsd(turned, POINTS) < 1e-9
    assert tm_score(turned, POINTS) == pytest.approx(1)
    assert lddt(turned, POINTS) == 1
    assert np.linalg.det(superposition(POINTS * [1, 1, -1], POINTS)[0]) == pytest.approx(1)  # never a mirror image


def test_a_mirror_image_keeps_lddt_and_loses_tm() -> None:
    mirrored = POINTS * [1, 1, -1]
    assert lddt(mirrored, POINTS) == 1
    assert tm_score(mirrored, POINTS) < 0.7
