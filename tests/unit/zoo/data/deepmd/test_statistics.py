"""What a model takes from data: neighbours, rows, energies; and how frames are laid out."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.data.deepmd import frames, statistics
from zoo.data.deepmd.scattered import scattered
from zoo.data.deepmd.system import System, nothing_known
from zoo.errors import UserError
from zoo.md.cells import EVERYWHERE, NOWHERE
from zoo.models.deepmd.config import Potential, potential
from zoo.models.deepmd.layout import Layout

DESCRIPTOR = {"type": "se_e2_a", "rcut": 3.0, "rcut_smth": 0.5, "neuron": [4], "axis_neuron": 2}
MODEL = potential({"type_map": ["A", "B"], "descriptor": DESCRIPTOR}, "model")


def model(descriptor: dict) -> Potential:
    return potential({"type_map": ["A", "B"], "descriptor": descriptor}, "model")


def molecule(types: list[int], coord: np.ndarray, energy: float = 0.0) -> System:
    labels, known = nothing_known(1, len(types))
    labels["energy"][0], known["energy"][0] = energy, True
    return System("made", np.asarray([types], np.int32), np.asarray([coord], float), None, NOWHERE, labels, known)


LINE = np.asarray([[0.0, 0, 0], [1, 0, 0], [2.5, 0, 0]])


def test_atoms_are_laid_out_by_type_and_missing_ones_are_marked() -> None:
    found = frames.find([molecule([1, 0, 1], LINE), molecule([1, -1, 1], LINE)], 2, 3.0)
    layout = frames.layout([found], MODEL)
    assert layout == Layout((1, 2), (1, 2))
    first, second = (frames.laid_out(found, n, layout, None, np.dtype(float)) for n in (0, 1))
    assert first["neighbours"].tolist() == [[-1, 1, 2], [0, 2, -1], [0, 1, -1]]
    np.testing.assert_allclose(first["displacement"][:, :, 0], [[0, -1, 1.5], [1, 2.5, 0], [-1.5, -2.5, 0]])
    assert second["real"].tolist() == [False, True, True]
    assert second["neighbours"].tolist() == [[-1, -1, -1], [-1, 2, -1], [-1, 1, -1]]


def test_sel_is_settled_by_the_neighbours_there_are() -> None:
    found = frames.find([molecule([1, 0, 1], LINE)], 2, 3.0)
    assert statistics.settled(MODEL, found).descriptor.sel == (4, 4)
    dense = frames.find(scattered(["A", "B"]), 2, 5.0)
    wide = potential({"type_map": ["A", "B"], "descriptor": {**DESCRIPTOR, "rcut": 5.0, "sel": "auto:1.5"}}, "model")
    sel = statistics.settled(wide, dense).descriptor.sel
    assert all(1.5 * most <= number < 1.5 * most + 4 for most, number in zip(dense.most, sel, strict=True))
    narrow = np.concatenate([pairs.within(3.0) for pairs in dense.pairs]).max(axis=0)
    assert tuple(narrow) == frames.find(scattered(["A", "B"]), 2, 3.0).most


def test_a_sel_that_is_too_small_is_told_or_refused() -> None:
    found = frames.find(scattered(["A", "B"]), 2, 3.0)
    narrow = {**DESCRIPTOR, "sel": [1, 1]}
    with pytest.warns(UserWarning, match=r"sel=\[1, 1\] is less than the \[\d+, \d+\] neighbours"):
        frames.warn_of_truncation(found, model(narrow), strict=False)
    with pytest.raises(UserError, match="set sel to"):
        frames.warn_of_truncation(found, model({**DESCRIPTOR, "type": "se_atten", "sel": 3}), strict=True)
    # Each part of a hybrid counts what lies within its own cutoff.
    near = {**DESCRIPTOR, "rcut": 0.6, "rcut_smth": 0.1, "sel": [9, 9]}
    with pytest.raises(UserError, match=r"sel=\[1, 1\] is less"):
        frames.warn_of_truncation(found, model({"type": "hybrid", "list": [near, narrow]}), strict=True)


def test_a_model_that_depends_on_the_first_atom_needs_frames_that_agree_on_it() -> None:
    dependent = model({**DESCRIPTOR, "type": "se_atten", "sel": 9, "set_davg_zero": False})
    alike = frames.find([molecule([1, 0, 1], LINE), molecule([-1, 1, 0], LINE)], 2, 3.0)
    assert frames.layout([alike], dependent).vacant == 1
    assert frames.layout([alike], MODEL).vacant is None
    unlike = frames.find([molecule([1, 0, 1], LINE), molecule([-1, 0, 1], LINE)], 2, 3.0)
    with pytest.raises(UserError, match="made, frame 0 and made, frame 0 begin with atoms of different types"):
        frames.layout([unlike], dependent)


def test_rows_average_over_all_slots() -> None:
    found = frames.find([molecule([0, 0], LINE[:2])], 2, 3.0)
    config = potential({"type_map": ["A", "B"], "descriptor": {**DESCRIPTOR, "sel": [3, 2]}}, "model")
    mean, deviation = statistics.rows(config.descriptor, found)
    u = 0.5 / 2.5
    row = u**3 * (-6 * u**2 + 15 * u - 10) + 1  # at distance 1
    np.testing.assert_allclose(mean, [[row / 5, 0, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(deviation[0], [np.sqrt(row**2 / 5 - (row / 5) ** 2), *[row / np.sqrt(15)] * 3])
    assert (deviation[1] == statistics.LEAST_DEVIATION).all()


def test_energies_per_type_are_least_squares_of_least_norm() -> None:
    counts = np.asarray([[1.0, 2], [2, 1], [3, 3]])
    true = np.asarray([-3.0, 0.5])
    np.testing.assert_allclose(statistics.least_squares(counts, counts @ true, (), None), true)
    one = statistics.least_squares(np.asarray([[64.0, 128.0]]), np.asarray([-320.0]), (), None)
    np.testing.assert_allclose(one, -320 / (64**2 + 128**2) * np.asarray([64, 128]))
    given = statistics.least_squares(counts, counts @ true, (None, 0.25), None)
    assert given[1] == 0.25
    absent = statistics.least_squares(np.asarray([[2.0, 0]]), np.asarray([4.0]), (), None)
    np.testing.assert_allclose(absent, [2, 0])


def test_atoms_on_one_spot_are_named_with_their_frame() -> None:
    labels, known = nothing_known(2, 2)
    coord = np.asarray([[[0.0, 0, 0], [1, 0, 0]], [[0, 0, 0], [5, 0, 0]]])
    cell = np.tile(5 * np.eye(3), (2, 1, 1))
    system = System("made", np.zeros((2, 2), np.int32), coord, cell, EVERYWHERE, labels, known)
    with pytest.raises(UserError, match="made, frame 1: atoms 0 and 1 lie on the same spot"):
        frames.find([system], 1, 3.0)
