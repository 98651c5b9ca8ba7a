"""Rules of gather and scatter.

A dimension that is indexed one element at a time can be cut: every device then serves the indices that fall into its part. A
gather adds the parts up, a scatter has nothing to add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Building, Rule, RuleFunction, Shape


def gather(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    numbers = params["dimension_numbers"]
    batching = tuple(getattr(numbers, "operand_batching_dims", ()))
    indices_batching = tuple(getattr(numbers, "start_indices_batching_dims", ()))
    operand, indices, out = operands[0], operands[1], results[0]
    building = Building(operands, results)
    windows = iter(d for d in range(len(operand)) if d not in numbers.collapsed_slice_dims and d not in batching)
    rows = iter(range(len(indices) - 1))
    for dim, size in enumerate(out):
        if dim not in numbers.offset_dims:
            row = next(rows)
            shared = {0: batching[indices_batching.index(row)]} if row in indices_batching else {}
            building.add(size, "map", {**shared, 1: row}, {0: dim})
            continue
        source = next(windows)
        if size == operand[source]:
            building.add(size, "map", {0: source}, {0: dim})
    for dim in numbers.collapsed_slice_dims:
        if dim in numbers.start_index_map:
            building.add(operand[dim], "reduce", {0: dim}, {}, "sum")
    return building.fill(operands, results).build()


def scatter(combine: str) -> RuleFunction:
    """Updates written into a copy of the operand, combined with what is there; "" replaces it."""

    def rule(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
        numbers = params["dimension_numbers"]
        batching = tuple(getattr(numbers, "operand_batching_dims", ()))
        indices_batching = tuple(getattr(numbers, "scatter_indices_batching_dims", ()))
        operand, indices, updates = operands
        building = Building(operands, results)
        windows = iter(d for d in range(len(operand)) if d not in numbers.inserted_window_dims and d not in batching)
        rows = iter(range(len(indices) - 1))
        for dim, size in enumerate(updates):
            if dim in numbers.update_window_dims:
                target = next(windows)
                if size == operand[target]:
                    building.add(size, "map", {0: target, 2: dim}, {0: target})
                else:
                    building.add(operand[target], "fixed", {0: target}, {0: target})
                continue
            row = next(rows)
            if row in indices_batching:
                target = batching[indices_batching.index(row)]
                building.add(size, "map", {0: target, 1: row, 2: dim}, {0: target})
            elif combine:
                building.add(size, "reduce", {1: row, 2: dim}, {}, combine)
            else:
                building.add(size, "fixed", {1: row, 2: dim}, {})
        for dim in numbers.inserted_window_dims:
            served = dim in numbers.scatter_dims_to_operand_dims
            building.add(operand[dim], "map" if served else "fixed", {0: dim}, {0: dim})
        return building.fill(operands, results).build()

    return rule
