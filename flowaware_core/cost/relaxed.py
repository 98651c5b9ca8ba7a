"""Times of changing layouts that no order of interchangeable axes goes below: what bounds all meshes from below at once.

Axes of one size on one level of links are interchangeable. A layout is taken here as how many of each such class cut every
dimension, not which ones; of all layouts that agree in that, the kindest is priced:

- what two layouts have in common stays: of the outermost class in which a dimension's axes differ as many as in both, of the
  classes inside it none, since shards are numbered by the axes in order;
- of the axes that leave a dimension as many as can are exchanged for others, all in one all-to-all; the rest is gathered by one
  all-gather over the slowest links first; sizes are those of exact shards.

So a time is never above that of `Resharding` between any two layouts that look alike, and equal to the least of them where one
exchange or one all-gather does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from flowaware_core.cluster.mesh import Axis, Mesh
from flowaware_core.cost.resharding import Chains, Resharding


class Relaxed(Resharding):
    """Least times on one mesh; layouts have the number of the one whose dimensions ascend within every class of axes."""

    def __init__(self, mesh: Mesh):
        super().__init__(mesh, Chains(len(mesh.axes)))
        self._classes = mesh.classes
        self._scattered: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
        self._least: dict[tuple[int, bytes, bytes], list[tuple[np.ndarray, np.ndarray]]] = {}

    def numbers(self, dims: Sequence[int], labels: np.ndarray) -> np.ndarray:
        """As `Resharding.numbers`, of layouts whose axes are put in order."""
        return self._ordered(super().numbers(dims, labels), len(dims))

    def seconds(self, shape: Sequence[int], itemsize: int, sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """[sources, targets] least time of taking a tensor from one layout to another."""
        key = len(shape), sources.tobytes(), targets.tobytes()
        if key not in self._least:
            self._least[key] = self._pieces(len(shape), sources, targets)
        exact = float(np.prod(shape, dtype=float)) * itemsize / self._shards(len(shape))[sources, None]
        return np.minimum.reduce([slopes * exact + latencies for slopes, latencies in self._least[key]])

    def scattered(self, source: int, rank: int, axes: tuple[int, ...]) -> list[int]:
        """The layouts that a reduce-scatter over as many axes of each class may end in: they come after those that are there."""
        key = source, rank, axes
        if key in self._scattered:
            return self._scattered[key]
        base = rank + 1
        digits = np.array([source // base**axis % base for axis in range(len(self.mesh.axes))])
        counts = [sum(axis in members for axis in axes) for members in self._classes]
        outermost = next(members.start for members, count in zip(self._classes, counts, strict=True) if count)
        inside = next(members.stop for members in self._classes if outermost in members)
        found = []
        for dim in range(1, rank + 1):
            after, room = digits.copy(), not (digits[inside:] == dim).any()
            for members, count in zip(self._classes, counts, strict=True):
                free = [axis for axis in members if after[axis] == 0][:count]
                room &= len(free) == count
                after[free] = dim
            if room:
                found.append(int(after @ base ** np.arange(len(after))))
        self._scattered[key] = self._ordered(np.array(found, dtype=np.int64), rank).tolist()
        return self._scattered[key]

    def _ordered(self, numbers: np.ndarray, rank: int) -> np.ndarray:
        """The numbers of layouts with the dimensions of every class in ascending order, those that cut nothing last."""
        powers = (rank + 1) ** np.arange(len(self.mesh.axes))
        digits = numbers[:, None] // powers % (rank + 1)
        for members in self._classes:
            columns = digits[:, members.start : members.stop]
            digits[:, members.start : members.stop] = np.sort((columns - 1) % (rank + 1), axis=1) + 1
        return digits % (rank + 1) @ powers

    def _shards(self, rank: int) -> np.ndarray:
        """Into how many shards each layout cuts."""
        self._bytes((1,) * rank, 1)
        return self._cuts[rank].prod(axis=1)

    def _pieces(self, rank: int, sources: np.ndarray, targets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """[sources, targets] seconds per byte of the source's shard and of empty messages: a time is the least of the pieces.

        The pieces differ in how many axes are exchanged: of few bytes it may be faster to gather more.
        """
        # Dimensions come first in all arrays: sums over the few of them are sums of whole tables.
        leaving, coming, held = [], [], []
        same = np.ones((rank, len(sources), len(targets)), dtype=bool)
        for one, other in zip(self._counts(sources, rank), self._counts(targets, rank), strict=True):
            one, other = one[:, :, None], other[:, None, :]
            kept = np.where(same, np.minimum(one, other), 0)
            same &= one == other
            leaving.append(one - kept)
            coming.append(other - kept)
            held.append(one)
        goes, comes = _exchangeable(leaving, coming, held)
        moved = [_flow(out, into) for out, into in zip(goes, comes, strict=True)]
        # What is gathered from each dimension for certain; often that is all.
        certain = [whole - out for whole, out in zip(leaving, goes, strict=True)]
        surely = [rest.sum(axis=0, dtype=np.int8) for rest in certain]
        inorder = self._gather_by_dimension(certain)
        left = [out.sum(axis=0, dtype=np.int8) for out in leaving]
        givers, takers = (np.logical_or.reduce([axes > 0 for axes in ends]).sum(axis=0) for ends in (goes, comes))
        single = (givers <= 1) & (takers <= 1)
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for most in itertools.product(*(range(len(members), 0, -1) for members in self._classes)):
            some = [np.minimum(count, limit) for count, limit in zip(moved, most, strict=True)]
            if found and all((one == all_).all() for one, all_ in zip(some, moved, strict=True)):
                continue
            slopes, latencies = self._exchange(some, single)
            rest = [count - one for count, one in zip(left, some, strict=True)]
            known = np.logical_and.reduce([sure == one for sure, one in zip(surely, rest, strict=True)])
            more, later = self._gather(rest)
            found.append((slopes + np.where(known, inorder, more), latencies + later))
        return found

    def _counts(self, numbers: np.ndarray, rank: int) -> list[np.ndarray]:
        """Per class [dims, layouts] how many of its axes cut a dimension."""
        digits = numbers // (rank + 1) ** np.arange(len(self.mesh.axes))[:, None] % (rank + 1)
        cut = digits == np.arange(1, rank + 1)[:, None, None]
        return [cut[:, members.start : members.stop].sum(axis=1, dtype=np.int8) for members in self._classes]

    def _exchange(self, counts: Sequence[np.ndarray], single: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of all-to-alls over so many axes of each class: of one where a single pair of dimensions can exchange them."""
        joined: dict[tuple[float, float], np.ndarray] = {}
        for members, count in zip(self._classes, counts, strict=True):
            axis = self.mesh.axes[members.start]
            links = axis.bandwidth_bytes_per_s, axis.latency_s
            joined[links] = joined.get(links, 1) * _power(axis, count)
        slopes, latencies = np.zeros(single.shape), np.zeros(single.shape)
        for (bandwidth, latency), number in joined.items():
            slopes += (number - 1) / number / bandwidth
            # Several are no faster than one, but their messages may be fewer.
            latencies += latency * np.where(single, number - 1, np.log2(number))
        return slopes, latencies

    def _gather(self, counts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Of one all-gather over so many axes of each class, the slowest links first, where pieces are small."""
        order = sorted(range(len(counts)), key=lambda c: self.mesh.axes[self._classes[c].start].bandwidth_bytes_per_s)
        axes = [self.mesh.axes[self._classes[position].start] for position in order]
        pieces = [(axis, counts[position]) for axis, position in zip(axes, order, strict=True)]
        slopes, _ = self._gathered(np.ones(counts[0].shape), pieces)
        latencies = np.zeros(counts[0].shape)
        for axis, count in pieces:
            latencies += axis.latency_s * np.log2(axis.size) * count
        return slopes, latencies

    def _gather_by_dimension(self, counts: Sequence[np.ndarray]) -> np.ndarray:
        """Seconds per byte of an all-gather per dimension, one after the other, over so many axes of each class [dims, ...]."""
        slopes, size = np.zeros(counts[0].shape[1:]), np.ones(counts[0].shape[1:])
        axes = [self.mesh.axes[members.start] for members in self._classes]
        for dim in range(len(counts[0])):
            more, size = self._gathered(size, [(axis, count[dim]) for axis, count in zip(axes, counts, strict=True)])
            slopes += more
        return slopes

    def _gathered(self, size: np.ndarray, counts: Sequence[tuple[Axis, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
        """Seconds per byte of an all-gather of pieces that are so many times as large as the first, and how large they are then."""
        slopes = np.zeros(size.shape)
        for axis, count in counts:
            number = _power(axis, count)
            slopes += (number - 1) * size / axis.bandwidth_bytes_per_s
            size = size * number
        return slopes, size


def _flow(goes: np.ndarray, comes: np.ndarray) -> np.ndarray:
    """How many axes of a class can go from dimensions to others, [dims, ...] what each gives and takes."""
    left, came = goes.sum(axis=0, dtype=np.int8), comes.sum(axis=0, dtype=np.int8)
    others = left + came - (goes + comes).max(axis=0, initial=0)
    return np.minimum(np.minimum(left, came), others)


def _exchangeable(
    leaving: Sequence[np.ndarray], coming: Sequence[np.ndarray], held: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of what leaves and comes to each dimension, by class and [dims, ...], what may be exchanged.

    A dimension takes axes after all that it keeps, so only once nothing is left to leave it, and from the outside in, be it what
    others `held` and need not give; axes leave it from the inside out.
    """
    free = sum(leaving) == 0
    while True:
        comes = _supplied([np.where(free, into, 0) for into in coming], held)
        goes = _supplied(leaving[::-1], comes[::-1])[::-1]
        more = np.logical_and.reduce([out == whole for out, whole in zip(goes, leaving, strict=True)])
        if (more <= free).all():
            return goes, comes
        free = free | more


def _supplied(wanted: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Of what dimensions want, class by class, what other dimensions have for them: nothing more once a class has too little."""
    found, enough = [], np.ones(wanted[0].shape, dtype=bool)
    for want, have in zip(wanted, others, strict=True):
        found.append(np.where(enough, np.minimum(want, have.sum(axis=0, dtype=np.int8) - have), 0))
        enough = enough & (found[-1] == want)
    return found


def _power(axis: Axis, count: np.ndarray) -> np.ndarray:
    """Devices along so many axes of a class: looked up, of few different ones."""
    return (float(axis.size) ** np.arange(int(count.max(initial=0)) + 1))[count]
