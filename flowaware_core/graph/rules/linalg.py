"""Rules of linear algebra: libraries work on whole matrices, so only batches of them are cut, by running them locally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Building, Rule, Shape, fixed


def triangular_solve(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Maps over the batch, and over the right sides of a [..., n, sides] (left) or [..., sides, n] (right) operand."""
    return _with_sides(operands, results, params, 1, len(operands[0]) - 2, -1 if params["left_side"] else -2)


def tridiagonal_solve(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Diagonals [..., n] and right sides [..., n, sides]."""
    return _with_sides(operands, results, params, 3, len(operands[0]) - 1, -1)


def _with_sides(
    operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any], right: int, batch: int, sides: int
) -> Rule:
    if any(shape[:batch] != operands[0][:batch] for shape in (*operands, *results)):
        return fixed(operands, results, params)
    building = Building(operands, results)
    for dim in range(batch):
        building.add(operands[0][dim], "map", dict.fromkeys(range(len(operands)), dim), {0: dim})
    column = len(operands[right]) + sides
    building.add(operands[right][column], "map", {right: column}, {0: column})
    return building.fill(operands, results).build(local=True)
