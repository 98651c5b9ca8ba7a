"""Memory over time, made as small as it can be without changing which labellings fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np


@dataclasses.dataclass(frozen=True)
class Segments:
    """What the labels of nodes with equally many labels occupy.

    Attributes:
        node, start, stop: [segments] the node and its moments [start, stop); sorted by node, then start.
        amounts: [segments, labels].
    """

    node: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    amounts: np.ndarray

    def select(self, keep: np.ndarray) -> Segments:
        return Segments(self.node[keep], self.start[keep], self.stop[keep], self.amounts[keep])


@dataclasses.dataclass(frozen=True)
class Usage:
    """What each node's label occupies at each of a few moments, and how much room there is.

    Attributes:
        capacity: [moments] room left for the segments; what every labelling occupies is already taken off.
        groups: segments by number of labels; after `compressed` those of one node are disjoint and have a label that
            occupies nothing.
        moments: [moments] their numbers in the problem this came from.
        tolerance: by how much rounding may take a labelling over the capacity.
    """

    capacity: np.ndarray
    groups: tuple[Segments, ...]
    moments: np.ndarray
    tolerance: float = 0.0

    def level(self, labels: np.ndarray) -> np.ndarray:
        """[moments] what a labelling occupies."""
        change = np.zeros(len(self.capacity) + 1)
        for group in self.groups:
            amount = np.take_along_axis(group.amounts, labels[group.node][:, None], axis=1)[:, 0]
            _add(change, group.start, amount)
            _add(change, group.stop, -amount)
        return np.cumsum(change)[:-1]

    def oversized(self) -> Iterator[tuple[int, int]]:
        """(node, label) of the labels that do not fit even if every other node takes the least it can."""
        if not len(self.capacity):
            return
        padded = np.append(self.capacity, np.inf)
        for group in self.groups:
            room = np.minimum.reduceat(padded, np.ravel(np.column_stack([group.start, group.stop])))[::2]
            where, label = np.nonzero(group.amounts > room[:, None] + self.tolerance)
            yield from set(zip(group.node[where].tolist(), label.tolist(), strict=True))

    def excess(self, labels: np.ndarray) -> float:
        """How far a labelling is over the capacity at the worst moment; at most 0 = it fits."""
        return float((self.level(labels) - self.capacity).max(initial=0.0))


def grouped(rows: Iterable[tuple[int, np.ndarray, np.ndarray, np.ndarray]]) -> tuple[Segments, ...]:
    """Segments from (node, starts, stops, amounts [rows, labels]), in any order."""
    by_size: dict[int, list] = {}
    for row in rows:
        by_size.setdefault(row[3].shape[1], []).append(row)
    groups = []
    for size in sorted(by_size):
        nodes, starts, stops, amounts = zip(*by_size[size], strict=True)
        counts = [len(start) for start in starts]
        groups.append(
            Segments(np.repeat(nodes, counts), np.concatenate(starts), np.concatenate(stops), np.concatenate(amounts))
        )
    return tuple(groups)


def compressed(usage: Usage) -> Usage:
    """The same limit with fewer moments and segments.

    Two exact steps, repeated: moments that fit whatever the labels are left out; so are moments that need, whatever
    the labels, no more room than a neighbouring one.
    """
    groups, capacity, moments = usage.groups, usage.capacity, usage.moments
    while True:
        before = len(capacity)
        groups, capacity = _normalised(groups, capacity)
        keep = _binding(groups, capacity + usage.tolerance)
        if keep.any():
            keep &= ~_dominated(groups, capacity)
        position = np.concatenate([[0], np.cumsum(keep)])
        capacity, moments = capacity[keep], moments[keep]
        moved = (dataclasses.replace(group, start=position[group.start], stop=position[group.stop]) for group in groups)
        groups = tuple(group.select(group.stop > group.start) for group in moved)
        if len(capacity) >= 0.98 * before:
            groups, capacity = _normalised(groups, capacity)
            return dataclasses.replace(usage, capacity=capacity, groups=groups, moments=moments)


def _add(total: np.ndarray, index: np.ndarray, amount: np.ndarray) -> None:
    total += np.bincount(index, amount, len(total))


def _changes(group: Segments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(node, moment, change of the amounts at that moment), one entry per node and moment, sorted."""
    node = np.concatenate([group.node, group.node])
    moment = np.concatenate([group.start, group.stop])
    order = np.lexsort((moment, node))
    node, moment = node[order], moment[order]
    first = np.flatnonzero(np.concatenate([[True], (np.diff(node) != 0) | (np.diff(moment) != 0)]))
    change = np.add.reduceat(np.concatenate([group.amounts, -group.amounts])[order], first, axis=0)
    return node[first], moment[first], change


def _normalised(groups: tuple[Segments, ...], capacity: np.ndarray) -> tuple[tuple[Segments, ...], np.ndarray]:
    """Disjoint segments per node with a least amount of 0 (the least goes off the capacity), none of them all zero."""
    taken = np.zeros(len(capacity) + 1)
    result = []
    for group in groups:
        group = group.select(group.stop > group.start)
        if not len(group.node):
            continue
        node, moment, change = _changes(group)
        amounts = np.cumsum(change, axis=0)
        # The amounts of a node add up to nothing after its last moment: what is left there is rounding.
        first = np.concatenate([[True], np.diff(node) != 0])
        before = np.where(first[:, None], np.concatenate([np.zeros((1, amounts.shape[1])), amounts[:-1]]), 0.0)
        amounts -= np.add.reduceat(before, np.flatnonzero(first), axis=0)[np.cumsum(first) - 1]
        inside = np.flatnonzero(np.concatenate([np.diff(node) == 0, [False]]))
        start, stop, amounts = moment[inside], moment[inside + 1], amounts[inside]
        least = amounts.min(axis=1)
        _add(taken, start, least)
        _add(taken, stop, -least)
        amounts = amounts - least[:, None]
        amounts[amounts <= 1e-12 * np.abs(change).max()] = 0.0
        result.append(Segments(node[inside], start, stop, amounts).select(amounts.any(axis=1)))
    return tuple(group for group in result if len(group.node)), capacity - np.cumsum(taken)[:-1]


def _binding(groups: tuple[Segments, ...], capacity: np.ndarray) -> np.ndarray:
    """Moments at which some choice of labels is over the capacity."""
    most = np.zeros(len(capacity) + 1)
    for group in groups:
        peak = group.amounts.max(axis=1)
        _add(most, group.start, peak)
        _add(most, group.stop, -peak)
    return np.cumsum(most)[:-1] > capacity


def _dominated(groups: tuple[Segments, ...], capacity: np.ndarray) -> np.ndarray:
    """Moments that need no more room than the next one, or than the previous one, whatever the labels."""
    least = np.zeros(len(capacity) + 1)
    most = np.zeros(len(capacity) + 1)
    for group in groups:
        _, moment, change = _changes(group)
        _add(least, moment, change.min(axis=1))
        _add(most, moment, change.max(axis=1))
    room = np.diff(capacity)
    # Step from moment t to t+1: usage grows by at least least[t+1], room by room[t].
    by_next = np.append(least[1 : len(capacity)] >= room, False)
    by_previous = np.insert((most[1 : len(capacity)] <= room) & ~by_next[:-1], 0, False)
    return by_next | by_previous
