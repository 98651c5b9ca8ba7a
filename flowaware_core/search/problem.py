"""The choices inside one program as a labelling problem.

One node per group of tensors, per free operator and per view; its labels are the assignments of mesh axes it may take. Node costs
are the time of the work it stands for, edge costs the time of the collectives between what one node offers and the other wants.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import Device
from flowaware_core.cost import communication, compute
from flowaware_core.graph.layout import Layout
from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.placement import Assignment, Choices, Partial, partial_axes
from flowaware_core.graph.rules import Dims
from flowaware_core.graph.structure import Group, Structure, tensors_of
from flowaware_core.search.space import group_assignments, operator_assignments

Filter = Callable[[Assignment], bool]


@dataclasses.dataclass(frozen=True)
class Restriction:
    """What a hand-written strategy leaves to choose: for a group (by index) or a free operator, which labels."""

    group: Callable[[int], Filter]
    operator: Callable[[Operator], Filter]


@dataclasses.dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes in order: groups, free operators, views; and the labels of each."""

    groups: tuple[tuple[Assignment, ...], ...]
    operators: Mapping[int, tuple[Assignment, ...]]
    views: Mapping[int, tuple[Assignment, ...]]

    @property
    def labels(self) -> list[tuple[Assignment, ...]]:
        return [*self.groups, *self.operators.values(), *self.views.values()]

    def choices(self, labels: Sequence[int]) -> Choices:
        """The meaning of a labelling."""
        chosen = [options[label] for options, label in zip(self.labels, labels, strict=True)]
        count, middle = len(self.groups), len(self.groups) + len(self.operators)
        operators = dict(zip(self.operators, chosen[count:middle], strict=True))
        return Choices(tuple(chosen[:count]), operators, dict(zip(self.views, chosen[middle:], strict=True)))

    def labelling(self, choices: Choices) -> np.ndarray | None:
        """The labels of given choices; None where one of them is not among the nodes' labels."""
        wanted = [
            *choices.groups,
            *(choices.operators[o] for o in self.operators),
            *(choices.views[v] for v in self.views),
        ]
        try:
            return np.array([options.index(w) for options, w in zip(self.labels, wanted, strict=True)], dtype=np.int64)
        except ValueError:
            return None


def viewed(graph: Graph, structure: Structure) -> tuple[int, ...]:
    """Tensors that more than one free operator reads."""
    readers: collections.Counter[int] = collections.Counter()
    for operator in structure.free:
        readers.update(set(operator.inputs))
    return tuple(sorted(t for t, count in readers.items() if count > 1 and structure.group_of[t] >= 0))


def nodes(graph: Graph, structure: Structure, mesh: Mesh) -> Nodes:
    """All nodes with all their labels; nodes of equal lengths share one tuple of labels."""
    cache: dict[object, tuple[Assignment, ...]] = {}

    def of_group(group: Group) -> tuple[Assignment, ...]:
        shape = ("group", group.sizes, group.shardable)
        return cache.get(shape) or cache.setdefault(shape, group_assignments(group, mesh.sizes))

    def of_operator(operator: Operator) -> tuple[Assignment, ...]:
        shape = ("operator", operator.rule.factors)
        return cache.get(shape) or cache.setdefault(shape, operator_assignments(operator, mesh.sizes))

    groups = tuple(of_group(group) for group in structure.groups)
    operators = {operator.id: of_operator(operator) for operator in structure.free}
    views = {tensor: groups[structure.group_of[tensor]] for tensor in viewed(graph, structure)}
    return Nodes(groups, operators, views)


@dataclasses.dataclass(frozen=True, eq=False)
class Costs:
    """Node costs in node order, and one matrix per pair of nodes."""

    nodes: tuple[np.ndarray, ...]
    edges: tuple[tuple[int, int], ...]
    matrices: tuple[np.ndarray, ...]


def costs(graph: Graph, structure: Structure, mesh: Mesh, device: Device, labels: Nodes) -> Costs:
    """Prices every node and every edge, in seconds for one step."""
    return _Pricing(graph, structure, mesh, device, labels).price()


def restricted(structure: Structure, labels: Nodes, priced: Costs, restriction: Restriction) -> tuple[Nodes, Costs]:
    """The part of a problem that a restriction leaves; a node of which nothing would be left keeps all its labels."""
    kept = [_kept(options, restriction.group(index)) for index, options in enumerate(labels.groups)]
    for operator in structure.free:
        kept.append(_kept(labels.operators[operator.id], restriction.operator(operator)))
    kept += [np.arange(len(options)) for options in labels.views.values()]
    groups, operators = len(labels.groups), len(labels.operators)
    chosen = [tuple(options[i] for i in keep) for options, keep in zip(labels.labels, kept, strict=True)]
    left = Nodes(
        tuple(chosen[:groups]),
        dict(zip(labels.operators, chosen[groups : groups + operators], strict=True)),
        dict(zip(labels.views, chosen[groups + operators :], strict=True)),
    )
    matrices = tuple(m[np.ix_(kept[i], kept[j])] for (i, j), m in zip(priced.edges, priced.matrices, strict=True))
    return left, Costs(tuple(c[keep] for c, keep in zip(priced.nodes, kept, strict=True)), priced.edges, matrices)


def _kept(options: tuple[Assignment, ...], allowed: Filter) -> np.ndarray:
    keep = [index for index, option in enumerate(options) if allowed(option)]
    return np.array(keep or range(len(options)))


class _Pricing:
    def __init__(self, graph: Graph, structure: Structure, mesh: Mesh, device: Device, labels: Nodes):
        self.graph, self.structure, self.mesh, self.device, self.labels = graph, structure, mesh, device, labels
        self.options = labels.labels
        self.node_of_operator = {o: len(labels.groups) + index for index, o in enumerate(labels.operators)}
        start = len(labels.groups) + len(labels.operators)
        self.node_of_view = {t: start + index for index, t in enumerate(labels.views)}
        self.node_costs = [np.zeros(len(options)) for options in self.options]
        self.edge_costs: dict[tuple[int, int], np.ndarray] = {}
        self._seconds: dict[object, float] = {}
        self._matrices: dict[object, np.ndarray] = {}

    def price(self) -> Costs:
        for tensor, node in self.node_of_view.items():
            group = self.structure.group_of[tensor]
            sides = self._group_side(tensor), self._view_side(tensor)
            self._edge(group, node, sides, tensor, (), 1)
        for operator, times in self.graph.walk():
            if operator.subgraphs:
                continue
            self._work(operator, times)
            if operator.id in self.node_of_operator:
                self._free(operator, times)
            elif operator.id in self.structure.anchored:
                self._anchored(operator, self.structure.anchored[operator.id], times)
        edges = tuple(sorted(self.edge_costs))
        return Costs(tuple(self.node_costs), edges, tuple(self.edge_costs[edge] for edge in edges))

    def _work(self, operator: Operator, times: int) -> None:
        """Time of the operator itself under every label of the node it belongs to."""
        if operator.id in self.node_of_operator:
            node = self.node_of_operator[operator.id]
        else:
            anchor = self.structure.anchored.get(operator.id, operator.results[0] if operator.results else -1)
            node = self.structure.group_of[anchor] if anchor >= 0 else -1
            if node < 0:
                return
        seconds = compute.seconds(operator, self.graph.tensors, self._shards(node), self.device)
        self.node_costs[node] += times * seconds

    def _shards(self, node: int) -> np.ndarray:
        """Into how many parts each label cuts what it is a label of."""
        key = ("shards", id(self.options[node]))
        if key not in self._matrices:
            sizes = self.mesh.sizes
            counts = [math.prod(s for s, dim in zip(sizes, a, strict=True) if dim >= 0) for a in self.options[node]]
            self._matrices[key] = np.array(counts, dtype=float)
        return self._matrices[key]

    def _free(self, operator: Operator, times: int) -> None:
        node = self.node_of_operator[operator.id]
        seen: set[tuple[int, Dims]] = set()
        for operand, dims in zip(operator.operands, operator.rule.operands, strict=True):
            if not isinstance(operand, int) or self.structure.group_of[operand] < 0 or (operand, dims) in seen:
                continue
            seen.add((operand, dims))
            if operand in self.node_of_view:
                source, side = self.node_of_view[operand], self._view_side(operand)
            else:
                source, side = self.structure.group_of[operand], self._group_side(operand)
            self._edge(source, node, (side, self._factor_side(dims, node)), operand, (), times)
        for result, dims in zip(operator.results, operator.rule.results, strict=True):
            partial = self._partials(operator, node)
            self._result(operator, result, node, self._factor_side(dims, node), partial, times)

    def _anchored(self, operator: Operator, anchor: int, times: int) -> None:
        node = self.structure.group_of[anchor]
        anchor_dims = next(dims for tensor, dims in tensors_of(operator) if tensor == anchor)
        place = {factors[0]: dim for dim, factors in enumerate(anchor_dims) if factors}
        logical = self.structure.dims_of[anchor]

        def translated(dims: Dims) -> tuple[tuple[int, ...], ...]:
            """The tensor's dimensions in logical dimensions of the anchor's group."""
            return tuple((logical[place[factors[0]]],) if factors and factors[0] in place else () for factors in dims)

        factors = operator.rule.factors
        reduced = {logical[dim] for factor, dim in place.items() if factors[factor].kind == "reduce"}
        partial = [
            tuple(tuple(i for i, dim in enumerate(a) if dim == cut) for cut in dict.fromkeys(a) if cut in reduced)
            for a in self.options[node]
        ]
        for operand, dims in zip(operator.operands, operator.rule.operands, strict=True):
            if isinstance(operand, int) and operand != anchor and self.structure.group_of[operand] >= 0:
                sides = self._group_side(operand), self._factor_side(translated(dims), node)
                self._edge(self.structure.group_of[operand], node, sides, operand, (), times)
        for result, dims in zip(operator.results, operator.rule.results, strict=True):
            if result != anchor:
                self._result(operator, result, node, self._factor_side(translated(dims), node), partial, times)

    def _result(
        self, operator: Operator, result: int, node: int, side: _Side, partial: Sequence[Partial], times: int
    ) -> None:
        group = self.structure.group_of[result]
        if group >= 0:
            self._edge(node, group, (side, self._group_side(result)), result, partial, times)
            return
        # A scalar has one layout: only the combination of partial results costs.
        layout = ((),) * len(self.graph.tensors[result].shape)
        for label, axes in enumerate(partial):
            self.node_costs[node][label] += times * self._combine(result, layout, layout, axes)

    def _partials(self, operator: Operator, node: int) -> list[Partial]:
        return [partial_axes(operator, assignment) for assignment in self.options[node]]

    def _group_side(self, tensor: int) -> _Side:
        group = self.structure.group_of[tensor]
        return _Side(self.structure.dims_of[tensor], self.options[group])

    def _view_side(self, tensor: int) -> _Side:
        return _Side(self.structure.dims_of[tensor], self.options[self.node_of_view[tensor]])

    def _factor_side(self, dims: Dims, node: int) -> _Side:
        return _Side(tuple(factors[0] if factors else -1 for factors in dims), self.options[node])

    def _edge(
        self,
        source: int,
        target: int,
        sides: tuple[_Side, _Side],
        tensor: int,
        partial: Sequence[Partial],
        times: int,
    ) -> None:
        """Adds the cost of taking `tensor` from the source's side to the target's, `partial` per label of the source."""
        value = self.graph.tensors[tensor]
        key = (value.shape, value.itemsize, sides[0].key, sides[1].key, tuple(partial))
        matrix = self._matrices.get(key)
        if matrix is None:
            rows = [(layout, partial[row] if partial else ()) for row, layout in enumerate(sides[0].layouts)]
            distinct, row_of = _distinct(rows)
            others, column_of = _distinct(sides[1].layouts)
            table = [[self._combine(tensor, layout, other, axes) for other in others] for layout, axes in distinct]
            matrix = np.array(table)[np.ix_(row_of, column_of)]
            self._matrices[key] = matrix
        if times != 1:
            matrix = matrix * times
        if source == target:
            self.node_costs[source] = self.node_costs[source] + np.diagonal(matrix)
            return
        if source > target:
            source, target, matrix = target, source, matrix.T
        present = self.edge_costs.get((source, target))
        self.edge_costs[source, target] = matrix if present is None else present + matrix

    def _combine(self, tensor: int, source: Layout, target: Layout, partial: Partial) -> float:
        value = self.graph.tensors[tensor]
        key = (value.shape, value.itemsize, source, target, partial)
        found = self._seconds.get(key)
        if found is None:
            moves = communication.combine(value.shape, value.itemsize, source, target, partial, self.mesh.sizes)
            found = sum(communication.seconds(move.kind, move.bytes, move.axes, self.mesh) for move in moves)
            self._seconds[key] = found
        return found


def _distinct(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The different values in order of appearance, and the position of each value among them."""
    positions = {value: index for index, value in enumerate(dict.fromkeys(values))}
    return list(positions), [positions[value] for value in values]


@dataclasses.dataclass(frozen=True, eq=False)
class _Side:
    """One end of an edge: a tensor's dimensions in the dimensions that labels assign axes to."""

    dims: tuple[int, ...]
    labels: tuple[Assignment, ...]

    @property
    def key(self) -> tuple[tuple[int, ...], int]:
        return self.dims, id(self.labels)

    @functools.cached_property
    def layouts(self) -> list[Layout]:
        return [
            tuple(tuple(i for i, chosen in enumerate(label) if chosen == dim) if dim >= 0 else () for dim in self.dims)
            for label in self.labels
        ]
