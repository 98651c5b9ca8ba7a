"""Rules of matrix products and convolutions."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Building, Rule, Shape, fixed
from flowaware_core.graph.rules.windows import Window, parts


def dot_general(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    (left_contract, right_contract), (left_batch, right_batch) = params["dimension_numbers"]
    building = Building(operands, results)
    out = 0
    for left, right in zip(left_batch, right_batch, strict=True):
        building.add(operands[0][left], "map", {0: left, 1: right}, {0: out})
        out += 1
    for position, (contract, batch) in enumerate(((left_contract, left_batch), (right_contract, right_batch))):
        for dim, size in enumerate(operands[position]):
            if dim not in contract and dim not in batch:
                building.add(size, "map", {position: dim}, {0: out})
                out += 1
    for left, right in zip(left_contract, right_contract, strict=True):
        building.add(operands[0][left], "reduce", {0: left, 1: right}, {}, "sum")
    return building.build()


def ragged_dot(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """[rows, k] with [groups, k, columns], each row with the matrix of its group: the rows and the groups stay whole."""
    numbers = params.get("ragged_dot_dimension_numbers")
    if numbers is not None and (
        tuple(map(tuple, map(tuple, numbers.dot_dimension_numbers[0]))) != ((1,), (1,))
        or any(numbers.dot_dimension_numbers[1])
        or tuple(numbers.lhs_ragged_dimensions) != (0,)
        or tuple(numbers.rhs_group_dimensions) != (0,)
    ):
        return fixed(operands, results, params)
    building = Building(operands, results)
    building.add(operands[1][2], "map", {1: 2}, {0: 1})
    building.add(operands[0][1], "reduce", {0: 1, 1: 1}, {}, "sum")
    return building.fill(operands, results).build()


def convolution(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    numbers = params["dimension_numbers"]
    lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    building = Building(operands, results)
    if batch_groups > 1:
        # Examples come in groups, the group major; each meets the output channels of its group only.
        building.add(batch_groups, "map", {0: lhs[0], 1: rhs[0]}, {0: out[1]})
        building.add(operands[0][lhs[1]], "reduce", {0: lhs[1], 1: rhs[1]}, {}, "sum")
        building.add(results[0][out[0]], "fixed", {0: lhs[0]}, {0: out[0]})
        building.add(operands[1][rhs[0]] // batch_groups, "fixed", {1: rhs[0]}, {0: out[1]})
    else:
        building.add(operands[0][lhs[0]], "map", {0: lhs[0]}, {0: out[0]})
        if groups > 1:
            building.add(groups, "map", {0: lhs[1], 1: rhs[0]}, {0: out[1]})
            building.add(operands[1][rhs[1]], "fixed", {0: lhs[1], 1: rhs[1]}, {})
            building.add(operands[1][rhs[0]] // groups, "fixed", {1: rhs[0]}, {0: out[1]})
        else:
            building.add(operands[0][lhs[1]], "reduce", {0: lhs[1], 1: rhs[1]}, {}, "sum")
            building.add(operands[1][rhs[0]], "map", {1: rhs[0]}, {0: out[1]})
    for index in range(len(lhs) - 2):
        _spatial(building, operands, results, params, index)
    return building.build(local=groups > 1 or batch_groups > 1)


def _spatial(
    building: Building, operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any], index: int
) -> None:
    """The factors of one dimension along which the kernel slides."""
    numbers = params["dimension_numbers"]
    left, kernel, out = numbers.lhs_spec[2 + index], numbers.rhs_spec[2 + index], numbers.out_spec[2 + index]
    window = Window(
        operands[0][left],
        operands[1][kernel],
        results[0][out],
        params["window_strides"][index],
        params["rhs_dilation"][index],
        params["lhs_dilation"][index],
        params["padding"][index][0],
    )
    if window.window == window.stride == window.holes == 1 and tuple(params["padding"][index]) == (0, 0):
        building.add(window.window, "fixed", {1: kernel}, {})
        building.add(window.operand, "map", {0: left}, {0: out})
        return
    border = window.along_result() if window.window <= window.result else None
    if border is not None:
        border = dataclasses.replace(border, dim=left)
        size = parts((window.operand, window.result), [(window.operand, border)])
        building.add(window.window, "fixed", {1: kernel}, {})
        building.add(size, "halo", {0: left}, {0: out}, borders=(border,))
        return
    border = window.along_window()
    if border is not None:
        border = dataclasses.replace(border, dim=left)
        size = parts((window.operand, window.window), [(window.operand, border)])
        building.add(size, "reduce", {0: left, 1: kernel}, {}, "sum", (border,))
        building.add(window.result, "fixed", {}, {0: out})
        return
    building.add(window.window, "fixed", {1: kernel}, {})
    building.add(window.operand, "fixed", {0: left}, {})
    building.add(window.result, "fixed", {}, {0: out})
