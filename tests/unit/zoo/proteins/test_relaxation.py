"""Relaxing lowers energy and violations, moves little, and what cannot be relaxed is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from zoo.proteins.experiments import read_known
from zoo.proteins.relaxation import RelaxationFailed, relaxed, segments, violations
from zoo.proteins.residues import ATOM_INDEX, LETTER_INDEX, LETTERS, UNKNOWN
from zoo.proteins.structures import Structure

pytest.importorskip("gemmi")


def structure(path: Path, count: int) -> Structure:
    """The first residues of a file."""
    known, _ = read_known(path)
    assert known is not None
    chain = known.chains[0]
    kinds = np.array([LETTER_INDEX[letter] for letter in chain.letters])[:count]
    return Structure(
        kinds,
        chain.positions[:count],
        chain.mask[:count],
        np.arange(1, count + 1),
        np.zeros(count, int),
        np.zeros((count, 37)),
    )


def test_clashes_and_broken_bonds_are_violations(reference_data: Path) -> None:
    good = structure(reference_data / "proteins/structures/1l2y.pdb.gz", 20)
    assert violations(good) == 0
    moved = good.positions.copy()
    moved[10:] += [3.0, 0, 0]
    assert violations(dataclasses.replace(good, positions=moved)) >= 2  # the bond between 10 and 11
    moved = good.positions.copy()
    moved[5, 1] = moved[0, 1] + 0.5
    assert violations(dataclasses.replace(good, positions=moved)) >= 2


def test_a_residue_without_atoms_splits_the_chain(reference_data: Path) -> None:
    whole = structure(reference_data / "proteins/structures/1l2y.pdb.gz", 20)
    kinds = whole.aatype.copy()
    kinds[7] = UNKNOWN
    text = segments(dataclasses.replace(whole, aatype=kinds), np.delete(np.arange(20), 7))
    assert text.count("TER") == 2 and text.count(" OXT ") == 2


@pytest.mark.slow
def test_relaxing_lowers_energy_and_violations(reference_data: Path) -> None:
    pytest.importorskip("openmm")
    path = reference_data / "proteins/predictions/6kwc_A_openfold_model_1_ptm_unrelaxed.pdb.gz"
    predicted = structure(path, 191)
    found = relaxed(predicted)
    assert found.energy_after < found.energy_before - 1000 and found.violations_after == 0 and found.moved < 0.5
    noisy = predicted.positions + np.random.default_rng(0).normal(0, 0.15, predicted.positions.shape)
    worse = relaxed(dataclasses.replace(predicted, positions=noisy * predicted.mask[..., None]))
    assert worse.violations_before > worse.violations_after and worse.energy_after < worse.energy_before


def test_residues_that_cannot_be_relaxed_stay_or_say_why(reference_data: Path) -> None:
    pytest.importorskip("openmm")
    few = structure(reference_data / "proteins/structures/1l2y.pdb.gz", 4)
    with pytest.raises(RelaxationFailed, match="no two residues in a row"):
        relaxed(dataclasses.replace(few, aatype=np.full(4, UNKNOWN)))
    kinds = few.aatype.copy()
    kinds[2] = UNKNOWN
    found = relaxed(dataclasses.replace(few, aatype=kinds))
    assert found.energy_after < found.energy_before and not found.structure.mask[2].any()
    np.testing.assert_array_equal(found.structure.positions[3], few.positions[3])  # alone behind the X
    assert (found.structure.positions[:2] != few.positions[:2]).any()


def test_two_cysteines_that_touch_are_a_bridge(reference_data: Path) -> None:
    """C30 and C115 of lysozyme, whose sulphurs are bonded, each with its neighbours as a chain of its own."""
    pytest.importorskip("openmm")
    whole = structure(reference_data / "proteins/structures/1aki.cif.gz", 129)
    sulphur, around = ATOM_INDEX["SG"], np.r_[28:31, 113:116]
    bridged = dataclasses.replace(
        whole, aatype=whole.aatype[around], positions=whole.positions[around], mask=whole.mask[around],
        residue_index=np.arange(1, 7), chain=np.repeat([0, 1], 3), b_factors=np.zeros((6, 37)),
    )  # fmt: skip
    assert [LETTERS[kind] for kind in bridged.aatype[[1, 4]]] == ["C", "C"]
    found = relaxed(bridged)
    assert found.violations_before == found.violations_after == 0 and found.energy_after < found.energy_before
    apart = np.linalg.norm(found.structure.positions[1, sulphur] - found.structure.positions[4, sulphur])
    assert 1.9 < apart < 2.2
