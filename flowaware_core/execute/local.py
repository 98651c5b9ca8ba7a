"""Operators that every device runs on its own shards, out of the partitioner's hands.

Parameters that hold sizes are adapted to the shards; partial results are combined on the spot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import PartitionSpec

from flowaware_core import versions
from flowaware_core.graph.layout import Layout
from flowaware_core.graph.model import Operator
from flowaware_core.graph.placement import OperatorPlacement

Params = dict[str, Any]
_COMBINE = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}


def bind(
    operator: Operator,
    values: Sequence[Any],
    placement: OperatorPlacement,
    mesh: jax.sharding.Mesh,
    spec: Callable[[Layout], PartitionSpec],
) -> list[Any]:
    """Runs an operator on the shards of its operands.

    Args:
        operator: what to run.
        values: its operands, literals as plain values.
        placement: the layouts of operands and results.
        mesh: the devices.
        spec: a layout as `jax.sharding` writes it.
    """
    equation = operator.equation
    adapt = _ADAPT.get(operator.primitive)

    def run(*shards: Any) -> list[Any]:
        params = adapt(dict(equation.params), equation, shards) if adapt else None
        results = versions.bind(equation, shards, params)
        return [
            _combined(operator, value, result.partial, mesh)
            for value, result in zip(results, placement.results, strict=True)
        ]

    inputs = tuple(spec(layout or ()) for layout in placement.operands)
    outputs = [spec(result.layout) for result in placement.results]
    return versions.shard_map(run, mesh, inputs, outputs)(*values)


def _combined(operator: Operator, value: Any, partial: Sequence[Sequence[int]], mesh: jax.sharding.Mesh) -> Any:
    """The sum (or maximum ...) over the devices, one collective per dimension that was reduced."""
    how = next((factor.combine for factor in operator.rule.factors if factor.kind == "reduce"), "")
    for axes in partial:
        value = _COMBINE[how](value, tuple(mesh.axis_names[axis] for axis in axes))
    return value


def _convolution(params: Params, equation: Any, shards: Sequence[Any]) -> Params:
    """Fewer groups: groups are cut between each other, never inside."""
    numbers = params["dimension_numbers"]
    whole = equation.invars[1].aval.shape[numbers.rhs_spec[0]]
    cuts = whole // shards[1].shape[numbers.rhs_spec[0]]
    for name in ("feature_group_count", "batch_group_count"):
        if params[name] > 1:
            params[name] //= cuts
    return params


def _tridiagonal_solve(params: Params, equation: Any, shards: Sequence[Any]) -> Params:
    """0.4.34 repeats the shape of the right sides."""
    del equation
    return {**params, "n": shards[3].shape[-1]} if "n" in params else params


_ADAPT: dict[str, Callable[[Params, Any, Sequence[Any]], Params]] = {
    "conv_general_dilated": _convolution,
    "tridiagonal_solve": _tridiagonal_solve,
}
