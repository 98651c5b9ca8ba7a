"""Exact optimum of a small core by eliminating one node after the other (min-plus on a tree decomposition)."""

from __future__ import annotations

import dataclasses
import heapq

import numpy as np


@dataclasses.dataclass(frozen=True)
class Order:
    """In which order to eliminate, and what each step touches.

    Attributes:
        nodes: elimination order.
        scopes: per step the neighbours (in elimination order) that the node has when its turn comes.
        entries: label combinations looked at in all steps together.
        largest: those of the largest step.
    """

    nodes: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    entries: int
    largest: int


def order(sizes: list[int], edges: list[tuple[int, int]], largest: int) -> Order | None:
    """The order that takes the cheapest node each time; None where a step would need a table of more than `largest`
    entries.
    """
    neighbours: list[set[int]] = [set() for _ in sizes]
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    weight = [_weight(node, sizes, neighbours, largest) for node in range(len(sizes))]
    waiting = [(entries, node) for node, entries in enumerate(weight)]
    heapq.heapify(waiting)
    nodes, scopes, entries, top = [], [], 0, 0
    while waiting:
        size, node = heapq.heappop(waiting)
        if weight[node] != size:
            continue  # its neighbours have changed since
        if size > largest:
            return None
        entries += size
        top = max(top, size)
        weight[node] = -1
        scope = neighbours[node]
        nodes.append(node)
        scopes.append(scope)
        for other in scope:
            neighbours[other] |= scope
            neighbours[other] -= {other, node}
        for other in scope:
            size = _weight(other, sizes, neighbours, largest)
            if size != weight[other]:
                weight[other] = size
                heapq.heappush(waiting, (size, other))
    turn = {node: step for step, node in enumerate(nodes)}
    return Order(tuple(nodes), tuple(tuple(sorted(scope, key=turn.__getitem__)) for scope in scopes), entries, top)


def _weight(node: int, sizes: list[int], neighbours: list[set[int]], largest: int) -> int:
    """Entries of the table that eliminating a node takes; where there are more than `largest`, any number above it."""
    result = sizes[node]
    for other in neighbours[node]:
        result *= sizes[other]
        if result > largest:
            break
    return result


def optimum(
    costs: list[np.ndarray], edges: list[tuple[int, int]], matrices: list[np.ndarray], plan: Order
) -> tuple[np.ndarray, float]:
    """Labels of least cost and that cost, by the steps of `plan`."""
    turn = {node: step for step, node in enumerate(plan.nodes)}
    factors: list[list[tuple[tuple[int, ...], np.ndarray]]] = [[] for _ in plan.nodes]
    for (i, j), matrix in zip(edges, matrices, strict=True):
        first, second, table = (i, j, matrix) if turn[i] < turn[j] else (j, i, matrix.T)
        factors[turn[first]].append(((second,), table))
    constant = 0.0
    choices = []
    for step, (node, scope) in enumerate(zip(plan.nodes, plan.scopes, strict=True)):
        table = costs[node].reshape((-1,) + (1,) * len(scope))
        for others, factor in factors[step]:
            shape = [len(costs[node])] + [len(costs[other]) if other in others else 1 for other in scope]
            table = table + factor.reshape(shape)
        factors[step] = []
        table = np.broadcast_to(table, [len(costs[node])] + [len(costs[other]) for other in scope])
        choices.append(table.argmin(axis=0))
        best = table.min(axis=0)
        if scope:
            # The factor belongs to the first of its scope, whose axis comes first already.
            factors[turn[scope[0]]].append((scope[1:], best))
        else:
            constant += float(best)
    labels = np.zeros(len(costs), dtype=np.int64)
    for node, scope, choice in zip(reversed(plan.nodes), reversed(plan.scopes), reversed(choices), strict=True):
        labels[node] = choice[tuple(labels[other] for other in scope)]
    return labels, constant
