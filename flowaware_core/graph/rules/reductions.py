"""Rules of reductions and of what runs along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Building, Rule, RuleFunction, Shape, mapped_except


def reduction(combine: str, axes: str = "axes", local: bool = False) -> RuleFunction:
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
        return building.build(local=local)

    return rule


def fft(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    rank = len(operands[0])
    return mapped_except(operands, results, range(rank - len(params["fft_lengths"]), rank), local=True)


def top_k(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    return mapped_except(operands, results, [params.get("axis", -1)], local=True)
