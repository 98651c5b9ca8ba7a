"""Leaving out what cannot be part of a better labelling: exact, given a lower bound's messages and a labelling's cost.

After a backward sweep the cost is the bound plus one non-negative term per node and edge. Dropping the edges outside a
spanning forest leaves something whose least, given any one label or pair, two passes over the forest find exactly.
Where that
is more than the gap, no labelling with that label or pair is better than the one at hand.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from flowaware_core.search.labelling.bound import Dual
from flowaware_core.search.labelling.core import Core

FORESTS = 3


@dataclasses.dataclass(frozen=True)
class Terms:
    """The cost of a labelling = bound + sum of `nodes` + sum of `edges`, all non-negative."""

    bound: float
    nodes: list[np.ndarray]
    edges: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Slack:
    """How far over the bound every labelling with a certain label or pair is at least.

    Attributes:
        core: what it is about.
        bound: without the offset of the core.
        nodes: per node [labels].
        edges: per edge, as its matrix.
    """

    core: Core
    bound: float
    nodes: list[np.ndarray]
    edges: list[np.ndarray]

    def gap(self, entries: int) -> float:
        """The widest gap at which at most so many pairs stay; inf = all of them may."""
        values = np.concatenate([np.zeros(0), *(np.ravel(least) for least in self.edges)])
        values = values[np.isfinite(values)]
        return float(np.partition(values, entries)[entries]) if len(values) > entries else np.inf

    def without(self, cost: float) -> Core:
        """The core without the labels and pairs that no labelling cheaper than `cost` (offset left out) has."""
        gap = cost - self.bound
        gap += 1e-9 * abs(gap)
        core = self.core
        costs = [np.where(least > gap, np.inf, cost) for cost, least in zip(core.costs, self.nodes, strict=True)]
        matrices = []
        for matrix, least in zip(core.matrices, self.edges, strict=True):
            out = (least > gap) & np.isfinite(matrix)
            matrices.append(np.where(out, np.inf, matrix) if out.any() else matrix)
        return dataclasses.replace(core, costs=costs, matrices=matrices)


def slack(core: Core, dual: Dual) -> Slack:
    """What the prices and messages of a bound prove about every label and pair."""
    terms = _terms(core, dual)
    nodes = [np.zeros(len(values)) for values in terms.nodes]
    edges = [values.copy() for values in terms.edges]
    for seed in range(FORESTS):
        _add_forest(core, terms, np.random.default_rng(seed), nodes, edges)
    return Slack(core, terms.bound, nodes, edges)


def _terms(core: Core, dual: Dual) -> Terms:
    graph, messages = dual.graph, dual.messages.copy()
    costs = dual.node_costs()
    labels = np.zeros(len(core.costs), dtype=np.int64)
    bound = dual.backward(costs, messages, labels) - float(dual.prices @ dual.rows.capacity)
    beliefs, nodes = [], []
    into: list[dict[int, np.ndarray]] = []
    for node in range(len(core.costs)):
        belief = costs[graph.offset[node] : graph.offset[node + 1]].copy()
        halves = range(graph.first[node], graph.first[node + 1])
        received = {int(graph.other[h]): messages[graph.message[h] : graph.message[h] + len(belief)] for h in halves}
        for message in received.values():
            belief += message
        belief -= belief.min()
        behind = sum(other < node for other in received)
        beliefs.append(belief * graph.share[node])
        nodes.append(belief * (1.0 - behind * graph.share[node]))
        into.append(received)
    edges = []
    for (i, j), matrix in zip(core.edges, core.matrices, strict=True):
        term = matrix + (beliefs[j] - into[j][i]) - into[i][j][:, None]
        edges.append(np.maximum(term - term.min(), 0.0))
    return Terms(bound, nodes, edges)


def _add_forest(
    core: Core, terms: Terms, rng: np.random.Generator, node_least: list[np.ndarray], edge_least: list[np.ndarray]
) -> None:
    """Raises the least of every label and pair to what one random spanning forest proves."""
    order, parent_edge = _forest(core, rng)
    up = [values.copy() for values in terms.nodes]
    sent: dict[int, np.ndarray] = {}
    for node in reversed(order):
        edge = parent_edge[node]
        if edge >= 0:
            parent, term = _seen_from(core, terms, edge, node)
            sent[node] = (up[node][:, None] + term).min(axis=0)
            up[parent] = up[parent] + sent[node]
    total = up
    for node in order:
        edge = parent_edge[node]
        if edge >= 0:
            parent, term = _seen_from(core, terms, edge, node)
            pairs = term + (total[parent] - sent[node])
            least = pairs.min(axis=1)
            pairs = pairs + up[node][:, None]
            total[node] = up[node] + least
            pairs = pairs if core.edges[edge][0] == node else pairs.T
            edge_least[edge] = np.maximum(edge_least[edge], pairs)
        node_least[node][:] = np.maximum(node_least[node], total[node])
    inside = set(parent_edge)
    for edge, (i, j) in enumerate(core.edges):
        if edge not in inside:
            least = terms.edges[edge] + np.maximum(total[i][:, None], total[j])
            edge_least[edge] = np.maximum(edge_least[edge], least)


def _seen_from(core: Core, terms: Terms, edge: int, node: int) -> tuple[int, np.ndarray]:
    """The far end of an edge and its term as [labels of the node, labels there]."""
    i, j = core.edges[edge]
    return (j, terms.edges[edge]) if i == node else (i, terms.edges[edge].T)


def _forest(core: Core, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Nodes in an order with parents first, and the edge of each to its parent (-1 = a root)."""
    group = list(range(len(core.costs)))

    def find(node: int) -> int:
        while group[node] != node:
            group[node] = group[group[node]]
            node = group[node]
        return node

    branches: list[list[tuple[int, int]]] = [[] for _ in core.costs]
    for edge in rng.permutation(len(core.edges)).tolist():
        i, j = core.edges[edge]
        root, other = find(i), find(j)
        if root != other:
            group[root] = other
            branches[i].append((j, edge))
            branches[j].append((i, edge))
    order: list[int] = []
    parent_edge = [-1] * len(core.costs)
    seen = [False] * len(core.costs)
    for root in range(len(core.costs)):
        if seen[root]:
            continue
        seen[root] = True
        order.append(root)
        position = len(order) - 1
        while position < len(order):
            for other, edge in branches[order[position]]:
                if not seen[other]:
                    seen[other] = True
                    parent_edge[other] = edge
                    order.append(other)
            position += 1
    return order, parent_edge
