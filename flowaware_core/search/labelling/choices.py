"""What a node that was taken out of a core chooses, given the labels of those it hung on.

Each can say which label is best, and by how much every labelling with a certain label exceeds a bound at least, given by how much
those with certain labels of the others do.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np


class Choice(Protocol):
    """A node without a say in anything but its own label."""

    def label(self, *given: int) -> int:
        """The best label for labels of the others."""
        ...

    def excess(self, *given: np.ndarray, most: float) -> np.ndarray:
        """[labels] from what is known of the labels of the others; where it is above `most` it may be inf."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A node that was taken out.

    Attributes:
        node: its number in the original core.
        names: the original labels of the labels that it had then.
        choice: how it chooses.
        parents: by whom, each with the original labels of the labels that it had then.
    """

    node: int
    names: np.ndarray
    choice: Choice
    parents: list[tuple[int, np.ndarray]]


@dataclasses.dataclass(frozen=True, eq=False)
class Alone:
    """A node without neighbours.

    Attributes:
        costs: of its labels.
    """

    costs: np.ndarray

    def label(self, *given: int) -> int:
        return int(np.argmin(self.costs))

    def excess(self, *given: np.ndarray, most: float) -> np.ndarray:
        return self.costs - self.costs.min()


@dataclasses.dataclass(frozen=True, eq=False)
class Following:
    """A node whose label another one decides.

    Attributes:
        table: per label of the other.
        size: how many labels the node has.
    """

    table: np.ndarray
    size: int

    def label(self, *given: int) -> int:
        return int(self.table[given[0]])

    def excess(self, *given: np.ndarray, most: float) -> np.ndarray:
        found = np.full(self.size, np.inf)
        np.minimum.at(found, self.table, given[0])
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class Beside:
    """A node with one neighbour.

    Attributes:
        costs: [labels of the node, labels of the other].
    """

    costs: np.ndarray

    def label(self, *given: int) -> int:
        return int(np.argmin(self.costs[:, given[0]]))

    def excess(self, *given: np.ndarray, most: float) -> np.ndarray:
        return (_above_least(self.costs) + given[0]).min(axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Between:
    """A node between two others.

    Attributes:
        left: [labels of the one, labels of the node] with the node's own costs.
        right: [labels of the node, labels of the other].
    """

    left: np.ndarray
    right: np.ndarray

    def label(self, *given: int) -> int:
        return int(np.argmin(self.left[given[0]] + self.right[:, given[1]]))

    def excess(self, *given: np.ndarray, most: float) -> np.ndarray:
        found = np.full(len(self.right), np.inf)
        one, other = (np.flatnonzero(values <= most) for values in given)
        right, known = self.right[:, other], given[1][other]
        for label in one if len(other) else ():
            above = _above_least(self.left[label][:, None] + right)
            np.minimum(found, (above + np.maximum(known, given[0][label])).min(axis=1), out=found)
        return found


def _above_least(costs: np.ndarray) -> np.ndarray:
    """Costs less the least of each column; inf throughout where all are."""
    least = costs.min(axis=0)
    return costs - np.where(np.isfinite(least), least, 0.0)
