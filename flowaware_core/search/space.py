"""The search space: which assignments a group of tensors or an operator may take on a mesh."""

from __future__ import annotations

from collections.abc import Sequence

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.graph.model import Operator
from flowaware_core.graph.placement import Assignment
from flowaware_core.graph.rules import Cut
from flowaware_core.graph.structure import Group


def assignments(
    lengths: Sequence[int], shardable: Sequence[Cut], sizes: Sequence[int], alike: Mesh | None = None
) -> tuple[Assignment, ...]:
    """Every way to put each mesh axis on one dimension or on none.

    Unequal shards are offered for the axes that divide none of the dimensions: where equal ones exist they are never slower.

    Args:
        lengths: per dimension its length.
        shardable: per dimension how it may be cut.
        sizes: per mesh axis its size.
        alike: a mesh with these sizes, whose interchangeable axes shall not be told apart: of assignments that differ in their
            order only the one that ascends is offered, "none" last. Then there is one for every assignment of every mesh of which
            it is the finest.
    """
    tied = alike.tied if alike else (False,) * len(sizes)
    wholes = alike.levels if alike else sizes
    found: list[tuple[Assignment, tuple[int, ...]]] = [((), (1,) * len(lengths))]
    for size, whole, again in zip(sizes, wholes, tied, strict=True):
        equal = any(how and length % whole == 0 for length, how in zip(lengths, shardable, strict=True))
        allowed = [min(how, Cut.EVEN) for how in shardable] if equal else shardable
        found = [
            ((*assignment, dim), cuts if dim < 0 else (*cuts[:dim], cuts[dim] * size, *cuts[dim + 1 :]))
            for assignment, cuts in found
            for dim in range(-1, len(cuts))
            if dim < 0 or (allowed[dim] and fits(lengths[dim], cuts[dim] * size, allowed[dim]))
            if not again or dim < 0 or 0 <= assignment[-1] <= dim
        ]
    return tuple(assignment for assignment, _ in found)


def fits(length: int, cut: int, how: Cut) -> bool:
    """Whether a length may be cut into so many shards: equal ones, or padded ones of which at most half are padding."""
    return length % cut == 0 or (how == Cut.UNEVEN and -(-length // cut) * cut <= 2 * length)


def group_assignments(group: Group, sizes: Sequence[int], alike: Mesh | None = None) -> tuple[Assignment, ...]:
    return assignments(group.sizes, group.shardable, sizes, alike)


def operator_assignments(operator: Operator, sizes: Sequence[int], alike: Mesh | None = None) -> tuple[Assignment, ...]:
    """Every way to put each mesh axis on a factor or on none; shards that exchange borders are equal in every dimension."""
    factors = operator.rule.factors
    lengths = [factor.size for factor in factors]
    found = assignments(lengths, [factor.cut for factor in factors], sizes, alike)
    bordered = {index for index, factor in enumerate(factors) if factor.borders}
    if not bordered:
        return found
    even = set(assignments(lengths, [min(factor.cut, Cut.EVEN) for factor in factors], sizes, alike))
    return tuple(assignment for assignment in found if bordered.isdisjoint(assignment) or assignment in even)
