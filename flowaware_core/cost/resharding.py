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
from flowaware_core.graph.layout import Layout
from flowaware_core.graph.placement import Assignment, Partial

# Bytes at which the slope of a collective's time is taken.
LARGE = 2.0**40
# Pairs of layouts of one rank above which their chains are not remembered.
MOST_REMEMBERED = 10_000_000


class Chains:
    """The steps between layouts on meshes of so many axes; filled as pairs are asked for.

    Attributes:
        moves: (kind, axes) per number of a move: all-gathers over every set of axes, then exchanges of every set.
    """

    def __init__(self, axes: int):
        self.axes = axes
        sets = [tuple(axis for axis in range(axes) if chosen >> axis & 1) for chosen in range(1, 2**axes)]
        self.moves: list[tuple[str, tuple[int, ...]]] = [
            (kind, chosen) for kind in ("all-gather", "all-to-all") for chosen in sets
        ]
        self._scattered: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
        self._known: dict[int, np.ndarray] = {}
        self._move: dict[int, np.ndarray] = {}
        self._at: dict[int, np.ndarray] = {}

    def between(self, rank: int, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Per pair, [sources, targets, steps]: number of the move (-1: none) and the layout before it."""
        count = (rank + 1) ** self.axes
        if count**2 > MOST_REMEMBERED:
            found = self._steps(rank, np.repeat(sources, len(targets)), np.tile(targets, len(sources)))
            shape = len(sources), len(targets), self.axes
            return found[0].reshape(shape), found[1].reshape(shape)
        if rank not in self._known:
            self._known[rank] = np.zeros((count, count), dtype=bool)
            self._move[rank] = np.full((count, count, self.axes), -1, dtype=np.int16)
            self._at[rank] = np.zeros((count, count, self.axes), dtype=np.int32)
        pairs = np.ix_(sources, targets)
        missing = np.argwhere(~self._known[rank][pairs])
        if len(missing):
            one, other = sources[missing[:, 0]], targets[missing[:, 1]]
            self._known[rank][one, other] = True
            self._move[rank][one, other], self._at[rank][one, other] = self._steps(rank, one, other)
        return self._move[rank][pairs], self._at[rank][pairs]

    def scattered(self, source: int, rank: int, axes: tuple[int, ...]) -> list[int]:
        """The layouts that a reduce-scatter over the axes ends in."""
        key = source, rank, axes
        if key not in self._scattered:
            base = rank + 1
            added = [sum((dim + 1) * base**axis for axis in axes) for dim in range(rank)]
            self._scattered[key] = [
                source + more
                for before, more in zip(layout(source, rank, self.axes), added, strict=True)
                if before + axes == tuple(sorted(before + axes))
            ]
        return self._scattered[key]

    def _steps(self, rank: int, sources: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`layout.steps` for many pairs at once: exchanges first, then all-gathers, dimension by dimension."""
        move = np.full((len(sources), self.axes), -1, dtype=np.int16)
        at = np.zeros((len(sources), self.axes), dtype=np.int32)
        powers = (rank + 1) ** np.arange(self.axes)
        # Per pair and axis the dimension cut, from 1; 0 for none.
        source, target = (numbers[:, None] // powers % (rank + 1) for numbers in (sources, targets))
        current, place = source.copy(), np.zeros(len(sources), dtype=np.int64)

        def record(pairs: np.ndarray, moves: np.ndarray | int) -> None:
            move[pairs, place[pairs]] = moves
            at[pairs, place[pairs]] = current[pairs] @ powers
            place[pairs] += 1

        kept, axes = _kept(source, target, rank), np.arange(self.axes)
        for dim in range(1, rank + 1):
            for axis in reversed(range(self.axes)):
                goal = target[:, axis, None]
                begins = (source[:, axis] == dim) & ~kept[:, axis] & (goal[:, 0] > 0) & (goal[:, 0] != dim)
                leaving = (current == dim) & (axes >= axis)
                # In the goal they come right after what is there, and nothing in between.
                until = np.logical_or.accumulate(leaving[:, ::-1], axis=1)[:, ::-1]
                there = current == goal
                follows = (((target == goal) & until) == (there | leaving)).all(axis=1)
                moves = begins & follows & ~(there & (axes > axis)).any(axis=1)
                pairs = np.flatnonzero(moves)
                record(pairs, 2**self.axes - 2 + leaving[pairs] @ 2**axes)
                current = np.where(leaving & moves[:, None], goal, current)
        leaves = (current > 0) & ~_kept(current, target, rank)
        for dim in range(1, rank + 1):
            gathered = leaves & (current == dim)
            pairs = np.flatnonzero(gathered.any(axis=1))
            record(pairs, gathered[pairs] @ 2**axes - 1)
            current[gathered] = 0
        return move, at


def _kept(current: np.ndarray, target: np.ndarray, rank: int) -> np.ndarray:
    """[pairs, axes] which axes cut a dimension that is cut by the same ones up to them in the target."""
    kept = np.zeros(current.shape, dtype=bool)
    for dim in range(1, rank + 1):
        agree = (current == dim) == (target == dim)
        kept |= (current == dim) & np.logical_and.accumulate(agree, axis=1)
    return kept


def layout(number: int, rank: int, axes: int) -> Layout:
    """The layout of a number."""
    dims: list[list[int]] = [[] for _ in range(rank)]
    for axis in range(axes):
        number, dim = divmod(number, rank + 1)
        if dim:
            dims[dim - 1].append(axis)
    return tuple(map(tuple, dims))


class Resharding:
    """Times on one mesh.

    Args:
        mesh: where it runs.
        chains: for meshes of as many axes; shared between them.
    """

    def __init__(self, mesh: Mesh, chains: Chains):
        assert chains.axes == len(mesh.axes)
        self.mesh, self.chains = mesh, chains
        # Slope and latency of every move; the last entry, which -1 finds, is no move.
        self._affine: dict[tuple[str, tuple[int, ...]], tuple[float, float]] = {}
        moves = [self._of_bytes(kind, axes) for kind, axes in chains.moves]
        self._slopes, self._latencies = (np.array([*column, 0.0]) for column in zip(*moves, strict=True))
        self._cuts: dict[int, np.ndarray] = {}
        self._linear: dict[tuple[int, bytes, bytes], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def collective(self, kind: str, size: float, axes: tuple[int, ...]) -> float:
        """`communication.seconds`."""
        slope, latency = self._of_bytes(kind, axes)
        return slope * size + latency

    def _of_bytes(self, kind: str, axes: tuple[int, ...]) -> tuple[float, float]:
        """Slope and latency of a collective's time."""
        if (kind, axes) not in self._affine:
            none, large = (communication.seconds(kind, size, axes, self.mesh) for size in (0.0, LARGE))
            self._affine[kind, axes] = (large - none) / LARGE, none
        return self._affine[kind, axes]

    def permutes(self, sizes: np.ndarray, axes: np.ndarray) -> np.ndarray:
        """[labels] time of handing so many bytes on to the neighbour along some axes, given as [labels, axes]."""
        found = np.zeros(len(sizes))
        numbers = axes @ 2 ** np.arange(axes.shape[1])
        for number in np.unique(numbers):
            rows = numbers == number
            chosen = tuple(axis for axis in range(axes.shape[1]) if number >> axis & 1)
            slope, latency = self._of_bytes("collective-permute", chosen)
            found[rows] = slope * sizes[rows] + latency
        return found

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
        key = len(shape), sources.tobytes(), targets.tobytes()
        if key not in self._linear:  # as of many tensors of one rank
            move, at = self.chains.between(len(shape), sources, targets)
            self._linear[key] = self._slopes[move], at, self._latencies[move].sum(axis=2)
        slopes, at, latencies = self._linear[key]
        return np.einsum("ijk,ijk->ij", slopes, self._bytes(shape, itemsize)[at]) + latencies

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
            table[row] += sum(self.collective("all-reduce", size, axes) for axes in partial)
            if len(partial) > 1:
                continue
            scattered = self.collective("reduce-scatter", size, partial[0])
            for target in self.scattered(number, len(shape), partial[0]):
                if target in position:
                    table[row, position[target]] = scattered
        return table

    def scattered(self, source: int, rank: int, axes: tuple[int, ...]) -> list[int]:
        """The layouts that a reduce-scatter over the axes ends in."""
        return self.chains.scattered(source, rank, axes)

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
