"""From any labelling to a good one that fits: free memory where it is cheapest, then take every improvement that
fits.
"""

from __future__ import annotations

import numpy as np

from flowaware_core.search.labelling.flat import Graph, Rows

ROUNDS = 50
BLOCK = 64  # moments whose least room is kept together


class Local:
    """Repair and descent on one core."""

    def __init__(self, graph: Graph, rows: Rows) -> None:
        self.graph, self.rows = graph, rows
        self._room = np.empty(len(rows.capacity))
        self._blocks = np.empty(-(-len(rows.capacity) // BLOCK))

    def improved(self, labels: np.ndarray) -> tuple[np.ndarray, float, float]:
        """A labelling near the given one, its cost without the offset of the core, and its excess of memory (at most
        0 = it fits).
        """
        from flowaware_core.search.labelling import kernels

        labels = labels.copy()
        kernels.measure(self.graph, self.rows, labels, self._room, self._blocks)
        if kernels.repair(self.graph, self.rows, labels, self._room, self._blocks, 4 * len(labels)):
            kernels.descend(self.graph, self.rows, labels, self._room, self._blocks, ROUNDS)
        cost = kernels.measure(self.graph, self.rows, labels, self._room, self._blocks)
        return labels, cost, float(-self._room.min(initial=np.inf))
