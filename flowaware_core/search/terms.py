"""The program as a sum of terms, whatever the mesh: work that a node stands for, and transfers between two nodes.

One node per group of tensors, per free operator and per view. A deep program has few different terms: each is priced once for a
mesh, and nodes with equal terms are what `repeats.py` recognises.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from flowaware_core.cost.compute import MATRIX_PRIMITIVES
from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.rules import Dims, Rule
from flowaware_core.graph.structure import Structure, tensors_of


class Work(NamedTuple):
    """What decides the time of an operator besides the number of its shards; `operator` is one that has it."""

    matrix: bool
    flops: float
    bytes: int
    dtype: str


class Transfer(NamedTuple):
    """A tensor taken from the layout of one node's label to that of another's.

    Attributes:
        shape, itemsize: the tensor.
        source, target: per dimension of the tensor the dimension of the node's labels, -1 for none; target None: the tensor has
            one layout only and what costs is the combination of partial results.
        reduced: the dimensions of the source's labels that leave partial results where they are cut.
    """

    shape: tuple[int, ...]
    itemsize: int
    source: tuple[int, ...]
    target: tuple[int, ...] | None
    reduced: frozenset[int]


class Borders(NamedTuple):
    """What the shards of an operator exchange with their neighbours before it runs: decided by its rule and its operands.

    Attributes:
        rule: the operator's.
        shapes, itemsizes: of its operands; () and 0 for a literal.
    """

    rule: Rule
    shapes: tuple[tuple[int, ...], ...]
    itemsizes: tuple[int, ...]


class Hosted(NamedTuple):
    """A tensor that comes from the memory of the hosts and goes back to it; dims: per dimension that of the node's labels."""

    shape: tuple[int, ...]
    itemsize: int
    dims: tuple[int, ...]


Term = Work | Transfer | Borders | Hosted
Counts = Mapping[Term, int]


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """What a choice of labels costs, as counts of equal terms.

    Attributes:
        groups: number of groups, the first nodes.
        operators: free operators, the nodes after them.
        views: tensors with a view, the last nodes.
        nodes: per node its own terms; a transfer among them is from the node to itself.
        edges: per pair of nodes (smaller first) its terms, each with whether the smaller node is the source.
        examples: per kind of work an operator that does it.
    """

    groups: int
    operators: tuple[int, ...]
    views: tuple[int, ...]
    nodes: tuple[Counts, ...]
    edges: Mapping[tuple[int, int], Mapping[tuple[Transfer, bool], int]]
    examples: Mapping[Work, Operator]


def viewed(graph: Graph, structure: Structure) -> tuple[int, ...]:
    """Tensors that more than one free operator reads."""
    readers: collections.Counter[int] = collections.Counter()
    for operator in structure.free:
        readers.update(set(operator.inputs))
    return tuple(sorted(t for t, count in readers.items() if count > 1 and structure.group_of[t] >= 0))


def terms(graph: Graph, structure: Structure) -> Terms:
    """All terms of a program."""
    return _Walk(graph, structure).terms()


class _Walk:
    def __init__(self, graph: Graph, structure: Structure):
        self.graph, self.structure = graph, structure
        self.groups = len(structure.groups)
        self.operators = tuple(operator.id for operator in structure.free)
        self.views = viewed(graph, structure)
        self.node_of_operator = {o: self.groups + index for index, o in enumerate(self.operators)}
        start = self.groups + len(self.operators)
        self.node_of_view = {t: start + index for index, t in enumerate(self.views)}
        self.nodes: list[dict[Term, int]] = [{} for _ in range(start + len(self.views))]
        self.edges: dict[tuple[int, int], dict[tuple[Transfer, bool], int]] = {}
        self.examples: dict[Work, Operator] = {}

    def terms(self) -> Terms:
        dims = self.structure.dims_of
        made: set[int] = set()
        for operator, times in self.graph.walk():
            if operator.subgraphs:
                continue
            for tensor in operator.inputs:
                # A view is made once where its readers are: in a loop, once a round.
                if (view := self.node_of_view.get(tensor, -1)) >= 0 and tensor not in made:
                    made.add(tensor)
                    group = self.structure.group_of[tensor]
                    self._transfer(group, view, tensor, dims[tensor], dims[tensor], frozenset(), times)
            self._work(operator, times)
            if operator.id in self.node_of_operator:
                self._free(operator, times)
            elif operator.id in self.structure.anchored:
                self._anchored(operator, self.structure.anchored[operator.id], times)
        for tensor in self.graph.hosted:
            value, node = self.graph.tensors[tensor], self.structure.group_of[tensor]
            hosted = Hosted(value.shape, value.itemsize, dims[tensor])
            self.nodes[node][hosted] = self.nodes[node].get(hosted, 0) + 1
        return Terms(self.groups, self.operators, self.views, tuple(self.nodes), self.edges, self.examples)

    def _work(self, operator: Operator, times: int) -> None:
        """Time of the operator itself belongs to the node that decides how it is cut."""
        node = self.node_of_operator.get(operator.id, -1)
        if node < 0:
            anchor = self.structure.anchored.get(operator.id, operator.results[0] if operator.results else -1)
            node = self.structure.group_of[anchor] if anchor >= 0 else -1
            if node < 0:
                return
        tensors = self.graph.tensors
        size = self.graph.traffic[operator.id]
        matrix = operator.primitive in MATRIX_PRIMITIVES
        work = Work(
            matrix, operator.flops if matrix else 0.0, size, tensors[operator.results[0]].dtype if matrix else ""
        )
        self.examples.setdefault(work, operator)
        self.nodes[node][work] = self.nodes[node].get(work, 0) + times

    def _free(self, operator: Operator, times: int) -> None:
        node = self.node_of_operator[operator.id]
        if any(factor.borders for factor in operator.rule.factors):
            tensors = [self.graph.tensors[t] if isinstance(t, int) else None for t in operator.operands]
            shapes = tuple(tensor.shape if tensor else () for tensor in tensors)
            itemsizes = tuple(tensor.itemsize if tensor else 0 for tensor in tensors)
            term = Borders(operator.rule, shapes, itemsizes)
            self.nodes[node][term] = self.nodes[node].get(term, 0) + times
        seen: set[tuple[int, Dims]] = set()
        for operand, dims in zip(operator.operands, operator.rule.operands, strict=True):
            if not isinstance(operand, int) or self.structure.group_of[operand] < 0 or (operand, dims) in seen:
                continue
            seen.add((operand, dims))
            source = self.node_of_view.get(operand, self.structure.group_of[operand])
            self._transfer(source, node, operand, self.structure.dims_of[operand], majors(dims), frozenset(), times)
        reduced = frozenset(index for index, factor in enumerate(operator.rule.factors) if factor.kind == "reduce")
        for result, dims in zip(operator.results, operator.rule.results, strict=True):
            self._result(result, node, majors(dims), reduced, times)

    def _anchored(self, operator: Operator, anchor: int, times: int) -> None:
        node = self.structure.group_of[anchor]
        anchor_dims = next(dims for tensor, dims in tensors_of(operator) if tensor == anchor)
        place = {factors[0]: dim for dim, factors in enumerate(anchor_dims) if factors}
        logical = self.structure.dims_of[anchor]

        def translated(dims: Dims) -> tuple[int, ...]:
            """The tensor's dimensions in logical dimensions of the anchor's group."""
            return tuple(logical[place[factors[0]]] if factors and factors[0] in place else -1 for factors in dims)

        kinds = operator.rule.factors
        reduced = frozenset(logical[dim] for factor, dim in place.items() if kinds[factor].kind == "reduce")
        for operand, dims in zip(operator.operands, operator.rule.operands, strict=True):
            if isinstance(operand, int) and operand != anchor and self.structure.group_of[operand] >= 0:
                own = self.structure.dims_of[operand]
                self._transfer(
                    self.structure.group_of[operand], node, operand, own, translated(dims), frozenset(), times
                )
        for result, dims in zip(operator.results, operator.rule.results, strict=True):
            if result != anchor:
                self._result(result, node, translated(dims), reduced, times)

    def _result(self, result: int, node: int, dims: tuple[int, ...], reduced: frozenset[int], times: int) -> None:
        group = self.structure.group_of[result]
        if group >= 0:
            self._transfer(node, group, result, dims, self.structure.dims_of[result], reduced, times)
        elif reduced:
            tensor = self.graph.tensors[result]
            term = Transfer(tensor.shape, tensor.itemsize, (), None, reduced)
            self.nodes[node][term] = self.nodes[node].get(term, 0) + times

    def _transfer(
        self,
        source: int,
        target: int,
        tensor: int,
        source_dims: tuple[int, ...],
        target_dims: tuple[int, ...],
        reduced: frozenset[int],
        times: int,
    ) -> None:
        value = self.graph.tensors[tensor]
        term = Transfer(value.shape, value.itemsize, source_dims, target_dims, reduced)
        if source == target:
            if source_dims != target_dims or reduced:
                self.nodes[source][term] = self.nodes[source].get(term, 0) + times
            return
        pair, forward = ((source, target), True) if source < target else ((target, source), False)
        counts = self.edges.setdefault(pair, {})
        counts[term, forward] = counts.get((term, forward), 0) + times


def majors(dims: Dims) -> tuple[int, ...]:
    """Per dimension the factor that its layout cuts."""
    return tuple(factors[0] if factors else -1 for factors in dims)
