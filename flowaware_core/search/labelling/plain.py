"""The loops of `kernels.py` for cores without memory and of few nodes, in numpy: nothing has to be compiled first."""

from __future__ import annotations

import numpy as np

from flowaware_core.search.labelling.flat import Graph

MOST_HALVES = 6_000  # ends of edges above which compiled loops are worth compiling
MOST_VISITS = 100_000  # of ends of edges: about a second, after which they are so for smaller cores too


least_of = (
    np.minimum.reduce
)  # along the first axis; the method `min` takes longer to call than to run on vectors this short


class Passes:
    """Message passing and descent on one core.

    Args:
        graph: the core.
    """

    def __init__(self, graph: Graph):
        self.graph = graph
        sizes = np.diff(graph.offset)
        owner = np.repeat(np.arange(len(sizes)), np.diff(graph.first))
        self.spans = [slice(a, b) for a, b in zip(graph.offset[:-1].tolist(), graph.offset[1:].tolist(), strict=True)]
        self.halves: list[list[tuple[int, slice, slice, np.ndarray]]] = [[] for _ in sizes]
        self._sums: dict[tuple[int, ...], np.ndarray] = {}
        for half, (node, other) in enumerate(zip(owner.tolist(), graph.other.tolist(), strict=True)):
            here, there = int(sizes[node]), int(sizes[other])
            start, into, out = (int(a[half]) for a in (graph.matrix, graph.message, graph.reverse))
            back = int(graph.message[out])
            matrix = graph.table[start : start + here * there].reshape(here, there)
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
                sums = self._sums.get(matrix.shape)
                if sums is None:  # one place for all: it stays in the processor's cache
                    sums = self._sums[matrix.shape] = np.empty(matrix.shape)
                sent = least_of(np.add((belief - message)[:, None], matrix, out=sums))
                least = least_of(sent)
                bound += float(least)
                messages[back] = sent - least
        return bound

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
