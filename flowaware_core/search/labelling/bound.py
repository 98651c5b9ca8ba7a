"""Sequential tree-reweighted message passing: a lower bound that only rises, and labellings on the way.

Reference: Kolmogorov, Convergent Tree-Reweighted Message Passing for Energy Minimization, 2006.
"""

from __future__ import annotations

import numpy as np


class Messages:
    """Messages of one core between its nodes in a fixed order.

    Every sweep takes the node costs anew, so that they may change (multipliers) while the messages stay.
    """

    def __init__(self, sizes: list[int], edges: list[tuple[int, int]], matrices: list[np.ndarray]) -> None:
        self.sizes = sizes
        self.links: list[list[tuple[int, int, np.ndarray]]] = [
            [] for _ in sizes
        ]  # (edge, other, [labels of other, mine])
        self.inward = [[np.zeros(sizes[i]), np.zeros(sizes[j])] for i, j in edges]  # messages into i, into j
        for number, ((i, j), matrix) in enumerate(zip(edges, matrices, strict=True)):
            self.links[i].append((number, j, np.ascontiguousarray(matrix.T)))
            self.links[j].append((number, i, np.ascontiguousarray(matrix)))
        self.weights = []
        for node, links in enumerate(self.links):
            ahead = sum(other > node for _, other, _ in links)
            self.weights.append(1.0 / max(ahead, len(links) - ahead, 1))

    def sweep(self, costs: list[np.ndarray], forward: bool) -> tuple[float, np.ndarray]:
        """One pass over all nodes.

        Returns:
            a lower bound of the least cost, valid whatever the messages were before (each edge keeps at least minus
            the share of the node that
            sent along it, and a node's shares add up to at most its belief, which is not negative once its least is
            taken off);
            the labelling that gives each node in turn its best label against those already labelled and the messages
            of the others.
        """
        labels = np.zeros(len(self.sizes), dtype=np.int64)
        bound = 0.0
        nodes = range(len(self.sizes)) if forward else range(len(self.sizes) - 1, -1, -1)
        for node in nodes:
            belief = costs[node].copy()
            given = costs[node].copy()
            for number, other, matrix in self.links[node]:
                message = self.inward[number][0 if node < other else 1]
                belief += message
                done = other < node if forward else other > node
                given += matrix[labels[other]] if done else message
            labels[node] = int(np.argmin(given))
            least = belief.min()
            belief -= least
            bound += least
            share = belief * self.weights[node]
            for number, other, matrix in self.links[node]:
                if (other > node) != forward:
                    continue
                side = 0 if node < other else 1
                outward = (matrix + (share - self.inward[number][side])).min(axis=1)
                least = outward.min()
                bound += least
                self.inward[number][1 - side] = outward - least
        return bound, labels
