"""Equal parts of a problem: what is found, and that leaving them out changes nothing."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from flowaware_core.search.labelling import Problem, solve
from flowaware_core.search.repeats import repeats


def blocks(count: int, odd: bool = False) -> tuple[list[Hashable], dict[tuple[int, int], Hashable]]:
    """A trunk (node 0) with blocks of three nodes on it; with `odd` the last one is wired otherwise."""
    kinds: list[Hashable] = ["trunk"]
    edges: dict[tuple[int, int], Hashable] = {}
    for block in range(count):
        first = 1 + 3 * block
        kinds += ["in", "middle", "out"]
        edges |= {
            (0, first): "enter",
            (first, first + 1): "up",
            (first + 1, first + 2): "down",
            (0, first + 2): "leave",
        }
        if odd and block == count - 1:
            edges[first, first + 2] = "skip"
    return kinds, edges


def test_equal_blocks_become_one() -> None:
    found = repeats(*blocks(5))
    assert found.nodes == (0, 1, 2, 3)
    assert found.times == (1, 5, 5, 5)
    assert found.of == (0, *(1, 2, 3) * 5)


def test_a_block_that_differs_in_one_edge_stays() -> None:
    found = repeats(*blocks(5, odd=True))
    assert found.times == (1, 4, 4, 4, 1, 1, 1)


def test_blocks_that_see_different_neighbours_stay() -> None:
    kinds: list[Hashable] = ["a", "leaf", "leaf", "b"]
    assert repeats(kinds, {(0, 1): "edge", (2, 3): "edge"}).times == (1, 1, 1, 1)


def test_a_smaller_problem_has_the_optimum_of_the_whole() -> None:
    kinds, edges = blocks(4, odd=True)
    random = np.random.default_rng(0)
    nodes = {kind: random.integers(0, 20, 3).astype(float) for kind in ("trunk", "in", "middle", "out")}
    tables = {kind: random.integers(0, 20, (3, 3)).astype(float) for kind in ("enter", "up", "down", "leave", "skip")}
    whole = Problem(
        tuple(nodes[str(kind)] for kind in kinds), tuple(edges), tuple(tables[str(kind)] for kind in edges.values())
    )
    found = repeats(kinds, edges)
    inside = {node: position for position, node in enumerate(found.nodes)}
    kept = [(i, j) for i, j in edges if i in inside and j in inside]
    small = Problem(
        tuple(times * whole.node_costs[node] for node, times in zip(found.nodes, found.times, strict=True)),
        tuple((inside[i], inside[j]) for i, j in kept),
        tuple(max(found.times[inside[i]], found.times[inside[j]]) * tables[str(edges[i, j])] for i, j in kept),
    )
    best, less = solve(whole), solve(small)
    assert best.gap == less.gap == 0.0
    assert less.cost == best.cost == whole.cost(less.labels[list(found.of)])
