"""The search space: which assignments a group of tensors or an operator may take on a mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowaware_core.graph.model import Operator
from flowaware_core.graph.placement import Assignment
from flowaware_core.graph.structure import Group

Allow = Callable[[Assignment], bool]


def assignments(lengths: Sequence[int], shardable: Sequence[bool], sizes: Sequence[int]) -> tuple[Assignment, ...]:
    """Every way to put each mesh axis on one dimension or on none such that all shards are equal.

    Args:
        lengths: per dimension its length.
        shardable: per dimension whether it may be cut at all.
        sizes: per mesh axis its size.
    """
    found: list[tuple[Assignment, tuple[int, ...]]] = [((), tuple(lengths))]
    for size in sizes:
        found = [
            ((*assignment, dim), left if dim < 0 else (*left[:dim], left[dim] // size, *left[dim + 1 :]))
            for assignment, left in found
            for dim in range(-1, len(left))
            if dim < 0 or (shardable[dim] and left[dim] % size == 0)
        ]
    return tuple(assignment for assignment, _ in found)


def group_assignments(group: Group, sizes: Sequence[int]) -> tuple[Assignment, ...]:
    return assignments(group.sizes, group.shardable, sizes)


def operator_assignments(operator: Operator, sizes: Sequence[int]) -> tuple[Assignment, ...]:
    factors = operator.rule.factors
    return assignments([factor.size for factor in factors], [factor.shardable for factor in factors], sizes)
