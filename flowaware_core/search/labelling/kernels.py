"""Compiled inner loops of the bound and of the local search. Importing this module imports numba."""

from __future__ import annotations

import numba
import numpy as np

from flowaware_core.search.labelling.flat import Graph, Rows
from flowaware_core.search.labelling.local import BLOCK

compiled = numba.njit(cache=True, nogil=True, error_model="numpy")
inner = numba.njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]


@compiled
def sweep(graph: Graph, costs: np.ndarray, messages: np.ndarray, labels: np.ndarray, forward: bool) -> float:
    """One pass of tree-reweighted message passing over all nodes; returns a lower bound of the least cost.

    Every node takes its best label given those already passed and the messages of the others (into `labels`). The bound
    is valid whatever the messages were before: each edge keeps at least minus the share that a node sent along it, and
    the shares of a node add up to at most its belief, which is not negative once its least is taken off.
    """
    widest = 0
    count = len(graph.offset) - 1
    for node in range(count):
        widest = max(widest, graph.offset[node + 1] - graph.offset[node])
    belief, given, sent = np.empty(widest), np.empty(widest), np.empty(widest)
    bound = 0.0
    for step in range(count):
        node = step if forward else count - 1 - step
        start = graph.offset[node]
        size = graph.offset[node + 1] - start
        for label in range(size):
            belief[label] = given[label] = costs[start + label]
        for half in range(graph.first[node], graph.first[node + 1]):
            into = graph.message[half]
            for label in range(size):
                belief[label] += messages[into + label]
            if (graph.other[half] < node) == forward:
                row = graph.matrix[graph.reverse[half]] + labels[graph.other[half]] * size
                for label in range(size):
                    given[label] += graph.table[row + label]
            else:
                for label in range(size):
                    given[label] += messages[into + label]
        best = 0
        least = np.inf
        for label in range(size):
            if given[label] < given[best]:
                best = label
            if belief[label] < least:
                least = belief[label]
        labels[node] = best
        bound += least
        for label in range(size):
            belief[label] = (belief[label] - least) * graph.share[node]
        for half in range(graph.first[node], graph.first[node + 1]):
            other = graph.other[half]
            if (other > node) != forward:
                continue
            there = graph.offset[other + 1] - graph.offset[other]
            for label in range(there):
                sent[label] = np.inf
            for label in range(size):
                kept = belief[label] - messages[graph.message[half] + label]
                row = graph.matrix[half] + label * there
                for column in range(there):
                    value = kept + graph.table[row + column]
                    sent[column] = value if value < sent[column] else sent[column]
            least = np.inf
            for label in range(there):
                least = sent[label] if sent[label] < least else least
            bound += least
            into = graph.message[graph.reverse[half]]
            for label in range(there):
                messages[into + label] = sent[label] - least
    return bound


@compiled
def priced(graph: Graph, rows: Rows, prices: np.ndarray, costs: np.ndarray) -> None:
    """Node costs plus the price of the memory that each label occupies, into `costs`."""
    total = np.zeros(len(prices) + 1)
    for moment in range(len(prices)):
        total[moment + 1] = total[moment] + prices[moment]
    for node in range(len(graph.offset) - 1):
        start = graph.offset[node]
        size = graph.offset[node + 1] - start
        for label in range(size):
            costs[start + label] = graph.cost[start + label]
        for segment in range(rows.first[node], rows.first[node + 1]):
            price = total[rows.stop[segment]] - total[rows.start[segment]]
            if price != 0.0:
                for label in range(size):
                    costs[start + label] += price * rows.amounts[rows.amount[segment] + label]


@compiled
def measure(graph: Graph, rows: Rows, labels: np.ndarray, room: np.ndarray, blocks: np.ndarray) -> float:
    """Room left at every moment and in every block of moments under a labelling; returns its cost."""
    moments = len(room)
    change = np.zeros(moments + 1)
    cost = 0.0
    for node in range(len(graph.offset) - 1):
        cost += graph.cost[graph.offset[node] + labels[node]]
        for half in range(graph.first[node], graph.first[node + 1]):
            other = graph.other[half]
            if other > node:
                there = graph.offset[other + 1] - graph.offset[other]
                cost += graph.table[graph.matrix[half] + labels[node] * there + labels[other]]
        for segment in range(rows.first[node], rows.first[node + 1]):
            amount = rows.amounts[rows.amount[segment] + labels[node]]
            change[rows.start[segment]] += amount
            change[rows.stop[segment]] -= amount
    level = 0.0
    for moment in range(moments):
        level += change[moment]
        room[moment] = rows.capacity[moment] - level
    for block in range(len(blocks)):
        blocks[block] = np.inf
        for moment in range(block * BLOCK, min(block * BLOCK + BLOCK, moments)):
            blocks[block] = min(blocks[block], room[moment])
    return cost


@inner
def _given(graph: Graph, labels: np.ndarray, node: int, given: np.ndarray) -> int:
    """What each label of a node costs under the labels of its neighbours; returns how many labels it has."""
    start = graph.offset[node]
    size = graph.offset[node + 1] - start
    for label in range(size):
        given[label] = graph.cost[start + label]
    for half in range(graph.first[node], graph.first[node + 1]):
        row = graph.matrix[graph.reverse[half]] + labels[graph.other[half]] * size
        for label in range(size):
            given[label] += graph.table[row + label]
    return size


@inner
def _least_room(room: np.ndarray, blocks: np.ndarray, start: int, stop: int) -> float:
    least = np.inf
    inner, outer = (start + BLOCK - 1) // BLOCK, stop // BLOCK
    if inner >= outer:
        for moment in range(start, stop):
            least = room[moment] if room[moment] < least else least
        return least
    for moment in range(start, inner * BLOCK):
        least = room[moment] if room[moment] < least else least
    for block in range(inner, outer):
        least = blocks[block] if blocks[block] < least else least
    for moment in range(outer * BLOCK, stop):
        least = room[moment] if room[moment] < least else least
    return least


@inner
def _fits(rows: Rows, labels: np.ndarray, room: np.ndarray, blocks: np.ndarray, node: int, label: int) -> bool:
    """Whether a change of label takes no moment over its capacity, nor further over it."""
    for segment in range(rows.first[node], rows.first[node + 1]):
        growth = rows.amounts[rows.amount[segment] + label] - rows.amounts[rows.amount[segment] + labels[node]]
        if growth > 0.0 and _least_room(room, blocks, rows.start[segment], rows.stop[segment]) < growth:
            return False
    return True


@inner
def _move(rows: Rows, labels: np.ndarray, room: np.ndarray, blocks: np.ndarray, node: int, label: int) -> None:
    old = labels[node]
    labels[node] = label
    for segment in range(rows.first[node], rows.first[node + 1]):
        growth = rows.amounts[rows.amount[segment] + label] - rows.amounts[rows.amount[segment] + old]
        if growth == 0.0:
            continue
        start, stop = rows.start[segment], rows.stop[segment]
        for moment in range(start, stop):
            room[moment] -= growth
        for block in range(start // BLOCK, (stop - 1) // BLOCK + 1):
            least = np.inf
            for moment in range(block * BLOCK, min(block * BLOCK + BLOCK, len(room))):
                least = room[moment] if room[moment] < least else least
            blocks[block] = least


@compiled
def descend(graph: Graph, rows: Rows, labels: np.ndarray, room: np.ndarray, blocks: np.ndarray, rounds: int) -> float:
    """Gives every node in turn its cheapest label that fits, until nothing improves; returns the change of cost."""
    given = np.empty(len(graph.cost))
    change = 0.0
    for _ in range(rounds):
        moved = False
        for node in range(len(labels)):
            size = _given(graph, labels, node, given)
            now = given[labels[node]]
            while True:
                best = 0
                for label in range(size):
                    if given[label] < given[best]:
                        best = label
                if not given[best] < now:
                    break
                if _fits(rows, labels, room, blocks, node, best):
                    _move(rows, labels, room, blocks, node, best)
                    change += given[best] - now
                    moved = True
                    break
                given[best] = np.inf
        if not moved:
            break
    return change


@compiled
def repair(graph: Graph, rows: Rows, labels: np.ndarray, room: np.ndarray, blocks: np.ndarray, moves: int) -> bool:
    """Frees memory at the fullest moment by the change that costs least per byte, again and again.

    Returns whether everything fits in the end.
    """
    given = np.empty(len(graph.cost))
    for _ in range(moves):
        worst, where = 0.0, -1
        for block in range(len(blocks)):
            if blocks[block] < worst:
                worst, where = blocks[block], block
        if where < 0:
            return True
        full = where * BLOCK
        while room[full] != worst:
            full += 1
        best_price, best_node, best_label = np.inf, -1, 0
        for node in range(len(labels)):
            here = -1
            for segment in range(rows.first[node], rows.first[node + 1]):
                if rows.start[segment] <= full < rows.stop[segment]:
                    here = rows.amount[segment]
            if here < 0 or rows.amounts[here + labels[node]] <= 0.0:
                continue
            size = _given(graph, labels, node, given)
            now = given[labels[node]]
            for label in range(size):
                freed = rows.amounts[here + labels[node]] - rows.amounts[here + label]
                if freed <= 0.0 or given[label] == np.inf:
                    continue
                freed = min(freed, -worst)
                extra = given[label] - now
                price = extra / freed if extra > 0.0 else extra * freed
                if price < best_price and _fits(rows, labels, room, blocks, node, label):
                    best_price, best_node, best_label = price, node, label
        if best_node < 0:
            return False
        _move(rows, labels, room, blocks, best_node, best_label)
    return False
