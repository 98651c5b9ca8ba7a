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
        table: all different matrices; a forbidden pair has a cost that no labelling without one can reach.
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
    """The nodes and edges of a core whose node costs are finite."""
    sizes = np.array(core.sizes, dtype=np.int64)
    halves: list[list[tuple[int, int, int]]] = [[] for _ in core.costs]  # (other, edge, start of the matrix)
    starts: dict[tuple[int, bool], int] = {}
    tables = []
    length = 0

    def place(matrix: np.ndarray, turned: bool) -> int:
        nonlocal length
        start = starts.get((id(matrix), turned))
        if start is None:
            start = starts[id(matrix), turned] = length
            tables.append(np.ravel(matrix.T if turned else matrix))
            length += matrix.size
        return start

    for edge, ((i, j), matrix) in enumerate(zip(core.edges, core.matrices, strict=True)):
        halves[i].append((j, edge, place(matrix, False)))
        halves[j].append((i, edge, place(matrix, True)))
    counts = [len(items) for items in halves]
    flat = [item for items in halves for item in sorted(items)]
    owner = np.repeat(np.arange(len(sizes)), counts)
    other, number, matrix_start = (
        np.array(column, dtype=np.int64) for column in (zip(*flat, strict=True) if flat else ((), (), ()))
    )
    by_edge = np.argsort(number, kind="stable").reshape(-1, 2)
    reverse = np.empty(len(flat), dtype=np.int64)
    reverse[by_edge[:, 0]], reverse[by_edge[:, 1]] = by_edge[:, 1], by_edge[:, 0]
    ahead = np.bincount(owner, other > owner, len(sizes))
    table = np.concatenate([np.zeros(0), *tables])
    table[np.isinf(table)] = forbidden(core)
    return Graph(
        offset=_starts(sizes),
        cost=np.concatenate(core.costs),
        first=_starts(counts),
        other=other,
        reverse=reverse,
        matrix=matrix_start,
        message=_starts(sizes[owner])[:-1],
        share=1.0 / np.maximum(np.maximum(ahead, counts - ahead), 1.0),
        table=table,
    )


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
