"""A core as a few flat arrays, for the compiled kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flowaware_core.search.labelling.core import Core


class Graph(NamedTuple):
    """Nodes and edges. Every edge is two halves, one seen from each end; the halves of a node are consecutive.

    Attributes:
        offset: [nodes + 1] where the labels of a node start in `cost`.
        cost: node costs of all labels.
        first: [nodes + 1] where the halves of a node start.
        other: [halves] the node at the far end.
        reverse: [halves] the same edge seen from there.
        matrix: [halves] where its matrix, [labels here, labels there], starts in `table`.
        message: [halves] where its message, one number per label here, starts in an array of messages.
        share: [nodes] part of a node's belief that it sends along each edge.
        table: all different matrices; a forbidden pair has a cost that no labelling without one can reach. Empty where nothing
            compiled has to read them, see `filled`.
    """

    offset: np.ndarray
    cost: np.ndarray
    first: np.ndarray
    other: np.ndarray
    reverse: np.ndarray
    matrix: np.ndarray
    message: np.ndarray
    share: np.ndarray
    table: np.ndarray


class Rows(NamedTuple):
    """Memory over time; the segments of a node are consecutive.

    Attributes:
        capacity: [moments] room, the tolerance included.
        first: [nodes + 1] where the segments of a node start.
        start, stop: [segments] moments.
        amount: [segments] where the amounts per label start in `amounts`.
        amounts: bytes of all segments and labels.
    """

    capacity: np.ndarray
    first: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    amount: np.ndarray
    amounts: np.ndarray


def graph(core: Core) -> Graph:
    """The nodes and edges of a core whose node costs are finite; without the matrices."""
    sizes = np.array(core.sizes, dtype=np.int64)
    halves = _halves(core)
    counts = [len(items) for items in halves]
    flat = [item for items in halves for item in items]
    owner = np.repeat(np.arange(len(sizes)), counts)
    other, number = (np.array(column, dtype=np.int64) for column in (zip(*flat, strict=True) if flat else ((), ())))
    by_edge = np.argsort(number, kind="stable").reshape(-1, 2)
    reverse = np.empty(len(flat), dtype=np.int64)
    reverse[by_edge[:, 0]], reverse[by_edge[:, 1]] = by_edge[:, 1], by_edge[:, 0]
    ahead = np.bincount(owner, other > owner, len(sizes))
    return Graph(
        offset=_starts(sizes),
        cost=np.concatenate(core.costs),
        first=_starts(counts),
        other=other,
        reverse=reverse,
        matrix=np.zeros(len(flat), dtype=np.int64),
        message=_starts(sizes[owner])[:-1],
        share=1.0 / np.maximum(np.maximum(ahead, counts - ahead), 1.0),
        table=np.zeros(0),
    )


def filled(graph: Graph, core: Core) -> Graph:
    """The graph of a core with its matrices, each as seen from either end, so that every loop reads them in order."""
    starts: dict[tuple[int, bool], int] = {}
    views: list[np.ndarray] = []
    places: list[int] = []
    length = 0
    for node, halves in enumerate(_halves(core)):
        for other, edge in halves:
            matrix, turned = core.matrices[edge], other < node
            if (id(matrix), turned) not in starts:
                starts[id(matrix), turned] = length
                views.append(matrix.T if turned else matrix)
                length += matrix.size
            places.append(starts[id(matrix), turned])
    table, begin = np.empty(length), 0
    for view in views:
        table[begin : begin + view.size].reshape(view.shape)[:] = view
        begin += view.size
    table[np.isinf(table)] = forbidden(core)
    return graph._replace(matrix=np.array(places, dtype=np.int64), table=table)


def _halves(core: Core) -> list[list[tuple[int, int]]]:
    """Per node the nodes that it shares an edge with, ascending, and the number of that."""
    halves: list[list[tuple[int, int]]] = [[] for _ in core.costs]
    for edge, (i, j) in enumerate(core.edges):
        halves[i].append((j, edge))
        halves[j].append((i, edge))
    return [sorted(items) for items in halves]


def forbidden(core: Core) -> float:
    """A cost higher than that of any labelling without forbidden pairs, whatever else a labelling with one saves."""
    spread = sum(float(np.ptp(cost)) for cost in core.costs)
    spans = {}
    for matrix in core.matrices:
        if id(matrix) not in spans:
            finite = matrix[np.isfinite(matrix)]
            spans[id(matrix)] = (float(np.ptp(finite)), float(np.abs(finite).max()))
        spread += spans[id(matrix)][0]
    return 2.0 * spread + max((most for _, most in spans.values()), default=0.0) + 1.0


def rows(core: Core) -> Rows:
    """The memory of a core."""
    groups = core.usage.groups if core.usage else ()
    starts, length = [], 0
    for group in groups:
        starts.append(length + group.amounts.shape[1] * np.arange(len(group.node)))
        length += group.amounts.size
    node, start, stop, amount = (
        np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        for parts in (
            [group.node for group in groups],
            [group.start for group in groups],
            [group.stop for group in groups],
            starts,
        )
    )
    order = np.lexsort((start, node))
    return Rows(
        capacity=core.usage.capacity + core.usage.tolerance if core.usage else np.zeros(0),
        first=np.searchsorted(node[order], np.arange(len(core.costs) + 1)),
        start=start[order],
        stop=stop[order],
        amount=amount[order],
        amounts=np.concatenate([np.zeros(0), *(np.ravel(group.amounts) for group in groups)]),
    )


def _starts(sizes: np.ndarray | list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
