"""Times of many changes of layout at once: what `communication.combine` costs, as tables over pairs of layouts.

Which steps lead from one layout to another depends on neither shape nor mesh sizes, and a step's time is affine in the bytes that
a device puts in. So chains are worked out once per pair of layouts, and a tensor's times are a few table look-ups.

A layout of a tensor of rank r is a number here: sum over the axes of (dimension cut + 1) (r + 1)^axis, where 0 is "cuts nothing".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cost import communication
from flowaware_core.graph.layout import Layout, steps
from flowaware_core.graph.placement import Assignment, Partial

# Bytes at which the slope of a collective's time is taken.
LARGE = 2.0**40


class Chains:
    """The steps between layouts on meshes of so many axes; filled as pairs are asked for."""

    def __init__(self, axes: int):
        self.axes = axes
        self.moves: list[tuple[str, tuple[int, ...]]] = []
        self._numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._known: dict[int, np.ndarray] = {}
        self._move: dict[int, np.ndarray] = {}
        self._at: dict[int, np.ndarray] = {}

    def between(self, rank: int, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per pair, [sources, targets, steps]: number of the move (-1: none) and the layout before it."""
        if rank not in self._known:
            count = (rank + 1) ** self.axes
            self._known[rank] = np.zeros((count, count), dtype=bool)
            self._move[rank] = np.full((count, count, self.axes), -1, dtype=np.int16)
            self._at[rank] = np.zeros((count, count, self.axes), dtype=np.int32)
        pairs = np.ix_(sources, targets)
        missing = np.argwhere(~self._known[rank][pairs])
        if len(missing):
            self._fill(rank, sources[missing[:, 0]], targets[missing[:, 1]])
        return self._move[rank][pairs], self._at[rank][pairs]

    def number(self, kind: str, axes: tuple[int, ...]) -> int:
        """The number of a move, for `moves`."""
        found = self._numbers.get((kind, axes))
        if found is None:
            found = self._numbers[kind, axes] = len(self.moves)
            self.moves.append((kind, axes))
        return found

    def _fill(self, rank: int, sources: np.ndarray, targets: np.ndarray) -> None:
        move, at, known = self._move[rank], self._at[rank], self._known[rank]
        layouts = {number: layout(number, rank, self.axes) for number in {*sources.tolist(), *targets.tolist()}}
        numbers = {value: number for number, value in layouts.items()}
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            known[source, target] = True
            place, current = 0, layouts[source]
            for step in steps(current, layouts[target]):
                if step.kind != "slice":
                    move[source, target, place] = self.number(step.kind, step.axes)
                    if current not in numbers:
                        numbers[current] = number_of(current, self.axes)
                    at[source, target, place] = numbers[current]
                    place += 1
                current = step.layout


def layout(number: int, rank: int, axes: int) -> Layout:
    """The layout of a number."""
    dims: list[list[int]] = [[] for _ in range(rank)]
    for axis in range(axes):
        number, dim = divmod(number, rank + 1)
        if dim:
            dims[dim - 1].append(axis)
    return tuple(map(tuple, dims))


def number_of(value: Layout, axes: int) -> int:
    """The number of a layout."""
    base = len(value) + 1
    powers = [base**axis for axis in range(axes)]
    return sum((dim + 1) * powers[axis] for dim, inside in enumerate(value) for axis in inside)


class Resharding:
    """Times on one mesh.

    Args:
        mesh: where it runs.
        chains: for meshes of as many axes; shared between them.
    """

    def __init__(self, mesh: Mesh, chains: Chains):
        assert chains.axes == len(mesh.axes)
        self.mesh, self.chains = mesh, chains
        self._slopes: list[float] = []
        self._latencies: list[float] = []
        self._cuts: dict[int, np.ndarray] = {}

    def numbers(self, dims: Sequence[int], labels: np.ndarray) -> np.ndarray:
        """The layouts of a tensor under labels.

        Args:
            dims: per dimension of the tensor the dimension that labels assign axes to, -1 for none.
            labels: [labels, axes] per axis the dimension it cuts, -1 for none.
        """
        place = np.zeros(max([*dims, int(labels.max(initial=-1)), 0]) + 2, dtype=np.int64)
        for dim, chosen in enumerate(dims):
            if chosen >= 0:
                place[chosen] = dim + 1
        place[-1] = 0  # -1 and what the tensor does not have
        powers = (len(dims) + 1) ** np.arange(len(self.mesh.axes))
        return place[labels] @ powers

    def seconds(self, shape: Sequence[int], itemsize: int, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """[sources, targets] time of taking a tensor from one layout to another, given as numbers."""
        move, at = self.chains.between(len(shape), sources, targets)
        slopes, latencies = self._coefficients()
        return (slopes[move] * self._bytes(shape, itemsize)[at] + latencies[move]).sum(axis=2)

    def combined(
        self,
        shape: Sequence[int],
        itemsize: int,
        sources: np.ndarray,
        partials: Sequence[Partial],
        targets: np.ndarray,
    ) -> np.ndarray:
        """[sources, targets] time of turning partial results into a tensor of a layout; `partials` one per source."""
        table = self.seconds(shape, itemsize, sources, targets)
        position = {number: column for column, number in enumerate(targets.tolist())}
        amounts = self._bytes(shape, itemsize)
        for row, (number, partial) in enumerate(zip(sources.tolist(), partials, strict=True)):
            if not partial:
                continue
            size = float(amounts[number])
            table[row] += sum(communication.seconds("all-reduce", size, axes, self.mesh) for axes in partial)
            if len(partial) > 1:
                continue
            scattered = communication.seconds("reduce-scatter", size, partial[0], self.mesh)
            for target in self._scattered(number, len(shape), partial[0]):
                if target in position:
                    table[row, position[target]] = scattered
        return table

    def _scattered(self, source: int, rank: int, axes: tuple[int, ...]) -> list[int]:
        """The layouts that a reduce-scatter over the axes ends in."""
        natural = layout(source, rank, len(self.mesh.axes))
        base = rank + 1
        added = [sum((dim + 1) * base**axis for axis in axes) for dim in range(rank)]
        return [
            source + more
            for before, more in zip(natural, added, strict=True)
            if before + axes == tuple(sorted(before + axes))
        ]

    def _coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """Slope and latency of every move known so far; the last entry, which -1 finds, is no move."""
        for kind, axes in self.chains.moves[len(self._slopes) :]:
            latency = communication.seconds(kind, 0.0, axes, self.mesh)
            self._latencies.append(latency)
            self._slopes.append((communication.seconds(kind, LARGE, axes, self.mesh) - latency) / LARGE)
        return np.array([*self._slopes, 0.0]), np.array([*self._latencies, 0.0])

    def _bytes(self, shape: Sequence[int], itemsize: int) -> np.ndarray:
        """Bytes of a device's shard under every layout; a dimension that does not divide is padded."""
        rank = len(shape)
        if rank not in self._cuts:
            count = (rank + 1) ** len(self.mesh.axes)
            cuts = np.ones((count, rank), dtype=np.int64)
            digits = np.arange(count)
            for size in self.mesh.sizes:
                digits, dim = np.divmod(digits, rank + 1)
                rows = np.flatnonzero(dim)
                cuts[rows, dim[rows] - 1] *= size
            self._cuts[rank] = cuts
        local = -(-np.asarray(shape, dtype=np.int64) // self._cuts[rank])
        return local.prod(axis=1) * itemsize if rank else np.full(1, itemsize)


def partials(labels: Sequence[Assignment], reduced: frozenset[int]) -> list[Partial]:
    """Per label the axes over which results are partial, one tuple per reduced dimension that it cuts."""
    return [
        tuple(
            tuple(axis for axis, dim in enumerate(label) if dim == cut)
            for cut in dict.fromkeys(label)
            if cut in reduced
        )
        for label in labels
    ]


def scalar(shape: Sequence[int], itemsize: int, partial: Partial, mesh: Mesh) -> float:
    """Time of combining partial results of a tensor that every device holds whole."""
    size = float(math.prod(shape) * itemsize)
    return sum(communication.seconds("all-reduce", size, axes, mesh) for axes in partial)
