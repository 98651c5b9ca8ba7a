"""Rules of sliding windows: what a shard of a dimension needs of its neighbours.

Along one dimension, element o of the result sees position

    stride x o + dilation x w - low

of the operand for each element w of the window; between two elements of the operand lie `holes` - 1 positions that hold nothing.
Result and window play equal parts: a dimension can be cut along the result (every shard slides the whole window over its part), or,
where the window is as long as the operand (the gradient of a kernel), along the window, which leaves partial sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Border, Building, Rule, Shape


@dataclasses.dataclass(frozen=True)
class Window:
    """How a window slides along one dimension; lengths are of the operand, the window and the result."""

    operand: int
    window: int
    result: int
    stride: int = 1
    dilation: int = 1
    holes: int = 1
    low: int = 0

    def along_result(self) -> Border | None:
        """The border of a shard where operand and result are cut alike; None where shards would not line up."""
        return self._border(self.result, self.stride, self.window, self.dilation)

    def along_window(self) -> Border | None:
        """The border of a shard where operand and window are cut alike; None where shards would not line up."""
        return self._border(self.window, self.dilation, self.result, self.stride)

    def _border(self, cut: int, step: int, whole: int, spread: int) -> Border | None:
        if self.operand * self.holes != cut * step:
            return None
        before = max(0, self.low // self.holes)
        after = max(0, ((whole - 1) * spread - step - self.low) // self.holes + 1)
        return Border(0, 0, before, after)


def parts(lengths: Sequence[int], borders: Sequence[tuple[int, Border]]) -> int:
    """The largest number that divides all lengths and leaves every shard at least as long as what its neighbours ask of it.

    Args:
        lengths: of the dimensions that are cut together.
        borders: the length of an operand and its border.
    """
    common = math.gcd(*lengths)
    most = min((length // max(1, border.before, border.after) for length, border in borders), default=common)
    return max(number for number in range(1, common + 1) if common % number == 0 and number <= max(1, most))


def sliding(operands: Sequence[Shape], results: Sequence[Shape], params: Mapping[str, Any]) -> Rule:
    """Reductions of windows: dimensions are mapped where the window is a single element, and exchange borders elsewhere."""
    building = Building(operands, results)
    rank = len(params["window_dimensions"])
    for dim in range(rank):
        if _untouched(operands, results, params, dim):
            building.add(operands[0][dim], "map", {0: dim}, {0: dim})
            continue
        window = _window(params, dim, operands[0][dim], results[0][dim])
        border = window.along_result()
        if border is not None:
            border = dataclasses.replace(border, dim=dim)
            size = parts((operands[0][dim], results[0][dim]), [(operands[0][dim], border)])
            building.add(size, "halo", {0: dim}, {0: dim}, borders=(border,))
    return building.fill(operands, results).build()


def selecting(operands: Sequence[Shape], results: Sequence[Shape], params: Mapping[str, Any]) -> Rule:
    """What is scattered to the element that each window selects: sources (one per window), operand, result like the operand.

    A shard takes the windows that touch it from its neighbours, and the elements that those windows see.
    """
    building = Building(operands, results)
    for dim in range(len(params["window_dimensions"])):
        if _untouched((operands[1],), (operands[0],), params, dim):
            building.add(operands[1][dim], "map", {0: dim, 1: dim}, {0: dim})
            continue
        window = _window(params, dim, operands[1][dim], operands[0][dim])
        if window.operand != window.result * window.stride:
            continue
        step, low = window.stride, window.low
        before, after = max(0, (window.window - 1 - low) // step), max(0, -(-low // step))
        source = Border(0, dim, before, after)
        seen = Border(1, dim, step * before + low, max(0, step * (after - 1) - low + window.window))
        size = parts((window.operand, window.result), [(window.result, source), (window.operand, seen)])
        building.add(size, "halo", {0: dim, 1: dim}, {0: dim}, borders=(source, seen))
    return building.fill(operands, results).build(local=True)


def mapped(operands: Sequence[Shape], results: Sequence[Shape], params: Mapping[str, Any]) -> Rule:
    """Windows whose borders nobody exchanges: dimensions with a window of one element are mapped, the others stay whole."""
    building = Building(operands, results)
    rank = len(params["window_dimensions"])
    tensors = [position for position, shape in enumerate(operands) if len(shape) == rank]
    for dim in range(rank):
        if _untouched([operands[position] for position in tensors], results, params, dim):
            shown = dict.fromkeys(range(len(results)), dim)
            building.add(operands[tensors[0]][dim], "map", dict.fromkeys(tensors, dim), shown)
    return building.fill(operands, results).build()


def _untouched(operands: Sequence[Shape], results: Sequence[Shape], params: Mapping[str, Any], dim: int) -> bool:
    """Whether every element of a dimension is a window of its own; a window of 1 may still shift its operand."""
    lengths = {shape[dim] for shape in (*operands, *results)}
    return params["window_dimensions"][dim] == 1 and len(lengths) == 1 and not any(_padding(params, dim))


def _padding(params: Mapping[str, Any], dim: int) -> tuple[int, int]:
    padding = params.get("padding")
    return (0, 0) if padding is None else tuple(padding[dim])


def _window(params: Mapping[str, Any], dim: int, operand: int, result: int) -> Window:
    def of(name: str) -> int:
        values = params.get(name)
        return 1 if values is None else int(values[dim])

    return Window(
        operand,
        int(params["window_dimensions"][dim]),
        result,
        of("window_strides"),
        of("window_dilation"),
        of("base_dilation"),
        int(_padding(params, dim)[0]),
    )
