"""From the choices of a plan to the layout of every value: what the cost model prices and the executor constrains.

A choice is one `Assignment` per group of tensors, per free operator, and per view. A view is the layout in which the free
operators that read one tensor find it: gathered once, used several times (a sharded weight in the forward and the backward
pass).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from flowaware_core.graph.layout import Layout, whole
from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.rules import Border, Dims, Rule
from flowaware_core.graph.structure import Structure

# Per mesh axis the logical dimension (of a group) or factor (of an operator) that it cuts, -1 for none.
Assignment = tuple[int, ...]
# Axes over which a result is partial, one tuple per dimension that was reduced: each is one collective.
Partial = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Choices:
    """Everything that a plan decides.

    Attributes:
        groups: an assignment of logical dimensions per group.
        operators: free operator id -> an assignment of its factors.
        views: tensor id -> an assignment of its group's logical dimensions.
    """

    groups: tuple[Assignment, ...]
    operators: Mapping[int, Assignment]
    views: Mapping[int, Assignment]


@dataclasses.dataclass(frozen=True)
class Result:
    """How an operator leaves one result: its layout, and the axes over which it is partial."""

    layout: Layout
    partial: Partial


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A border that shards of an operand get from their neighbours along `axes` before the operator runs."""

    border: Border
    axes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class OperatorPlacement:
    """How one operator runs.

    Attributes:
        operands: layouts; None for a literal.
        results: layouts and what is partial.
        free: whether it reads its operands from their views.
        exchanges: borders along the dimensions that are cut, in the order in which they are exchanged.
    """

    operands: tuple[Layout | None, ...]
    results: tuple[Result, ...]
    free: bool = False
    exchanges: tuple[Exchange, ...] = ()

    @property
    def cut(self) -> bool:
        """Whether any device works on less than the whole."""
        layouts = (*(layout or () for layout in self.operands), *(result.layout for result in self.results))
        return any(axes for layout in layouts for axes in layout)


@dataclasses.dataclass(frozen=True)
class Placement:
    """The layouts of the whole program.

    Attributes:
        tensors: where each tensor is kept.
        views: tensor id -> where free operators read it, where that differs.
        operators: per operator id; structured operators have none of their own.
    """

    tensors: tuple[Layout, ...]
    views: Mapping[int, Layout]
    operators: Mapping[int, OperatorPlacement]


def place(graph: Graph, structure: Structure, choices: Choices) -> Placement:
    """Spells a plan's choices out for every value."""
    tensors = tuple(tensor_layout(structure, tensor.id, choices.groups) for tensor in graph.tensors)
    views = {
        tensor: group_layout(structure, tensor, assignment)
        for tensor, assignment in choices.views.items()
        if group_layout(structure, tensor, assignment) != tensors[tensor]
    }
    return Placement(tensors, views, _operators(graph, structure, choices, tensors))


def _operators(
    graph: Graph, structure: Structure, choices: Choices, tensors: Sequence[Layout]
) -> dict[int, OperatorPlacement]:
    """The placement of every operator; one object for operators of one kind that are cut alike."""
    kinds = _kinds(graph)
    found: dict[int, OperatorPlacement] = {}
    known: dict[tuple[int, Assignment, bool], OperatorPlacement] = {}
    for operator, _ in graph.walk():
        if operator.subgraphs:
            continue
        free = operator.id in choices.operators
        assignment = operator_assignment(operator, structure, choices, tensors)
        if assignment is None:
            found[operator.id] = operator_placement(operator, None, tensors, free)
            continue
        key = (kinds[operator.id], assignment, free)
        placement = known.get(key)
        if placement is None:
            placement = known[key] = operator_placement(operator, assignment, tensors, free)
        found[operator.id] = placement
    return found


@functools.lru_cache(maxsize=2)
def _kinds(graph: Graph) -> dict[int, int]:
    """Per operator a number for its rule and which of its operands are tensors."""
    numbers: dict[object, int] = {}
    return {
        operator.id: numbers.setdefault(
            (operator.rule, tuple(isinstance(operand, int) for operand in operator.operands)), len(numbers)
        )
        for operator, _ in graph.walk()
        if not operator.subgraphs
    }


def group_layout(structure: Structure, tensor: int, assignment: Assignment) -> Layout:
    """Layout of a tensor under an assignment of its group's logical dimensions."""
    return layout_of(structure.dims_of[tensor], assignment)


def factor_layout(dims: Dims, assignment: Assignment) -> Layout:
    """Layout of an operator's tensor under an assignment of factors; a merged dimension is cut by its major factor."""
    return layout_of(tuple(factors[0] if factors else -1 for factors in dims), assignment)


def partial_axes(operator: Operator, assignment: Assignment) -> Partial:
    """The axes that cut factors which results do not show: they are left with partial results."""
    factors = operator.rule.factors
    reduced = [index for index in dict.fromkeys(assignment) if index >= 0 and factors[index].kind == "reduce"]
    return tuple(tuple(axis for axis, factor in enumerate(assignment) if factor == index) for index in reduced)


def tensor_layout(structure: Structure, tensor: int, groups: Sequence[Assignment]) -> Layout:
    group = structure.group_of[tensor]
    dims = structure.dims_of[tensor]
    return whole(len(dims)) if group < 0 else layout_of(dims, groups[group])


def operator_assignment(
    operator: Operator, structure: Structure, choices: Choices, tensors: Sequence[Layout]
) -> Assignment | None:
    """The factors each axis cuts: chosen for a free operator, read off the tensor it follows otherwise."""
    if operator.id in choices.operators:
        return choices.operators[operator.id]
    anchor = structure.anchored.get(operator.id, operator.results[0] if operator.results else None)
    if anchor is None:
        return None
    layout = tensors[anchor]
    if anchor in operator.results:
        dims = operator.rule.results[operator.results.index(anchor)]
    else:
        dims = operator.rule.operands[operator.operands.index(anchor)]
    return _assignment_of(layout, tuple(factors[0] if factors else -1 for factors in dims))


@functools.lru_cache(maxsize=2**14)
def _assignment_of(layout: Layout, factors: tuple[int, ...]) -> Assignment:
    """The factor each axis cuts where a tensor of a layout consists of these factors."""
    count = 1 + max((axis for axes in layout for axis in axes), default=-1)
    assignment = [-1] * count
    for axes, factor in zip(layout, factors, strict=True):
        for axis in axes:
            assignment[axis] = factor
    return tuple(assignment)


def operator_placement(
    operator: Operator, assignment: Assignment | None, tensors: Sequence[Layout], free: bool
) -> OperatorPlacement:
    """Layouts of all operands and results under one assignment of factors."""
    if assignment is None:
        operands = tuple(tensors[t] if isinstance(t, int) else None for t in operator.operands)
        return OperatorPlacement(operands, tuple(Result(tensors[t], ()) for t in operator.results))
    partial = partial_axes(operator, assignment)
    operands = tuple(
        factor_layout(dims, assignment) if isinstance(operand, int) else None
        for operand, dims in zip(operator.operands, operator.rule.operands, strict=True)
    )
    results = tuple(Result(factor_layout(dims, assignment), partial) for dims in operator.rule.results)
    return OperatorPlacement(operands, results, free, exchanges(operator.rule, assignment))


def exchanges(rule: Rule, assignment: Assignment) -> tuple[Exchange, ...]:
    """The borders that shards exchange under an assignment of factors."""
    return tuple(
        Exchange(border, tuple(axis for axis, factor in enumerate(assignment) if factor == index))
        for index, factor in enumerate(rule.factors)
        if factor.borders and index in assignment
        for border in factor.borders
    )


@functools.lru_cache(maxsize=2**16)
def layout_of(dims: tuple[int, ...], assignment: Assignment) -> Layout:
    return tuple(
        tuple(axis for axis, chosen in enumerate(assignment) if chosen == dim) if dim >= 0 else () for dim in dims
    )
