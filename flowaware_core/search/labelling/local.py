"""Local search over single labels that never leaves what fits in memory, and the way into it."""

from __future__ import annotations

import numpy as np

from flowaware_core.search.labelling.reduce import Core


class Local:
    """One labelling of a core, changed a node at a time, with the cost of every change known."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.links: list[list[tuple[int, np.ndarray]]] = [[] for _ in core.costs]  # (other, [labels of other, mine])
        for (i, j), matrix in zip(core.edges, core.matrices, strict=True):
            self.links[i].append((j, np.ascontiguousarray(matrix.T)))
            self.links[j].append((i, np.ascontiguousarray(matrix)))
        self.segments = core.usage.segments if core.usage else {}
        self.capacity = core.usage.capacity if core.usage else np.zeros(0)

    def start(self, labels: np.ndarray) -> None:
        self.labels = labels.copy()
        self.given = [self._given(node) for node in range(len(labels))]
        self.slack = self.capacity - self.core.usage.level(labels) if self.core.usage else self.capacity

    def _given(self, node: int) -> np.ndarray:
        total = self.core.costs[node].copy()
        for other, matrix in self.links[node]:
            total += matrix[self.labels[other]]
        return total

    def cost(self) -> float:
        total = sum(float(costs[label]) for costs, label in zip(self.core.costs, self.labels, strict=True))
        for (i, j), matrix in zip(self.core.edges, self.core.matrices, strict=True):
            total += float(matrix[self.labels[i], self.labels[j]])
        return total

    def excess(self) -> float:
        return float(-self.slack.min(initial=0.0))

    def move(self, node: int, label: int) -> None:
        old = self.labels[node]
        self.labels[node] = label
        for other, _ in self.links[node]:
            self.given[other] = self._given(other)
        segment = self.segments.get(node)
        if segment is not None:
            for start, stop, amounts in zip(*segment, strict=True):
                self.slack[start:stop] -= amounts[label] - amounts[old]

    def fitting(self, node: int) -> np.ndarray:
        """Which labels of a node keep every moment that fits fitting, and make no other moment worse."""
        segment = self.segments.get(node)
        if segment is None:
            return np.ones(len(self.core.costs[node]), dtype=bool)
        start, stop, amounts = segment
        padded = np.append(self.slack, 0.0)
        room = np.minimum.reduceat(padded, np.ravel(np.column_stack([start, stop])))[::2]
        growth = amounts - amounts[:, self.labels[node]][:, None]
        return (growth <= np.maximum(room, 0.0)[:, None]).all(axis=0)

    def descend(self, rounds: int) -> None:
        """Takes the best fitting label of each node in turn until nothing improves."""
        for _ in range(rounds):
            improved = False
            for node in range(len(self.labels)):
                given = self.given[node]
                now = given[self.labels[node]]
                if given.min() >= now:
                    continue
                allowed = np.where(self.fitting(node), given, np.inf)
                best = int(np.argmin(allowed))
                if allowed[best] < now:
                    self.move(node, best)
                    improved = True
            if not improved:
                return

    def repair(self, moves: int) -> bool:
        """Frees memory at the fullest moments by the moves that cost least per byte; whether everything fits in the
        end.
        """
        for _ in range(moves):
            over = np.maximum(-self.slack, 0.0)
            total = over.sum()
            if total <= 0:
                return True
            best = (np.inf, -1, -1)
            for node, (start, stop, amounts) in self.segments.items():
                label = self.labels[node]
                gain = np.zeros(amounts.shape[1])
                for first, last, amount in zip(start, stop, amounts, strict=True):
                    piece = self.slack[first:last]
                    if piece.min() >= 0 and amount.max() - amount[label] <= piece.min():
                        continue
                    changed = np.maximum(amount[None, :] - amount[label] - piece[:, None], 0.0).sum(axis=0)
                    gain += np.maximum(-piece, 0.0).sum() - changed
                extra = self.given[node] - self.given[node][label]
                with np.errstate(divide="ignore", invalid="ignore"):
                    price = np.where(gain > 1e-9 * total, np.where(extra > 0, extra / gain, extra * gain), np.inf)
                candidate = int(np.argmin(price))
                if price[candidate] < best[0]:
                    best = (price[candidate], node, candidate)
            if best[1] < 0:
                return False
            self.move(best[1], best[2])
        return bool((self.slack >= 0).all())
