"""The loops of `kernels.py` for cores without memory and of few nodes, in numpy: nothing has to be compiled first."""

from __future__ import annotations

import numpy as np

from flowaware_core.search.labelling.core import Core
from flowaware_core.search.labelling.flat import Graph, forbidden

MOST_HALVES = 6_000  # ends of edges above which compiled loops are worth compiling
MOST_VISITS = 100_000  # of ends of edges: about a second, after which they are so for smaller cores too


# Along the first axis; the method `min` takes longer to call than to run on vectors this short.
least_of = np.minimum.reduce


class Passes:
    """Message passing and descent on one core, whose matrices are read where they lie.

    Args:
        graph, core: the same core.
    """

    def __init__(self, graph: Graph, core: Core):
        self.graph = graph
        sizes = np.diff(graph.offset)
        owner = np.repeat(np.arange(len(sizes)), np.diff(graph.first))
        self.spans = [slice(a, b) for a, b in zip(graph.offset[:-1].tolist(), graph.offset[1:].tolist(), strict=True)]
        # (the far end, where its message lies, where the one to it does, [labels here, labels there])
        self.halves: list[list[tuple[int, slice, slice, np.ndarray]]] = [[] for _ in sizes]
        self._sums: dict[tuple[int, ...], np.ndarray] = {}
        matrices = {(i, j): matrix for (i, j), matrix in zip(core.edges, _finite(core), strict=True)}
        for half, (node, other) in enumerate(zip(owner.tolist(), graph.other.tolist(), strict=True)):
            here, there = int(sizes[node]), int(sizes[other])
            into, back = int(graph.message[half]), int(graph.message[graph.reverse[half]])
            matrix = matrices[node, other] if node < other else matrices[other, node].T
            self.halves[node].append((other, slice(into, into + here), slice(back, back + there), matrix))

    def sweep(self, costs: np.ndarray, messages: np.ndarray, labels: np.ndarray, forward: bool) -> float:
        """As `kernels.sweep`."""
        bound = 0.0
        count = len(self.spans)
        for node in range(count) if forward else range(count - 1, -1, -1):
            belief = costs[self.spans[node]].copy()
            given = belief.copy()
            ahead = []
            for other, into, back, matrix in self.halves[node]:
                message = messages[into]
                belief += message
                if (other < node) == forward:
                    given += matrix[:, labels[other]]
                else:
                    given += message
                    ahead.append((message, back, matrix))
            labels[node] = int(given.argmin())
            least = least_of(belief)
            bound += float(least)
            belief -= least
            belief *= self.graph.share[node]
            for message, back, matrix in ahead:
                kept = belief - message
                if forward:
                    sent = least_of(np.add(kept[:, None], matrix, out=self._room(matrix.shape)))
                else:  # which sees the matrix from its other end
                    sent = least_of(np.add(kept, matrix.T, out=self._room(matrix.T.shape)), axis=1)
                least = least_of(sent)
                bound += float(least)
                messages[back] = sent - least
        return bound

    def _room(self, shape: tuple[int, ...]) -> np.ndarray:
        """One place for all sums of a shape: it stays in the processor's cache."""
        room = self._sums.get(shape)
        if room is None:
            room = self._sums[shape] = np.empty(shape)
        return room

    def descend(self, labels: np.ndarray, rounds: int) -> None:
        """Gives every node in turn its cheapest label, until nothing improves."""
        for _ in range(rounds):
            moved = False
            for node, span in enumerate(self.spans):
                given = self.graph.cost[span].copy()
                for other, _, _, matrix in self.halves[node]:
                    given += matrix[:, labels[other]]
                best = int(given.argmin())
                if given[best] < given[labels[node]]:
                    labels[node], moved = best, True
            if not moved:
                return

    def cost(self, labels: np.ndarray) -> float:
        """Of a labelling, without the offset of the core."""
        total = 0.0
        for node, span in enumerate(self.spans):
            total += float(self.graph.cost[span][labels[node]])
            for other, _, _, matrix in self.halves[node]:
                if other > node:
                    total += float(matrix[labels[node], labels[other]])
        return total


def _finite(core: Core) -> list[np.ndarray]:
    """The matrices of a core; what is forbidden has a cost that no labelling without it can reach. Equal ones stay one object."""
    known: dict[int, np.ndarray] = {}
    most: float | None = None
    for matrix in core.matrices:
        if id(matrix) not in known:
            infinite = np.isinf(matrix)
            if infinite.any():
                most = forbidden(core) if most is None else most
                known[id(matrix)] = np.where(infinite, most, matrix)
            else:
                known[id(matrix)] = matrix
    return [known[id(matrix)] for matrix in core.matrices]
