"""Tables of times against the collectives they stand for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flowaware_core.cluster.mesh import Axis, Mesh
from flowaware_core.cost import communication
from flowaware_core.cost.resharding import Chains, Resharding, layout, partials
from flowaware_core.graph.placement import Partial

MESH = Mesh((Axis("node", 4, 2e9, 3e-6), Axis("card_a", 2, 3e10, 1e-5), Axis("card_b", 2, 3e10, 1e-5)))
FOUR = Mesh((Axis("rack", 2, 1e9, 5e-6), *MESH.axes))


def seconds(shape: tuple[int, ...], source: int, target: int, partial: Partial) -> float:
    natural, wanted = (layout(number, len(shape), 3) for number in (source, target))
    moves = communication.combine(shape, 4, natural, wanted, partial, MESH.sizes)
    return sum(communication.seconds(move.kind, move.bytes, move.axes, MESH) for move in moves)


@pytest.mark.parametrize("shape", [(64,), (32, 48), (30, 64), (8, 16, 24)])
def test_every_pair_of_layouts_costs_what_its_collectives_cost(shape: tuple[int, ...]) -> None:
    table = Resharding(MESH, Chains(3))
    numbers = np.arange((len(shape) + 1) ** 3)
    expected = [[seconds(shape, source, target, ()) for target in numbers] for source in numbers]
    assert np.allclose(table.seconds(shape, 4, numbers, numbers), expected, rtol=1e-9, atol=1e-15)


def test_layouts_over_four_axes() -> None:
    table = Resharding(FOUR, Chains(4))
    numbers = np.arange(3**4)
    for source in numbers:
        moves = [communication.reshard((96, 32), 4, layout(source, 2, 4), layout(t, 2, 4), FOUR.sizes) for t in numbers]
        expected = [sum(communication.seconds(m.kind, m.bytes, m.axes, FOUR) for m in chain) for chain in moves]
        assert np.allclose(table.seconds((96, 32), 4, np.array([source]), numbers), expected, rtol=1e-9, atol=1e-15)


def test_partial_results_cost_what_their_collectives_cost() -> None:
    """The dimensions of the labels are those of the tensor, and two more that are summed over."""
    shape, table = (32, 64), Resharding(MESH, Chains(3))
    labels = list(itertools.product(range(-1, 4), repeat=3))
    sums = partials(labels, frozenset({2, 3}))
    sources = table.numbers((0, 1), np.array(labels))
    targets = np.arange(27)
    found = table.combined(shape, 4, sources, sums, targets)
    expected = [
        [seconds(shape, source, target, partial) for target in targets.tolist()]
        for source, partial in zip(sources.tolist(), sums, strict=True)
    ]
    assert np.allclose(found, expected, rtol=1e-9, atol=1e-15)
    assert any(len(partial) == 2 for partial in sums)


def test_numbers_name_layouts() -> None:
    table = Resharding(MESH, Chains(3))
    for number in range(4**3):
        dims = [next((dim for dim, axes in enumerate(layout(number, 3, 3)) if axis in axes), -1) for axis in range(3)]
        assert table.numbers((0, 1, 2), np.array([dims])) == number
