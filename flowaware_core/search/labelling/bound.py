"""Lower bounds: message passing for the labels, prices for the memory, raised together.

With prices p >= 0 on the moments every labelling that fits costs at least cost + p . (usage - capacity), so the least
of
that over all labellings is a lower bound. Message passing bounds that least from below, and its labellings say where
memory is too full: there the price rises, by a step that would take the bound up to a level if it were linear.
References: Kolmogorov, Convergent Tree-Reweighted Message Passing for Energy Minimization, 2006; Goffin and Kiwiel,
Convergence of a Simple Subgradient Level Method, 1999.
"""

from __future__ import annotations

import numpy as np

from flowaware_core.search.labelling import flat, plain
from flowaware_core.search.labelling.core import Core
from flowaware_core.search.labelling.flat import Graph
from flowaware_core.search.labelling.local import BLOCK, Local

WARM_UP = 10  # sweeps before the first price
FIRST_LEVEL = 0.2  # of the cost: how far over the bound the first level is
PATIENCE = 4  # steps without half the way to the level after which it comes down
LOWER, HIGHER = 0.6, 1.2  # what the distance to the level becomes after a failure, after a success
DONE = 1e-3  # of the gap: the level's distance at which the prices are as good as they get
ROUNDS = 50  # of descent
STILL = 1e-6  # of the cost: rise of the bound in PATIENCE sweeps below which it stands still where there are no prices


class Dual:
    """Messages and prices of one core, and the best bound they have proven.

    Attributes:
        bound: the best lower bound so far, without the offset of the core.
        labels: the labelling of the last sweep.
        prices, messages: those of the best bound.
        done: whether further steps are not worth their time.
    """

    def __init__(self, core: Core) -> None:
        graph, rows = flat.graph(core), flat.rows(core)
        sizes = np.diff(graph.offset)
        self.core, self.graph, self.rows = core, graph, rows
        self.labels = np.zeros(len(sizes), dtype=np.int64)
        self.bound = -np.inf
        self.prices = np.zeros(len(rows.capacity))
        self.messages = np.zeros(int(np.repeat(sizes, np.diff(graph.first)).sum()))
        self.done = False
        self._now_prices, self._now_messages = self.prices.copy(), self.messages.copy()
        self._costs = np.empty_like(graph.cost)
        self._room = np.empty(len(rows.capacity))
        self._blocks = np.empty(-(-len(rows.capacity) // BLOCK))
        small = not len(rows.capacity) and len(graph.other) <= plain.MOST_HALVES
        self.passes = plain.Passes(graph, core) if small else None
        self._visits = 0
        self._distance = 0.0  # from the best bound to the level
        self._mark, self._tries = -np.inf, 0
        self._last = -np.inf
        for _ in range(WARM_UP if len(rows.capacity) else 1):
            self._sweep()

    def advance(self, cost: float) -> None:
        """One step.

        Args:
            cost: that of the best labelling known, without the offset of the core; inf = none.
        """
        if not len(self.prices):
            self._sweep()
            self._stand_still()
            return
        if self._distance == 0.0:
            self._distance = self._first_distance(cost)
            self._mark = self.bound
        excess = np.where((self._now_prices <= 0.0) & (self._room > 0.0), 0.0, -self._room)
        square = float(excess @ excess)
        if square > 0.0:
            length = max(min(self.bound + self._distance, cost) - self._last, 0.0) / square
            np.maximum(self._now_prices + length * excess, 0.0, out=self._now_prices)
        self._sweep()
        self._tries += 1
        if self.bound > self._mark + 0.5 * self._distance:
            self._mark, self._tries = self.bound, 0
            self._distance *= HIGHER
        elif self._tries > PATIENCE:
            self._mark, self._tries = self.bound, 0
            self._distance *= LOWER
            self._now_prices[:], self._now_messages[:] = self.prices, self.messages
            self._sweep()
            known = cost - self.bound if np.isfinite(cost) else abs(self.bound + self.core.offset)
            self.done = self._distance <= DONE * known

    def improved(self) -> tuple[np.ndarray, float, float]:
        """A labelling near that of the last sweep, its cost without the offset of the core, and its excess of memory (at most 0 =
        it fits).
        """
        if self.passes is None:
            return Local(self._filled(), self.rows).improved(self.labels)
        labels = self.labels.copy()
        self.passes.descend(labels, ROUNDS)
        return labels, self.passes.cost(labels), 0.0

    def backward(self, costs: np.ndarray, messages: np.ndarray, labels: np.ndarray) -> float:
        """One backward sweep with given node costs and messages."""
        if self.passes is not None:
            return self.passes.sweep(costs, messages, labels, False)
        from flowaware_core.search.labelling import kernels

        return kernels.sweep(self._filled(), costs, messages, labels, False)

    def node_costs(self) -> np.ndarray:
        """Node costs under the prices of the best bound."""
        costs = self.graph.cost.copy()
        if len(self.prices):
            from flowaware_core.search.labelling import kernels

            kernels.priced(self.graph, self.rows, self.prices, costs)
        return costs

    def _sweep(self) -> None:
        if self.passes is not None:
            self.passes.sweep(self.graph.cost, self._now_messages, self.labels, True)
            self._last = self.passes.sweep(self.graph.cost, self._now_messages, self.labels, False)
            self._visits += 2 * len(self.graph.other)
            if self._visits > plain.MOST_VISITS:
                self.passes = None
        else:
            from flowaware_core.search.labelling import kernels

            graph = self._filled()
            kernels.priced(graph, self.rows, self._now_prices, self._costs)
            kernels.sweep(graph, self._costs, self._now_messages, self.labels, True)
            bound = kernels.sweep(graph, self._costs, self._now_messages, self.labels, False)
            self._last = bound - float(self._now_prices @ self.rows.capacity)
            kernels.measure(graph, self.rows, self.labels, self._room, self._blocks)
        if self._last > self.bound:
            self.bound = self._last
            self.prices[:], self.messages[:] = self._now_prices, self._now_messages

    def _filled(self) -> Graph:
        """The graph with its matrices, as compiled loops want it."""
        if len(self.graph.other) and not len(self.graph.table):
            self.graph = flat.filled(self.graph, self.core)
        return self.graph

    def _first_distance(self, cost: float) -> float:
        distance = FIRST_LEVEL * abs(self.bound + self.core.offset)
        if np.isfinite(cost):
            distance = min(distance, 0.5 * (cost - self.bound)) or 0.5 * (cost - self.bound)
        return distance or 1e-3 * float(self.graph.table.max(initial=0.0) + np.abs(self.graph.cost).max(initial=1.0))

    def _stand_still(self) -> None:
        self._tries += 1
        if self._tries > PATIENCE:
            self.done = self.bound <= self._mark + STILL * abs(self.bound + self.core.offset)
            self._mark, self._tries = self.bound, 0
