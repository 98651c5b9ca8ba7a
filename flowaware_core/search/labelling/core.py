"""The inner form of a problem: what the reductions shrink and the searches label."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from flowaware_core.search.labelling.problem import Problem
from flowaware_core.search.labelling.usage import Usage, grouped


@dataclasses.dataclass(frozen=True)
class Core:
    """Nodes, edges and memory of a labelling problem.

    Attributes:
        costs: node cost vectors; inf = forbidden.
        edges, matrices: as in Problem. After a reduction no parallel edges, i < j, and equal matrices are one object.
        usage: the memory limit; None = it cannot bind.
        offset: cost of what is decided already.
    """

    costs: list[np.ndarray]
    edges: list[tuple[int, int]]
    matrices: list[np.ndarray]
    usage: Usage | None = None
    offset: float = 0.0

    @property
    def sizes(self) -> list[int]:
        return [len(cost) for cost in self.costs]

    @functools.cached_property
    def entries(self) -> int:
        """Allowed label pairs of all edges and labels of all nodes."""
        allowed: dict[int, int] = {}
        for array in (*self.costs, *self.matrices):
            if id(array) not in allowed:
                allowed[id(array)] = int(np.isfinite(array).sum())
        return sum(allowed[id(array)] for array in (*self.costs, *self.matrices))

    def cost(self, labels: np.ndarray) -> float:
        total = self.offset + sum(float(cost[label]) for cost, label in zip(self.costs, labels, strict=True))
        for (i, j), matrix in zip(self.edges, self.matrices, strict=True):
            total += float(matrix[labels[i], labels[j]])
        return total


def as_core(problem: Problem, with_memory: bool = True) -> Core:
    """A problem as a core of the same nodes; without memory, as if there were no limit."""
    usage = None
    if with_memory and problem.limit is not None and problem.usage:
        moments = max(stop for _, _, stop, _ in problem.usage)
        rows = (
            (node, np.array([start]), np.array([stop]), np.asarray(amounts, dtype=np.float64)[None, :])
            for node, start, stop, amounts in problem.usage
            if stop > start
        )
        capacity = np.full(moments, float(problem.limit))
        usage = Usage(capacity, grouped(rows), np.arange(moments), problem.rounding)
    costs = [np.asarray(cost, dtype=np.float64) for cost in problem.node_costs]
    return Core(costs, list(problem.edges), list(problem.edge_costs), usage)
