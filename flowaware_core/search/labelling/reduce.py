"""Exact reductions: a smaller problem with the same optimum, and the way back.

Without a memory limit everything below keeps the optimum; with one, a node is only removed where that cannot change
which labellings fit: nodes fixed by a neighbour take their usage along, and nodes with usage are never eliminated by
cost alone.
"""

from __future__ import annotations

import dataclasses
from collections import deque

import numpy as np

from flowaware_core.search.labelling.matrices import Key, Pool
from flowaware_core.search.labelling.problem import Problem
from flowaware_core.search.labelling.usage import Usage, compressed

LARGEST_COMPARISON = 30_000_000  # label x label x label entries above which dominance is not looked for


class Infeasible(Exception):
    """Every label of some node is forbidden."""


@dataclasses.dataclass(frozen=True)
class Core:
    """What is left of a problem.

    Attributes:
        costs: node cost vectors, all finite.
        edges, matrices: as in Problem; no parallel edges, i < j. Equal matrices are one object.
        usage: what is left of the memory limit; None = it cannot bind.
        offset: cost of what was decided.
        nodes: number in the original problem of each node.
    """

    costs: list[np.ndarray]
    edges: list[tuple[int, int]]
    matrices: list[np.ndarray]
    usage: Usage | None
    offset: float
    nodes: np.ndarray
    names: list[np.ndarray]
    steps: list[tuple]
    total: int

    def restore(self, labels: np.ndarray) -> np.ndarray:
        """Labels of the original problem from labels of the core."""
        result = np.zeros(self.total, dtype=np.int64)
        for position, node in enumerate(self.nodes):
            result[node] = self.names[position][labels[position]]
        for node, table, parents in reversed(self.steps):
            index = tuple(np.searchsorted(names, result[parent]) for parent, names in parents)
            result[node] = table[index]
        return result

    def project(self, labels: np.ndarray) -> np.ndarray | None:
        """Labels of the core from labels of the original problem; None where the core no longer has the label."""
        result = np.zeros(len(self.nodes), dtype=np.int64)
        for position, node in enumerate(self.nodes):
            names = self.names[position]
            index = np.searchsorted(names, labels[node])
            if index == len(names) or names[index] != labels[node]:
                return None
            result[position] = index
        return result


def reduced(problem: Problem, with_memory: bool = True) -> Core:
    """The core of a problem. Raises Infeasible where forbidden choices leave a node without labels."""
    return _Reducer(problem, with_memory).run()


def _take_rows(matrix: np.ndarray, index: np.ndarray) -> np.ndarray:
    return matrix[index]


def _supported(matrix: np.ndarray) -> np.ndarray | None:
    """Rows with a finite entry; None = all."""
    keep = np.isfinite(matrix).any(axis=1)
    return None if keep.all() else np.flatnonzero(keep)


def _decided(matrix: np.ndarray) -> np.ndarray | None:
    """For each row its only finite column; None where a row has several."""
    finite = np.isfinite(matrix)
    return np.argmax(finite, axis=1) if (finite.sum(axis=1) == 1).all() else None


def _separable(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(row, column) vectors whose sums are the matrix, or None."""
    if not np.isfinite(matrix).all():
        return None
    row, column = matrix[:, 0], matrix[0] - matrix[0, 0]
    return (row, column) if (matrix == row[:, None] + column).all() else None


def _regret(matrix: np.ndarray) -> np.ndarray:
    """[a, b] = the most that taking row b instead of row a can cost."""
    result = np.empty((len(matrix), len(matrix)))
    for row in range(len(matrix)):
        with np.errstate(invalid="ignore"):
            difference = matrix - matrix[row]
        difference[:, ~np.isfinite(matrix[row])] = -np.inf
        result[row] = difference.max(axis=1)
    return result


class _Reducer:
    def __init__(self, problem: Problem, with_memory: bool) -> None:
        self.pool = Pool()
        self.costs = [np.asarray(costs, dtype=np.float64) for costs in problem.node_costs]
        self.names = [self.pool.add(np.arange(len(costs))) for costs in self.costs]
        self.neighbours: list[dict[int, Key]] = [{} for _ in self.costs]
        self.rows: list[list[tuple[int, int, Key]]] = [[] for _ in self.costs]
        self.alive = [True] * len(self.costs)
        self.steps: list[tuple] = []
        self.offset = 0.0
        self.capacity = np.zeros(0)
        self.fixed_rows: list[tuple[int, int, float]] = []
        self.queue: deque[int] = deque(range(len(self.costs)))
        self.queued = [True] * len(self.costs)
        self.changed = set(range(len(self.costs)))
        for (i, j), matrix in zip(problem.edges, problem.edge_costs, strict=True):
            if i == j:
                self.costs[i] = self.costs[i] + np.diagonal(matrix)
            else:
                self._connect(i, j, self.pool.add_shared(matrix))
        if with_memory and problem.limit is not None and problem.usage:
            for node, start, stop, amounts in problem.usage:
                if stop > start:
                    self.rows[node].append((start, stop, self.pool.add_shared(amounts)))
            self.capacity = np.full(max(stop for _, _, stop, _ in problem.usage), float(problem.limit))

    def run(self) -> Core:
        while True:
            while self.queue:
                node = self.queue.popleft()
                self.queued[node] = False
                if self.alive[node]:
                    self._simplify(node)
            if self._compress():
                continue
            for node in sorted(self.changed):
                if self.alive[node]:
                    self._drop_dominated(node)
            self.changed.clear()
            if not self.queue:
                return self._core()

    # Bookkeeping ------------------------------------------------------------------------------------------------------

    def _touch(self, node: int) -> None:
        self.changed.add(node)
        if not self.queued[node]:
            self.queued[node] = True
            self.queue.append(node)

    def _connect(self, i: int, j: int, key: Key) -> None:
        old = self.neighbours[i].get(j)
        if old is not None:
            key = self.pool.derive("add", np.add, old, key)
        parts = self.pool.fact("separable", _separable, key)
        if parts is not None:
            self.costs[i] = self.costs[i] + parts[0]
            self.costs[j] = self.costs[j] + parts[1]
            self.neighbours[i].pop(j, None)
            self.neighbours[j].pop(i, None)
        else:
            self.neighbours[i][j] = key
            self.neighbours[j][i] = self.pool.transpose(key)
        self._touch(i)
        self._touch(j)

    def _restrict(self, node: int, keep: np.ndarray) -> None:
        """Keeps only some labels of a node."""
        if not len(keep):
            raise Infeasible
        pick = self.pool.add(keep)
        self.costs[node] = self.costs[node][keep]
        self.names[node] = self.pool.derive("rows", _take_rows, self.names[node], pick)
        self.rows[node] = [(a, b, self.pool.derive("rows", _take_rows, key, pick)) for a, b, key in self.rows[node]]
        for other, key in list(self.neighbours[node].items()):
            self._disconnect(node, other)
            self._connect(node, other, self.pool.derive("rows", _take_rows, key, pick))
        self._touch(node)

    def _disconnect(self, i: int, j: int) -> None:
        del self.neighbours[i][j], self.neighbours[j][i]

    def _name(self, node: int) -> np.ndarray:
        return self.pool.arrays[self.names[node]]

    def _remove(self, node: int, table: np.ndarray, parents: list[int]) -> None:
        """Takes a node out; its label is `table` (of its labels now) indexed by the labels of the parents."""
        self.steps.append((node, self._name(node)[table], [(parent, self._name(parent)) for parent in parents]))
        self.alive[node] = False

    # One node ---------------------------------------------------------------------------------------------------------

    def _simplify(self, node: int) -> None:
        finite = np.isfinite(self.costs[node])
        if not finite.all():
            self._restrict(node, np.flatnonzero(finite))
            return
        for key in self.neighbours[node].values():
            keep = self.pool.fact("supported", _supported, key)
            if keep is not None:
                self._restrict(node, keep)
                return
        if len(self.costs[node]) == 1:
            self._fix(node)
            return
        for other, key in self.neighbours[node].items():
            choice = self.pool.fact("decided", _decided, self.pool.transpose(key))
            if choice is None:
                continue
            back = self.pool.fact("decided", _decided, key)
            if back is not None and self._weight(node) > self._weight(other):
                self._merge(other, node, back)
            else:
                self._merge(node, other, choice)
            return
        if len(self.neighbours[node]) <= 2 and not self.rows[node]:
            self._eliminate(node)

    def _weight(self, node: int) -> int:
        """Work that merging the node into another one takes."""
        return len(self.neighbours[node]) + len(self.rows[node])

    def _fix(self, node: int) -> None:
        self.offset += float(self.costs[node][0])
        for other, key in list(self.neighbours[node].items()):
            self.costs[other] = self.costs[other] + self.pool.arrays[key][0]
            self._disconnect(node, other)
            self._touch(other)
        self.fixed_rows += [(a, b, float(self.pool.arrays[key][0])) for a, b, key in self.rows[node]]
        self._remove(node, np.zeros((), dtype=np.int64), [])

    def _merge(self, node: int, other: int, choice: np.ndarray) -> None:
        """`node` takes label choice[label of other]."""
        pick = self.pool.add(choice)
        key = self.neighbours[other][node]
        self.costs[other] = (
            self.costs[other] + self.pool.arrays[key][np.arange(len(choice)), choice] + self.costs[node][choice]
        )
        self._disconnect(node, other)
        for third, key in list(self.neighbours[node].items()):
            self._disconnect(node, third)
            self._connect(other, third, self.pool.derive("rows", _take_rows, key, pick))
        self.rows[other] += [(a, b, self.pool.derive("rows", _take_rows, key, pick)) for a, b, key in self.rows[node]]
        self.rows[node] = []
        self._remove(node, choice, [other])
        self._touch(other)

    def _eliminate(self, node: int) -> None:
        """Min-plus elimination of a node with at most two neighbours and no memory."""
        others = list(self.neighbours[node])
        matrices = [self.pool.arrays[self.neighbours[node][other]] for other in others]
        cost = self.costs[node]
        for other in others:
            self._disconnect(node, other)
        if not others:
            best = int(np.argmin(cost))
            self.offset += float(cost[best])
            self._remove(node, np.array(best), [])
        elif len(others) == 1:
            table = cost[:, None] + matrices[0]
            self.costs[others[0]] = self.costs[others[0]] + table.min(axis=0)
            self._remove(node, np.argmin(table, axis=0), others)
            self._touch(others[0])
        else:
            left, right = matrices[0].T + cost, matrices[1]
            best = np.empty((left.shape[0], right.shape[1]), dtype=np.int64)
            value = np.empty(best.shape)
            for row in range(len(left)):
                table = left[row][:, None] + right
                best[row] = np.argmin(table, axis=0)
                value[row] = table[best[row], np.arange(table.shape[1])]
            self._remove(node, best, others)
            self._connect(others[0], others[1], self.pool.add(value))

    def _drop_dominated(self, node: int) -> None:
        """Leaves out labels that another label can replace at no more cost and no more memory, whatever the
        neighbours do.
        """
        cost = self.costs[node]
        keys = list(self.neighbours[node].values())
        if sum(len(cost) ** 2 * self.pool.arrays[key].shape[1] for key in keys) > LARGEST_COMPARISON:
            return
        worse = cost[None, :] - cost[:, None]  # [a, b]: what b costs more than a
        for key in keys:
            worse = worse + self.pool.fact("regret", _regret, key)
        replaces = worse <= 0
        for _, _, key in self.rows[node]:
            if not replaces.any():
                break
            amounts = self.pool.arrays[key]
            replaces &= amounts[None, :] <= amounts[:, None]
        order = np.arange(len(cost))
        # Of two labels that replace each other the first stays.
        replaces &= ~replaces.T | (order[None, :] < order[:, None])
        np.fill_diagonal(replaces, False)
        keep = ~replaces.any(axis=1)
        if not keep.all():
            self._restrict(node, np.flatnonzero(keep))

    # Memory -----------------------------------------------------------------------------------------------------------

    def _compress(self) -> bool:
        """Shrinks the memory rows; whether a node lost its last one and can now be simplified further."""
        if not len(self.capacity):
            return False
        taken = np.zeros(len(self.capacity) + 1)
        for start, stop, amount in self.fixed_rows:
            taken[start] += amount
            taken[stop] -= amount
        self.fixed_rows = []
        rows = {
            node: [(a, b, self.pool.arrays[key]) for a, b, key in items]
            for node, items in enumerate(self.rows)
            if items and self.alive[node]
        }
        usage = compressed(rows, self.capacity - np.cumsum(taken)[:-1])
        if (usage.capacity < 0).any():
            raise Infeasible
        self.capacity = usage.capacity
        freed = False
        for node in rows:
            items = usage.segments.get(node)
            self.rows[node] = (
                [] if items is None else [(a, b, self.pool.add(amounts)) for a, b, amounts in zip(*items, strict=True)]
            )
            if items is None:
                freed = True
                self._touch(node)
        return freed

    def _core(self) -> Core:
        nodes = [node for node, alive in enumerate(self.alive) if alive]
        position = {node: index for index, node in enumerate(nodes)}
        edges = [(position[i], position[j], key) for i in nodes for j, key in self.neighbours[i].items() if i < j]
        segments = {}
        for node in nodes:
            if self.rows[node]:
                start, stop, keys = zip(*self.rows[node], strict=True)
                segments[position[node]] = (
                    np.array(start),
                    np.array(stop),
                    np.array([self.pool.arrays[key] for key in keys]),
                )
        return Core(
            costs=[self.costs[node] for node in nodes],
            edges=[(i, j) for i, j, _ in edges],
            matrices=[self.pool.arrays[key] for _, _, key in edges],
            usage=Usage(self.capacity, segments) if segments else None,
            offset=self.offset,
            nodes=np.array(nodes, dtype=np.int64),
            names=[self._name(node) for node in nodes],
            steps=self.steps,
            total=len(self.alive),
        )
