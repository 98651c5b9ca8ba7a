"""Operators that every device runs on its own shards, out of the partitioner's hands.

Parameters that hold sizes are adapted to the shards; partial results are combined on the spot. A window that slides along a cut
dimension sees the borders of the neighbouring shards, which are exchanged first.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from flowaware_core import versions
from flowaware_core.graph.layout import Layout, local_shape
from flowaware_core.graph.model import Operator
from flowaware_core.graph.placement import Exchange, OperatorPlacement
from flowaware_core.graph.rules import Border

Params = dict[str, Any]
Spread = tuple[int, int]
_COMBINE = {"sum": jax.lax.psum, "max": jax.lax.pmax, "min": jax.lax.pmin}


def bind(
    operator: Operator,
    values: Sequence[Any],
    placement: OperatorPlacement,
    mesh: jax.sharding.Mesh,
    spec: Callable[[Layout], PartitionSpec],
) -> list[Any]:
    """Runs an operator on the shards of its operands, after an exchange of borders where a window slides along a cut dimension.

    Args:
        operator: what to run.
        values: its operands, literals as plain values.
        placement: the layouts of operands and results.
        mesh: the devices.
        spec: a layout as `jax.sharding` writes it.
    """
    equation = operator.equation
    sizes = tuple(mesh.shape[name] for name in mesh.axis_names)
    shapes = [
        local_shape(variable.aval.shape, result.layout, sizes)
        for variable, result in zip(equation.outvars, placement.results, strict=True)
    ]
    adapt = _ADAPT.get(operator.primitive)

    def run(*shards: Any) -> list[Any]:
        wide = list(shards)
        for exchange in placement.exchanges:
            position = exchange.border.operand
            wide[position] = _widened(
                wide[position], exchange, mesh, _padding(operator, position, wide[position].dtype)
            )
        params = adapt(dict(equation.params), _Local(equation, wide, shapes, placement)) if adapt else None
        results = versions.bind(equation, wide, params)
        return [
            _combined(operator, _middle(value, shape, placement), result.partial, mesh)
            for value, shape, result in zip(results, shapes, placement.results, strict=True)
        ]

    inputs = tuple(spec(layout or ()) for layout in placement.operands)
    outputs = [spec(result.layout) for result in placement.results]
    return versions.shard_map(run, mesh, inputs, outputs)(*values)


@dataclasses.dataclass(frozen=True, eq=False)
class _Local:
    """An operator on one device: its equation, its operands with their borders, and the shapes its results shall have."""

    equation: Any
    operands: Sequence[Any]
    results: Sequence[tuple[int, ...]]
    placement: OperatorPlacement

    def border(self, operand: int, dim: int) -> Border | None:
        """The border along a dimension of an operand; None where it is not cut."""
        found = (exchange.border for exchange in self.placement.exchanges)
        return next((border for border in found if (border.operand, border.dim) == (operand, dim)), None)


def _widened(shard: Any, exchange: Exchange, mesh: jax.sharding.Mesh, padding: Any) -> Any:
    """A shard between the borders of its neighbours; at the ends of the dimension `padding` stands for the missing one."""
    border, names = exchange.border, tuple(mesh.axis_names[axis] for axis in exchange.axes)
    count, length = math.prod(mesh.shape[name] for name in names), shard.shape[border.dim]
    pieces = [shard]
    if border.before:
        edge = jax.lax.slice_in_dim(shard, length - border.before, length, axis=border.dim)
        got = _sent(edge, names, [(index, index + 1) for index in range(count - 1)])
        pieces.insert(0, _unless(jax.lax.axis_index(names) == 0, got, padding))
    if border.after:
        edge = jax.lax.slice_in_dim(shard, 0, border.after, axis=border.dim)
        got = _sent(edge, names, [(index + 1, index) for index in range(count - 1)])
        pieces.append(_unless(jax.lax.axis_index(names) == count - 1, got, padding))
    return jax.lax.concatenate(pieces, border.dim) if len(pieces) > 1 else shard


def _sent(edge: Any, names: tuple[str, ...], pairs: list[tuple[int, int]]) -> Any:
    """What a neighbour sends; zeros for who has none, as on an axis of one device."""
    return jax.lax.ppermute(edge, names, pairs) if pairs else jnp.zeros_like(edge)


def _unless(missing: Any, got: Any, padding: Any) -> Any:
    """What a neighbour sent; who has no neighbour got zeros, which most operators pad with."""
    return got if padding is None else jnp.where(missing, jnp.full_like(got, padding), got)


def _padding(operator: Operator, operand: int, dtype: Any) -> Any:
    """What an operator pads an operand with; None for zeros, which missing sources of a scatter are too."""
    chosen = operator.equation.params.get("select_prim")
    name = operator.primitive if chosen is None else str(chosen) if operand == 1 else ""
    if name not in ("reduce_window_max", "ge", "reduce_window_min", "le"):
        return None
    lowest = name in ("reduce_window_max", "ge")
    if jnp.issubdtype(dtype, jnp.floating):
        return -jnp.inf if lowest else jnp.inf
    limits = jnp.iinfo(dtype)
    return limits.min if lowest else limits.max


def _middle(value: Any, shape: tuple[int, ...], placement: OperatorPlacement) -> Any:
    """A result without the borders that came with its operands, where the operator keeps them."""
    if value.shape == shape:
        return value
    # The result lies where the widest operand lies: it starts behind the largest border.
    starts = [0] * len(shape)
    for exchange in placement.exchanges:
        starts[exchange.border.dim] = max(starts[exchange.border.dim], exchange.border.before)
    return jax.lax.slice(value, starts, [start + size for start, size in zip(starts, shape, strict=True)])


def _combined(operator: Operator, value: Any, partial: Sequence[Sequence[int]], mesh: jax.sharding.Mesh) -> Any:
    """The sum (or maximum ...) over the devices, one collective per dimension that was reduced."""
    how = next((factor.combine for factor in operator.rule.factors if factor.kind == "reduce"), "")
    for axes in partial:
        value = _COMBINE[how](value, tuple(mesh.axis_names[axis] for axis in axes))
    return value


def _convolution(params: Params, found: _Local) -> Params:
    """Fewer groups, which are cut between each other, never inside; and what is left of the padding around wide operands."""
    numbers = params["dimension_numbers"]
    lhs, rhs, out = found.operands[0].shape, found.operands[1].shape, found.results[0]
    cuts = found.equation.invars[1].aval.shape[numbers.rhs_spec[0]] // rhs[numbers.rhs_spec[0]]
    for name in ("feature_group_count", "batch_group_count"):
        if params[name] > 1:
            params[name] //= cuts
    padding = [tuple(pair) for pair in params["padding"]]
    for index, (left, kernel, result) in enumerate(
        zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    ):
        border = found.border(0, left)
        if border is not None:
            padding[index] = _around(
                (lhs[left], params["lhs_dilation"][index]),
                (rhs[kernel], params["rhs_dilation"][index]),
                (out[result], params["window_strides"][index]),
                padding[index][0] - border.before * params["lhs_dilation"][index],
            )
    return {**params, "padding": tuple(padding)}


def _sliding(params: Params, found: _Local) -> Params:
    padding = [tuple(pair) for pair in params["padding"]]
    for dim in range(len(padding)):
        border = found.border(0, dim)
        if border is not None:
            holes = params["base_dilation"][dim]
            padding[dim] = _around(
                (found.operands[0].shape[dim], holes),
                (params["window_dimensions"][dim], params["window_dilation"][dim]),
                (found.results[0][dim], params["window_strides"][dim]),
                padding[dim][0] - border.before * holes,
            )
    return {**params, "padding": tuple(padding)}


def _around(operand: Spread, window: Spread, result: Spread, low: int) -> tuple[int, int]:
    """The padding with which a window slides over an operand and gives a result of the length wanted.

    Args:
        operand, window, result: length and distance of two elements.
        low: padding before the operand.
    """
    reach = [(length - 1) * distance for length, distance in (operand, window, result)]
    return low, reach[2] + reach[1] - reach[0] - low


def _selecting(params: Params, found: _Local) -> Params:
    """Wide operands hold every window whole."""
    cut = [found.border(1, dim) is not None for dim in range(len(params["padding"]))]
    pairs = zip(cut, params["padding"], strict=True)
    return {**params, "padding": tuple((0, 0) if whole else tuple(pair) for whole, pair in pairs)}


def _tridiagonal_solve(params: Params, found: _Local) -> Params:
    """0.4.34 repeats the shape of the right sides."""
    return {**params, "n": found.operands[3].shape[-1]} if "n" in params else params


_ADAPT: dict[str, Callable[[Params, _Local], Params]] = {
    "conv_general_dilated": _convolution,
    "select_and_scatter_add": _selecting,
    "tridiagonal_solve": _tridiagonal_solve,
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), _sliding),
}
