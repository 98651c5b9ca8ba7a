"""The labelling problem: numbers in, labels out. Nothing here knows what a label means."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

Rows = tuple[tuple[int, int, int, np.ndarray], ...]


@dataclasses.dataclass(frozen=True)
class Problem:
    """Choose one label per node so that node costs plus edge costs are least and memory stays under a limit at every
    moment.

    Attributes:
        node_costs: one vector per node, cost of each of its labels; inf = forbidden.
        edges: pairs (i, j) of nodes. Parallel edges add up; (i, i) counts the diagonal of its matrix.
        edge_costs: one matrix per edge, [labels of i, labels of j]; inf = forbidden pair. Arrays may be shared
        objects between
            edges: equal work is then done once.
        usage: rows (node, start, stop, bytes per label): what the node's label occupies during the moments [start,
        stop).
            A node may have several rows or none.
        limit: bytes that the sum over all rows may reach at any moment; None = unlimited.
    """

    node_costs: tuple[np.ndarray, ...]
    edges: tuple[tuple[int, int], ...] = ()
    edge_costs: tuple[np.ndarray, ...] = ()
    usage: Rows = ()
    limit: float | None = None

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.edge_costs):
            raise ValueError(
                f"{len(self.edges)} edges but {len(self.edge_costs)} edge cost matrices; give one matrix per edge"
            )
        sizes = [len(costs) for costs in self.node_costs]
        if 0 in sizes:
            raise ValueError(f"node {sizes.index(0)} has no labels; every node needs at least one")
        for (i, j), costs in zip(self.edges, self.edge_costs, strict=True):
            if not (0 <= i < len(sizes) and 0 <= j < len(sizes)) or costs.shape != (sizes[i], sizes[j]):
                raise ValueError(
                    f"edge ({i}, {j}) has a matrix of shape {costs.shape}; it must be [labels of i, labels of j]"
                )
        for node, start, stop, amounts in self.usage:
            if not 0 <= node < len(sizes) or len(amounts) != sizes[node] or start < 0:
                raise ValueError(
                    f"usage row (node={node}, start={start}, stop={stop}) has {len(amounts)} amounts; "
                    "it must name a node, start at 0 or later and give one amount per label"
                )

    def cost(self, labels: np.ndarray) -> float:
        """Sum of the node and edge costs of a labelling; inf where it takes a forbidden label or pair."""
        total = sum(float(costs[label]) for costs, label in zip(self.node_costs, labels, strict=True))
        for (i, j), costs in zip(self.edges, self.edge_costs, strict=True):
            total += float(costs[labels[i], labels[j]])
        return total

    def peak(self, labels: np.ndarray) -> float:
        """Bytes in use at the fullest moment of a labelling."""
        if not self.usage:
            return 0.0
        level = np.zeros(max(stop for _, _, stop, _ in self.usage) + 1)
        for node, start, stop, amounts in self.usage:
            if stop > start:
                level[start] += amounts[labels[node]]
                level[stop] -= amounts[labels[node]]
        return float(np.cumsum(level).max(initial=0.0))

    @property
    def rounding(self) -> float:
        """Bytes by which a sum of bytes may be over the limit: less than one byte for any limit under a terabyte."""
        return 1e-12 * abs(self.limit or 0.0)

    def fits(self, peak: float) -> bool:
        """Whether a peak is under the limit."""
        return self.limit is None or peak <= self.limit + self.rounding


@dataclasses.dataclass(frozen=True)
class Solution:
    """A labelling, what it costs, and how much better any other could be.

    Attributes:
        labels: one label per node.
        cost: its node plus edge costs.
        lower_bound: no labelling that respects the memory limit costs less.
        feasible: finite cost and memory under the limit at every moment.
        peak: bytes in use at the fullest moment.
        seconds: wall-clock time it took.
    """

    labels: np.ndarray
    cost: float
    lower_bound: float
    feasible: bool
    peak: float
    seconds: float

    @property
    def gap(self) -> float:
        """How far the cost can be from the best, as a fraction of the cost; 0 = optimal, inf = nothing known."""
        if not self.feasible or not np.isfinite(self.lower_bound):
            return float("inf")
        return (
            max(0.0, self.cost - self.lower_bound) / max(abs(self.cost), 1e-300)
            if self.cost > self.lower_bound
            else 0.0
        )


def checked_seeds(problem: Problem, seeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The seeds as integer arrays; a seed that is not one valid label per node is a ValueError."""
    sizes = np.array([len(costs) for costs in problem.node_costs], dtype=np.int64)
    result = []
    for number, seed in enumerate(seeds):
        labels = np.asarray(seed, dtype=np.int64)
        if labels.shape != sizes.shape or (labels < 0).any() or (labels >= sizes).any():
            raise ValueError(
                f"seed {number} has shape {labels.shape}; a seed is one label in range for each of {len(sizes)} nodes"
            )
        result.append(labels)
    return result
