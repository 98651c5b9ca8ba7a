"""Neighbours in every kind of cell, against all images counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from zoo.md.cells import EVERYWHERE, NOWHERE, completed, heights
from zoo.md.neighbours import pairs, table

SKEWED = np.asarray([[4.0, 0.0, 0.0], [1.5, 3.5, 0.0], [-1.0, 0.8, 3.0]])
CELLS = {
    "cubic": 7.0 * np.eye(3),
    "smaller than the cutoff": 2.1 * np.eye(3),
    "skewed": SKEWED,
    "left-handed": SKEWED[[1, 0, 2]],
}


def counted(coord: np.ndarray, cell: np.ndarray, periodic: tuple, rcut: float) -> list[tuple]:
    """Every pair within the cutoff, by going through all images in reach."""
    reach = [int(np.ceil(rcut / h)) + 3 if on else 0 for h, on in zip(heights(cell), periodic)]
    found = []
    for shift in itertools.product(*[range(-n, n + 1) for n in reach]):
        for i, j in itertools.product(range(len(coord)), repeat=2):
            distance = np.linalg.norm(coord[j] + np.asarray(shift) @ cell - coord[i])
            if distance < rcut and not (i == j and not any(shift)):
                found.append((i, j, *shift))
    return sorted(found)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("periodic", [EVERYWHERE, (True, False, True), NOWHERE])
def test_all_pairs_are_found_once(name: str, periodic: tuple) -> None:
    rng = np.random.default_rng(3)
    cell = CELLS[name]
    coord = rng.uniform(-1.5, 1.5, size=(4, 3)) @ cell  # some lie far outside
    types = np.asarray([0, 1, 1, 0])
    found = pairs(coord, cell, periodic, types, 2, 3.1)
    ours = sorted((int(i), int(j), *map(int, n)) for i, j, n in zip(found.first, found.second, found.image))
    assert ours == counted(coord, completed(cell, periodic), periodic, 3.1)
    places = coord[found.second] + found.image @ completed(cell, periodic) - coord[found.first]
    np.testing.assert_allclose(np.linalg.norm(places, axis=1), found.distance, atol=1e-12)


def test_slots_are_sorted_by_type_then_distance_and_limits_keep_the_nearest() -> None:
    coord = np.asarray([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 1.5], [0, 0, -2.5]])
    types = np.asarray([0, 1, 1, 0, 0])
    found = pairs(coord, None, NOWHERE, types, 2, 3.0)
    assert found.most() == (3, 2) and found.counts[0].tolist() == [2, 2]
    assert table(found, (3, 2)).neighbour[0].tolist() == [3, 4, -1, 1, 2]
    assert table(found, (3, 2), (1, 1)).neighbour[0].tolist() == [3, -1, -1, 1, -1]
    assert table(found, (3, 2), 3).neighbour[0].tolist() == [3, -1, -1, 1, 2]
    with pytest.raises(ValueError, match=r"\(3, 2\) neighbours .* \(1, 2\) slots"):
        table(found, (1, 2))


def test_atoms_that_are_not_there_have_no_neighbours() -> None:
    coord = np.asarray([[0.0, 0, 0], [np.nan, 0, 0], [1, 0, 0]])
    found = pairs(coord, None, NOWHERE, np.asarray([0, -1, 0]), 1, 3.0)
    assert found.first.tolist() == [0, 2] and found.second.tolist() == [2, 0]
    assert found.counts.tolist() == [[1], [0], [1]]


def test_nonsense_is_named() -> None:
    types = np.zeros(2, int)
    with pytest.raises(ValueError, match="atoms 0 and 1 lie on the same spot"):
        pairs(np.asarray([[0.0, 0, 0], [5, 0, 0]]), 5 * np.eye(3), EVERYWHERE, types, 1, 3.0)
    with pytest.raises(ValueError, match="position of atom 1 is not finite"):
        pairs(np.asarray([[0.0, 0, 0], [np.inf, 0, 0]]), None, NOWHERE, types, 1, 3.0)
    with pytest.raises(ValueError, match="lie in one plane"):
        pairs(np.zeros((1, 3)), np.asarray([[1.0, 0, 0], [2, 0, 0], [0, 0, 1]]), EVERYWHERE, types[:1], 1, 3.0)
    with pytest.raises(ValueError, match="no vector along its periodic direction 2"):
        pairs(np.zeros((1, 3)), np.diag([1.0, 1, 0]), EVERYWHERE, types[:1], 1, 3.0)
