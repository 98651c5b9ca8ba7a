"""Rules of reductions, of what runs along a dimension, and of sliding windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Building, Rule, RuleFunction, Shape, mapped_except


def reduction(combine: str, axes: str = "axes") -> RuleFunction:
    """Reduces over the dimensions in parameter `axes`; without a way to combine partial results they stay whole."""

    def rule(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
        building = Building(operands, results)
        rank = len(operands[0])
        reduced = {axis % rank for axis in params[axes]}
        # Initial values are scalars.
        inputs = [position for position, shape in enumerate(operands) if len(shape) == rank]
        out = 0
        for dim, size in enumerate(operands[0]):
            if dim in reduced:
                building.add(size, "reduce" if combine else "fixed", dict.fromkeys(inputs, dim), {}, combine)
            else:
                building.add(size, "map", dict.fromkeys(inputs, dim), dict.fromkeys(range(len(results)), out))
                out += 1
        return building.build()

    return rule


def fft(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    rank = len(operands[0])
    return mapped_except(operands, results, range(rank - len(params["fft_lengths"]), rank), local=True)


def top_k(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    return mapped_except(operands, results, [params.get("axis", -1)], local=True)


def window(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Sliding windows (reduce_window, its gradients): a dimension with a window of 1 is mapped, the others carry a halo."""
    size = params["window_dimensions"]
    rank = len(size)
    building = Building(operands, results)
    tensors = [position for position, shape in enumerate(operands) if len(shape) == rank]
    for dim in range(rank):
        lengths = {operands[position][dim] for position in tensors} | {shape[dim] for shape in results}
        if size[dim] == 1 and len(lengths) == 1 and not _padded(params, dim):
            building.add(lengths.pop(), "map", dict.fromkeys(tensors, dim), dict.fromkeys(range(len(results)), dim))
    return building.fill(operands, results, "halo").build()


def window_locally(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """A window that the partitioner gathers whatever it is cut along."""
    return dataclasses.replace(window(operands, results, params), local=True)


def _padded(params: dict[str, Any], dim: int) -> bool:
    """A window of 1 may still shift its operand."""
    padding = params.get("padding")
    return padding is not None and tuple(padding[dim]) != (0, 0)
