"""Least times whatever the order of interchangeable axes, against all orders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from flowaware_core.cluster.mesh import Mesh, meshes
from flowaware_core.cluster.model import Cluster, Device, Level
from flowaware_core.cost.relaxed import Relaxed
from flowaware_core.cost.resharding import Chains, Resharding, layout, partials

DEVICE = Device("lab", 2**30, {"float32": 1e12}, 1e11)


def finest(nodes: int, cards: int) -> Mesh:
    levels = (Level("node", nodes, 2e9, 1e-5, shared=True), Level("card", cards, 3e10, 4e-6))
    return meshes(Cluster("lab", DEVICE, levels))[-1]


def least(table: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The least entry of all rows and columns that look alike."""
    found = np.full((rows.max() + 1, columns.max() + 1), np.inf)
    np.minimum.at(found, (rows[:, None], columns), table)
    return found


@pytest.mark.parametrize("nodes, cards", [(4, 2), (4, 4), (8, 2), (6, 2), (8, 4)])
@pytest.mark.parametrize("shape", [(64,), (12, 40), (1024, 2048), (8, 8, 8), (64, 128, 256)])
def test_no_order_takes_less_and_the_best_mostly_takes_no_more(nodes: int, cards: int, shape: Sequence[int]) -> None:
    mesh = finest(nodes, cards)
    table, relaxed = Resharding(mesh, Chains(len(mesh.axes))), Relaxed(mesh)
    numbers = np.arange((len(shape) + 1) ** len(mesh.axes))
    dims = np.array([numbers // (len(shape) + 1) ** axis % (len(shape) + 1) - 1 for axis in range(len(mesh.axes))]).T
    alike, orders = np.unique(relaxed.numbers(range(len(shape)), dims), return_inverse=True)
    best = least(table.seconds(shape, 4, numbers, numbers), orders, orders)
    found = relaxed.seconds(shape, 4, alike, alike)
    assert (found <= best * (1 + 1e-9) + 1e-18).all()
    assert ((found > 0) == (best > 0)).all()
    moved = best > 0
    assert np.mean(found[moved] / best[moved]) > 0.95


def test_partial_results_take_no_more_either() -> None:
    """The dimensions of the labels are those of the tensor, and two more that are summed over."""
    mesh, shape = finest(4, 2), (32, 64)
    table, relaxed = Resharding(mesh, Chains(3)), Relaxed(mesh)
    labels = list(itertools.product(range(-1, 4), repeat=3))
    sums = partials(labels, frozenset({2, 3}))
    targets = np.arange(27)
    dims = np.array([[number // 3**axis % 3 - 1 for axis in range(3)] for number in targets])
    ends, columns = np.unique(relaxed.numbers((0, 1), dims), return_inverse=True)
    ascending = [tuple(sorted(label[:2], key=lambda dim: (dim < 0, dim))) + label[2:] for label in labels]
    rows = np.unique([labels.index(label) for label in ascending], return_inverse=True)
    best = least(table.combined(shape, 4, table.numbers((0, 1), np.array(labels)), sums, targets), rows[1], columns)
    kept = [labels[index] for index in rows[0]]
    found = relaxed.combined(shape, 4, relaxed.numbers((0, 1), np.array(kept)), partials(kept, frozenset({2, 3})), ends)
    assert (found <= best * (1 + 1e-9) + 1e-18).all()
    assert np.mean(found[best > 0] / best[best > 0]) > 0.95


def test_a_layout_has_the_number_of_the_one_that_ascends() -> None:
    relaxed = Relaxed(finest(4, 4))
    numbers = relaxed.numbers((0, 1), np.array([[1, 0, -1, 1], [0, 1, 1, -1], [-1, -1, 1, 0]]))
    assert numbers[0] == numbers[1] != numbers[2]
    assert layout(int(numbers[0]), 2, 4) == ((0,), (1, 2))
    assert layout(int(numbers[2]), 2, 4) == ((2,), (3,))
