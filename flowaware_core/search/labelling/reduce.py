"""Exact reductions: a smaller problem with the same optimum, and the way back.

Without a memory limit everything below keeps the optimum; with one, a node is only removed where that cannot change
which labellings fit: nodes fixed by a neighbour take their usage along, and nodes with usage are never eliminated by
cost alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flowaware_core.search.labelling.choices import Alone, Beside, Between, Choice, Following, Step
from flowaware_core.search.labelling.core import Core
from flowaware_core.search.labelling.matrices import Key, Pool
from flowaware_core.search.labelling.usage import Usage, compressed, grouped

LARGEST_COMPARISON = 1_500_000  # label x label x label entries above which dominance is not looked for
# The same where memory has no limit: message passing leaves such labels out sooner.
LARGEST_UNLIMITED = 10_000
# Label x label x label entries above which a node between two others stays: taking it out costs as much as some dozens of sweeps
# over its edges, and spares the messages two hops.
LARGEST_ELIMINATION = 4_000_000

WORTHWHILE = 0.97  # part of the labels left after a round above which no further round is made


class Infeasible(Exception):
    """Every label of some node is forbidden."""


@dataclasses.dataclass(frozen=True, eq=False)
class Reduction:
    """A smaller core and the way back.

    Attributes:
        core: what is left; all node costs finite.
        nodes: for each of its nodes the number in the original core.
        names: for each of its nodes the original labels of its labels, ascending.
        steps: what was taken out, in that order.
        sizes: labels of every node of the original core.
    """

    core: Core
    nodes: list[int]
    names: list[np.ndarray]
    steps: list[Step]
    sizes: list[int]

    def restore(self, labels: np.ndarray) -> np.ndarray:
        """Labels of the original core from labels of the smaller one."""
        result = np.zeros(len(self.sizes), dtype=np.int64)
        for node, names, label in zip(self.nodes, self.names, labels, strict=True):
            result[node] = names[label]
        for step in reversed(self.steps):
            given = (int(np.searchsorted(known, result[parent])) for parent, known in step.parents)
            result[step.node] = step.names[step.choice.label(*given)]
        return result

    def excess(self, known: Sequence[np.ndarray], most: float) -> list[np.ndarray]:
        """By how much every labelling with a certain label of the original core is above a bound of the smaller one, at least.

        Args:
            known: that of the labels of the smaller core.
            most: from where on it may be inf. A core without what is dominated has no say in that: see `reduced`.
        """
        found = [np.full(size, np.inf) for size in self.sizes]
        for node, names, values in zip(self.nodes, self.names, known, strict=True):
            found[node][names] = values
        for step in reversed(self.steps):
            given = (found[parent][names] for parent, names in step.parents)
            found[step.node][step.names] = step.choice.excess(*given, most=most)
        return found


def reduced(core: Core, dominated: bool = True) -> Reduction:
    """A core with the same optimum.

    Args:
        core: what shall become smaller.
        dominated: whether labels are left out that another can replace at no more cost.

    Raises:
        Infeasible: forbidden choices or memory leave nothing to choose.
    """
    return _Reducer(core).run(dominated)


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
    result, differences = np.empty((len(matrix), len(matrix))), np.empty(matrix.shape)
    finite = np.isfinite(matrix)
    everywhere = finite.all()
    for row in range(len(matrix)):
        with np.errstate(invalid="ignore"):
            np.subtract(matrix, matrix[row], out=differences)
        if not everywhere:
            differences[:, ~finite[row]] = -np.inf
        np.maximum.reduce(differences, axis=1, out=result[row])
    return result


def _through(cost: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """[a, b] = the least of cost[k] + left[k, a] + right[k, b]."""
    before = left.T + cost
    found, sums = np.empty((left.shape[1], right.shape[1])), np.empty(right.shape)
    for row, costs in enumerate(before):
        np.minimum.reduce(np.add(costs[:, None], right, out=sums), out=found[row])
    return found


def _banded(nodes: Sequence[int], neighbours: Sequence[Mapping[int, Any]]) -> list[int]:
    """The nodes in an order in which neighbours stand close to each other.

    A pass of messages then carries what it learns far: with them in another order several times as many passes are needed.
    Reference: Cuthill and McKee, Reducing the bandwidth of sparse symmetric matrices, 1969.
    """
    found: list[int] = []
    seen: set[int] = set()
    for node in nodes:
        if node not in seen:
            far = _spread(_spread(node, neighbours)[-1], neighbours)
            found += far
            seen.update(far)
    return found


def _spread(start: int, neighbours: Sequence[Mapping[int, Any]]) -> list[int]:
    """What hangs together with a node, the nearest first; of the equally near those behind the same one, few neighbours first."""
    found, seen = [start], {start}
    for node in found:  # which grows on the way
        new = sorted(
            (other for other in neighbours[node] if other not in seen), key=lambda one: (len(neighbours[one]), one)
        )
        found += new
        seen.update(new)
    return found


class _Reducer:
    def __init__(self, core: Core) -> None:
        count = len(core.costs)
        self.sizes = core.sizes
        self.pool = Pool()
        self.costs = list(core.costs)
        self.names = [self.pool.add(np.arange(len(cost))) for cost in self.costs]
        self.neighbours: list[dict[int, Key]] = [{} for _ in self.costs]
        # Neighbours whose matrix is new since the node was looked at: of thousands around a trunk, the few that matter.
        self.new: list[dict[int, None]] = [{} for _ in self.costs]
        self.rows: list[list[tuple[np.ndarray, np.ndarray, np.ndarray]]] = [[] for _ in self.costs]
        self.fixed_rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.usage = core.usage
        self.alive = [True] * count
        self.steps: list[Step] = []
        self.offset = core.offset
        self.queue: deque[int] = deque(range(count))
        self.queued = [True] * count
        self.changed = set(range(count))
        if core.usage is not None:
            self._share_out(core.usage)
        for (i, j), matrix in zip(core.edges, core.matrices, strict=True):
            if i == j:
                self.costs[i] = self.costs[i] + np.diagonal(matrix)
            else:
                self._connect(i, j, self.pool.add_shared(matrix))

    def run(self, dominated: bool) -> Reduction:
        size = np.inf
        while True:
            self._settle()
            self._compress()
            self._settle()
            for node in sorted(self.changed) if dominated else ():
                if self.alive[node]:
                    self._drop_dominated(node)
            self.changed.clear()
            self._settle()
            before, size = size, sum(len(cost) for cost, alive in zip(self.costs, self.alive, strict=True) if alive)
            if not self.changed or size > WORTHWHILE * before:
                return self._result()

    def _settle(self) -> None:
        """Simplifies until no node changes."""
        while self.queue:
            node = self.queue.popleft()
            self.queued[node] = False
            if self.alive[node]:
                self._simplify(node)

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
            if old is not None:
                self._disconnect(i, j)
        else:
            self.neighbours[i][j] = key
            self.neighbours[j][i] = self.pool.transpose(key)
            self.new[i][j] = self.new[j][i] = None
        self._touch(i)
        self._touch(j)

    def _restrict(self, node: int, keep: np.ndarray) -> None:
        """Keeps only some labels of a node."""
        if not len(keep):
            raise Infeasible
        pick = self.pool.add(keep)
        self.costs[node] = self.costs[node][keep]
        self.names[node] = self.pool.derive("rows", _take_rows, self.names[node], pick)
        self.rows[node] = [(start, stop, amounts[:, keep]) for start, stop, amounts in self.rows[node]]
        for other, key in list(self.neighbours[node].items()):
            self._disconnect(node, other)
            self._connect(node, other, self.pool.derive("rows", _take_rows, key, pick))
        self._touch(node)

    def _disconnect(self, i: int, j: int) -> None:
        del self.neighbours[i][j], self.neighbours[j][i]
        self.new[i].pop(j, None)
        self.new[j].pop(i, None)

    def _name(self, node: int) -> np.ndarray:
        return self.pool.arrays[self.names[node]]

    def _remove(self, node: int, choice: Choice, parents: list[int]) -> None:
        """Takes a node out, which chooses among its labels now by the labels of the parents."""
        known = [(parent, self._name(parent)) for parent in parents]
        self.steps.append(Step(node, self._name(node), choice, known))
        self.alive[node] = False

    # One node ---------------------------------------------------------------------------------------------------------

    def _simplify(self, node: int) -> None:
        finite = np.isfinite(self.costs[node])
        if not finite.all():
            self._restrict(node, np.flatnonzero(finite))
            return
        around = [(other, self.neighbours[node][other]) for other in self.new[node]]
        for _, key in around:
            keep = self.pool.fact("supported", _supported, key)
            if keep is not None:
                self._restrict(node, keep)
                return
        if len(self.costs[node]) == 1:
            self._fix(node)
            return
        for other, key in around:
            choice = self.pool.fact("decided", _decided, self.pool.transpose(key))
            if choice is None:
                continue
            back = self.pool.fact("decided", _decided, key)
            if back is not None and self._weight(node) > self._weight(other):
                self._merge(other, node, back)
            else:
                self._merge(node, other, choice)
            return
        self.new[node].clear()
        if len(self.neighbours[node]) <= 2 and not self.rows[node]:
            others = self.neighbours[node]
            entries = len(self.costs[node]) * math.prod(len(self.costs[other]) for other in others)
            if len(others) < 2 or entries <= LARGEST_ELIMINATION:
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
        self.fixed_rows += self.rows[node]
        self.rows[node] = []
        self._remove(node, Alone(np.zeros(1)), [])

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
        self.rows[other] += [(start, stop, amounts[:, choice]) for start, stop, amounts in self.rows[node]]
        self.rows[node] = []
        self._remove(node, Following(choice, len(self.costs[node])), [other])
        self._touch(other)

    def _eliminate(self, node: int) -> None:
        """Min-plus elimination of a node with at most two neighbours and no memory."""
        others = list(self.neighbours[node])
        keys = [self.neighbours[node][other] for other in others]
        matrices = [self.pool.arrays[key] for key in keys]
        cost = self.costs[node]
        for other in others:
            self._disconnect(node, other)
        if not others:
            self.offset += float(cost.min())
            self._remove(node, Alone(cost), [])
        elif len(others) == 1:
            table = cost[:, None] + matrices[0]
            self.costs[others[0]] = self.costs[others[0]] + table.min(axis=0)
            self._remove(node, Beside(table), others)
            self._touch(others[0])
        else:
            through = self.pool.derive("through", _through, self.pool.add(cost), *keys)
            self._remove(node, Between(matrices[0].T + cost, matrices[1]), others)
            self._connect(others[0], others[1], through)

    def _drop_dominated(self, node: int) -> None:
        """Leaves out labels that another label can replace at no more cost and no more memory, whatever the
        neighbours do.
        """
        cost = self.costs[node]
        keys = list(self.neighbours[node].values())
        most = LARGEST_COMPARISON if self.usage else LARGEST_UNLIMITED
        if sum(len(cost) ** 2 * self.pool.arrays[key].shape[1] for key in keys) > most:
            return
        worse = cost[None, :] - cost[:, None]  # [a, b]: what b costs more than a
        for key in keys:
            worse = worse + self.pool.fact("regret", _regret, key)
        replaces = worse <= 0
        for _, _, amounts in self.rows[node]:
            if not replaces.any():
                break
            replaces &= (amounts[:, None, :] <= amounts[:, :, None]).all(axis=0)
        order = np.arange(len(cost))
        # Of two labels that replace each other the first stays.
        replaces &= ~replaces.T | (order[None, :] < order[:, None])
        np.fill_diagonal(replaces, False)
        keep = ~replaces.any(axis=1)
        if not keep.all():
            self._restrict(node, np.flatnonzero(keep))

    # Memory -----------------------------------------------------------------------------------------------------------

    def _share_out(self, usage: Usage) -> None:
        """Gives every node its rows."""
        for group in usage.groups:
            order = np.argsort(group.node, kind="stable")
            node = group.node[order]
            cuts = np.concatenate([[0], np.flatnonzero(np.diff(node)) + 1, [len(node)]])
            columns = [array[order] for array in (group.start, group.stop, group.amounts)]
            for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                self.rows[node[first]].append(tuple(column[first:last] for column in columns))

    def _compress(self) -> None:
        """Shrinks the memory rows; nodes that lose their last one can be simplified further."""
        if self.usage is None:
            return
        owners = [node for node, rows in enumerate(self.rows) if rows]
        usage = self._usage(lambda node: node)
        self.usage = usage if usage.groups else None
        for node in owners:
            self.rows[node] = []
        self._share_out(usage)
        for node, label in usage.oversized():
            self.costs[node] = np.where(np.arange(len(self.costs[node])) == label, np.inf, self.costs[node])
            self._touch(node)
        for node in owners:
            if not self.rows[node]:
                self._touch(node)

    def _usage(self, number: Callable[[int], int]) -> Usage:
        """The memory of the remaining nodes, compressed, under new node numbers."""
        assert self.usage is not None
        taken = np.zeros(len(self.usage.capacity) + 1)
        for start, stop, amounts in self.fixed_rows:
            np.add.at(taken, start, amounts[:, 0])
            np.subtract.at(taken, stop, amounts[:, 0])
        self.fixed_rows = []
        groups = grouped((number(node), *rows) for node, items in enumerate(self.rows) for rows in items)
        capacity = self.usage.capacity - np.cumsum(taken)[:-1]
        usage = compressed(dataclasses.replace(self.usage, capacity=capacity, groups=groups))
        if (usage.capacity < -usage.tolerance).any():
            raise Infeasible
        return usage

    def _result(self) -> Reduction:
        nodes = _banded([node for node, alive in enumerate(self.alive) if alive], self.neighbours)
        position = {node: index for index, node in enumerate(nodes)}
        edges = [
            (position[i], position[j], key)
            for i in nodes
            for j, key in self.neighbours[i].items()
            if position[i] < position[j]
        ]
        usage = self._usage(position.__getitem__) if self.usage is not None else None
        core = Core(
            costs=[self.costs[node] for node in nodes],
            edges=[(i, j) for i, j, _ in edges],
            matrices=[self.pool.arrays[key] for _, _, key in edges],
            usage=usage if usage and usage.groups else None,
            offset=self.offset,
        )
        return Reduction(core, nodes, [self._name(node) for node in nodes], self.steps, self.sizes)
