"""The search space: which assignments a group of tensors or an operator may take on a mesh."""

from __future__ import annotations

import itertools
import math
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
    choices = [
        [-1, *(dim for dim, length in enumerate(lengths) if shardable[dim] and length % size == 0)] for size in sizes
    ]
    found = []
    for assignment in itertools.product(*choices):
        cuts = [
            math.prod(size for size, chosen in zip(sizes, assignment, strict=True) if chosen == dim)
            for dim in range(len(lengths))
        ]
        if all(length % cut == 0 for length, cut in zip(lengths, cuts, strict=True)):
            found.append(assignment)
    return tuple(found)


def group_assignments(group: Group, sizes: Sequence[int]) -> tuple[Assignment, ...]:
    return assignments(group.sizes, group.shardable, sizes)


def operator_assignments(operator: Operator, sizes: Sequence[int]) -> tuple[Assignment, ...]:
    factors = operator.rule.factors
    return assignments([factor.size for factor in factors], [factor.shardable for factor in factors], sizes)
