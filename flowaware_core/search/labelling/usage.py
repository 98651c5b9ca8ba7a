"""Memory over time, made as small as it can be without changing which labellings fit."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Usage:
    """What each node's label occupies at each of a few moments, and how much room there is.

    Attributes:
        capacity: [moments] room left for the segments; what every labelling occupies is already taken off.
        segments: per node, (start, stop, amounts [segments, labels]): disjoint intervals [start, stop) in which the
        node occupies
            `amounts` of its label. At least one label of each segment occupies 0.
    """

    capacity: np.ndarray
    segments: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]

    def level(self, labels: np.ndarray) -> np.ndarray:
        """[moments] what a labelling occupies."""
        change = np.zeros(len(self.capacity) + 1)
        for node, (start, stop, amounts) in self.segments.items():
            np.add.at(change, start, amounts[:, labels[node]])
            np.subtract.at(change, stop, amounts[:, labels[node]])
        return np.cumsum(change)[:-1]

    def excess(self, labels: np.ndarray) -> float:
        """How far a labelling is over the capacity at the worst moment; at most 0 = it fits."""
        return float((self.level(labels) - self.capacity).max(initial=0.0))


def compressed(rows: dict[int, list[tuple[int, int, np.ndarray]]], capacity: np.ndarray) -> Usage:
    """The usage of rows (start, stop, bytes per label) per node against a capacity per moment.

    Two exact steps, repeated: moments that fit whatever the labels are left out; so are moments that need, label by
    label, no more room
    than a neighbouring one.
    """
    changes = {node: _changes(items, len(capacity)) for node, items in rows.items() if items}
    while True:
        before = len(capacity)
        segments, capacity = _normalised(changes, capacity)
        keep = _binding(segments, capacity)
        if keep.any():
            keep &= ~_dominated(segments, capacity)
        segments, capacity = _kept(segments, capacity, keep)
        if len(capacity) >= 0.98 * before:
            return Usage(capacity, segments)
        changes = {node: _edges(*segment) for node, segment in segments.items()}


def _changes(items: list[tuple[int, int, np.ndarray]], moments: int) -> tuple[np.ndarray, np.ndarray]:
    """(moment, change of the amounts at that moment), sorted, one entry per moment."""
    start = np.array([item[0] for item in items], dtype=np.int64)
    stop = np.minimum(np.array([item[1] for item in items], dtype=np.int64), moments)
    amounts = np.array([item[2] for item in items], dtype=np.float64)
    alive = stop > start
    return _edges(start[alive], stop[alive], amounts[alive])


def _edges(start: np.ndarray, stop: np.ndarray, amounts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    moments, where = np.unique(np.concatenate([start, stop]), return_inverse=True)
    change = np.zeros((len(moments), amounts.shape[1]))
    np.add.at(change, where, np.concatenate([amounts, -amounts]))
    return moments, change


def _normalised(changes, capacity):
    """Segments whose least amount is 0 (the least goes off the capacity), none of them all zero."""
    taken = np.zeros(len(capacity) + 1)
    segments = {}
    for node, (moments, change) in changes.items():
        if len(moments) < 2:
            continue
        amounts = np.cumsum(change, axis=0)[:-1]
        least = amounts.min(axis=1)
        np.add.at(taken, moments[:-1], least)
        np.subtract.at(taken, moments[1:], least)
        amounts = amounts - least[:, None]
        amounts[amounts < 1e-9 * np.abs(change).max()] = 0.0
        alive = amounts.any(axis=1)
        if alive.any():
            segments[node] = (moments[:-1][alive], moments[1:][alive], amounts[alive])
    return segments, capacity - np.cumsum(taken)[:-1]


def _binding(segments, capacity) -> np.ndarray:
    """Moments at which some choice of labels is over the capacity."""
    most = np.zeros(len(capacity) + 1)
    for start, stop, amounts in segments.values():
        peak = amounts.max(axis=1)
        np.add.at(most, start, peak)
        np.subtract.at(most, stop, peak)
    return np.cumsum(most)[:-1] > capacity


def _dominated(segments, capacity) -> np.ndarray:
    """Moments that need no more room than the next one, or than the previous one, whatever the labels."""
    least = np.zeros(len(capacity) + 1)
    most = np.zeros(len(capacity) + 1)
    for segment in segments.values():
        moments, change = _edges(*segment)
        np.add.at(least, moments, change.min(axis=1))
        np.add.at(most, moments, change.max(axis=1))
    room = np.diff(capacity)
    # Step from moment t to t+1: usage grows by at least least[t+1], room by room[t].
    by_next = np.append(least[1 : len(capacity)] >= room, False)
    by_previous = np.insert((most[1 : len(capacity)] <= room) & ~by_next[:-1], 0, False)
    return by_next | by_previous


def _kept(segments, capacity, keep):
    """The same segments in the numbering of the kept moments."""
    position = np.concatenate([[0], np.cumsum(keep)])
    result = {}
    for node, (start, stop, amounts) in segments.items():
        first, last = position[start], position[stop]
        alive = last > first
        if alive.any():
            result[node] = (first[alive], last[alive], amounts[alive])
    return result, capacity[keep]
