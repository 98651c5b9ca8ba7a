"""Terms priced on a mesh: the labels of every representative node, its costs, and a matrix per pair of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from flowaware_core.cluster.model import Device
from flowaware_core.cost import compute, hosting
from flowaware_core.cost.resharding import Resharding, partials, scalar
from flowaware_core.graph.layout import local_shape
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Assignment, layout_of
from flowaware_core.search.repeats import Repeats
from flowaware_core.search.terms import Borders, Counts, Hosted, Terms, Transfer, Work, majors

Labels = tuple[Assignment, ...]
Key = tuple[object, ...]


class Pricing:
    """Prices on one mesh; equal terms between nodes with equal labels are priced once.

    Args:
        graph: the program.
        device: where it runs.
        resharding: what changes of layout take on the mesh.
    """

    def __init__(self, graph: Graph, device: Device, resharding: Resharding):
        self.graph, self.mesh, self.device = graph, resharding.mesh, device
        self.resharding = resharding
        self._arrays: dict[int, np.ndarray] = {}
        self._sides: dict[Key, tuple[np.ndarray, np.ndarray]] = {}
        self._works: dict[Key, np.ndarray] = {}
        self._exchanges: dict[Key, np.ndarray] = {}
        self._transfers: dict[Key, np.ndarray] = {}
        self._sums: dict[Key, np.ndarray] = {}

    def nodes(
        self, terms: Terms, repeats: Repeats, labels: Sequence[Labels]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Per label of each representative, for all the nodes that it stands for: time of the work, and of its own collectives."""
        work, own = [], []
        for node, times, options in zip(repeats.nodes, repeats.times, labels, strict=True):
            counts = terms.nodes[node]
            work.append(times * self._all_work(terms, counts, options))
            own.append(times * self._own(counts, options))
        return work, own

    def edges(
        self, terms: Terms, repeats: Repeats, labels: Sequence[Labels]
    ) -> tuple[list[tuple[int, int]], list[np.ndarray]]:
        """Pairs of representatives with their matrices; equal matrices are one object."""
        pairs, matrices = [], []
        stands_for = {node: position for position, node in enumerate(repeats.nodes)}
        for (i, j), counts in sorted(terms.edges.items()):
            if i not in stands_for and j not in stands_for:
                continue
            # An edge of a repeated part is counted with the representative at one of its ends, as often as that is repeated.
            ends = repeats.of[i], repeats.of[j]
            own = [repeats.times[end] for end in ends]
            inner = max(range(2), key=lambda side: own[side])
            if (i, j)[inner] not in stands_for:
                continue
            pairs.append(ends)
            matrices.append(self._matrix(counts, labels[ends[0]], labels[ends[1]], own[inner]))
        return pairs, matrices

    def _all_work(self, terms: Terms, counts: Counts, labels: Labels) -> np.ndarray:
        total = np.zeros(len(labels))
        for term, times in counts.items():
            if isinstance(term, Work):
                total += times * self._work(terms, term, labels)
        return total

    def _own(self, counts: Counts, labels: Labels) -> np.ndarray:
        total = np.zeros(len(labels))
        for term, times in counts.items():
            if isinstance(term, Work):
                continue
            if isinstance(term, Borders):
                total += times * self._borders(term, labels)
            elif isinstance(term, Hosted):
                total += times * self._hosting(term, labels)
            elif term.target is None:
                sums = partials(labels, term.reduced)
                total += times * np.array([scalar(term.shape, term.itemsize, axes, self.mesh) for axes in sums])
            else:
                total += times * np.diagonal(self._transfer(term, labels, labels))
        return total

    def _hosting(self, term: Hosted, labels: Labels) -> np.ndarray:
        """Time between the hosts' memory and the devices' under each label of a group."""
        layouts = (layout_of(term.dims, assignment) for assignment in labels)
        shards = [math.prod(local_shape(term.shape, layout, self.mesh.sizes)) for layout in layouts]
        return hosting.seconds(np.array(shards, dtype=float) * term.itemsize, self.device)

    def _borders(self, term: Borders, labels: Labels) -> np.ndarray:
        """Time of the exchanges between neighbours under each label of an operator."""
        key = (term, id(labels))
        if key not in self._exchanges:
            array, found = self._array(labels), np.zeros(len(labels))
            shapes: dict[int, np.ndarray] = {}  # of every operand's shard, with the borders that it has by then
            for index, factor in enumerate(term.rule.factors):
                axes = array == index
                rows = np.flatnonzero(axes.any(axis=1))
                for border in factor.borders if len(rows) else ():
                    operand = border.operand
                    if operand not in shapes:
                        shapes[operand] = self._shards(term.shapes[operand], majors(term.rule.operands[operand]), array)
                    lengths = shapes[operand][rows]
                    lengths[:, border.dim] = 1
                    amounts = lengths.prod(axis=1) * term.itemsizes[operand]
                    for length in (border.before, border.after):
                        if length:
                            found[rows] += self.resharding.permutes(amounts * length, axes[rows])
                    shapes[operand][rows, border.dim] += border.before + border.after
            self._exchanges[key] = found
        return self._exchanges[key]

    def _shards(self, shape: Sequence[int], dims: Sequence[int], array: np.ndarray) -> np.ndarray:
        """[labels, dims] lengths of an operand's largest shard, whose dimensions are these factors."""
        sizes = np.array(self.mesh.sizes)
        cuts = [np.where(array == dim, sizes, 1).prod(axis=1) if dim >= 0 else np.ones(len(array), int) for dim in dims]
        return -(-np.array(shape, dtype=np.int64) // np.array(cuts, dtype=np.int64).T)

    def _work(self, terms: Terms, work: Work, labels: Labels) -> np.ndarray:
        key = (work, id(labels))
        if key not in self._works:
            sizes = np.array([*self.mesh.sizes])
            shards = np.where(self._array(labels) >= 0, sizes, 1).prod(axis=1).astype(float)
            self._works[key] = compute.seconds(terms.examples[work], self.graph.tensors, shards, self.device)
        return self._works[key]

    def _matrix(
        self, counts: Mapping[tuple[Transfer, bool], int], left: Labels, right: Labels, times: int
    ) -> np.ndarray:
        items = tuple(sorted(counts.items(), key=repr) if len(counts) > 1 else counts.items())
        key = (items, id(left), id(right), times)
        if key not in self._sums:
            parts = (
                times * count * (self._transfer(term, left, right) if forward else self._transfer(term, right, left).T)
                for (term, forward), count in items
            )
            self._sums[key] = functools.reduce(np.add, parts)
        return self._sums[key]

    def _transfer(self, term: Transfer, source: Labels, target: Labels) -> np.ndarray:
        """[labels of the source, labels of the target]"""
        assert term.target is not None
        key = (term, id(source), id(target))
        found = self._transfers.get(key)
        if found is None:
            targets, column = self._side(term.target, target)
            if term.reduced:
                numbers = self.resharding.numbers(term.source, self._array(source))
                rows = list(zip(numbers.tolist(), partials(source, term.reduced), strict=True))
                distinct = {value: index for index, value in enumerate(dict.fromkeys(rows))}
                row = np.array([distinct[value] for value in rows])
                sources = np.array([number for number, _ in distinct])
                left = [axes for _, axes in distinct]
                table = self.resharding.combined(term.shape, term.itemsize, sources, left, targets)
            else:
                sources, row = self._side(term.source, source)
                table = self.resharding.seconds(term.shape, term.itemsize, sources, targets)
            found = self._transfers[key] = table[np.ix_(row, column)]
        return found

    def _side(self, dims: tuple[int, ...], labels: Labels) -> tuple[np.ndarray, np.ndarray]:
        """The different layouts that labels give a tensor, and for each label which one."""
        key = (dims, id(labels))
        if key not in self._sides:
            numbers, inverse = np.unique(self.resharding.numbers(dims, self._array(labels)), return_inverse=True)
            self._sides[key] = numbers, inverse
        return self._sides[key]

    def _array(self, labels: Labels) -> np.ndarray:
        if id(labels) not in self._arrays:
            self._arrays[id(labels)] = np.array(labels, dtype=np.int64).reshape(len(labels), len(self.mesh.axes))
        return self._arrays[id(labels)]
