"""Primitives that are captured as what they consist of, because the parts can lie in different layouts.

A gather that fills what lies outside is a gather and a selection. Where the indexed dimension is cut the gather's parts are added
up between devices, and only if nothing stands between the sum and the slice that a device keeps of it is that a reduce-scatter.
A gather that moves indices inside is that and a gather: in jax 0.4.34 the partitioner finds what lies outside in no part.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from flowaware_core import versions


def expanded(equation: Any) -> versions.ClosedJaxpr | None:
    """What an equation consists of, as a program of its operands that stands at the same line; None: it is elementary."""
    if equation.primitive.name != "gather":
        return None
    how = _EXPANDED.get(equation.params["mode"])
    # Keys are no numbers, and what stands for a missing one is up to their generator.
    if how is None or jax.dtypes.issubdtype(equation.invars[0].aval.dtype, jax.dtypes.prng_key):
        return None
    shapes = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
    closed = jax.make_jaxpr(lambda operand, indices: how(operand, indices, equation.params))(*shapes)
    equations = [inner.replace(source_info=equation.source_info) for inner in closed.jaxpr.eqns]
    return versions.ClosedJaxpr(closed.jaxpr.replace(eqns=equations), closed.consts)


def _filled(operand: jax.Array, indices: jax.Array, params: dict[str, Any]) -> jax.Array:
    """A gather of windows; one of which any part lies outside is `fill_value` everywhere."""
    vector = indices.ndim - 1
    inside = jax.lax.bitwise_and(
        jax.lax.ge(indices, jax.lax.full_like(indices, 0)),
        jax.lax.le(indices, jax.lax.broadcast_in_dim(_last(operand, indices, params), indices.shape, (vector,))),
    )
    inside = jax.lax.reduce(inside, np.True_, jax.lax.bitwise_and, [vector])
    found = _gathered(operand, indices, params)
    rows = [dim for dim in range(found.ndim) if dim not in params["dimension_numbers"].offset_dims]
    return jax.lax.select(
        jax.lax.broadcast_in_dim(inside, found.shape, rows), found, jax.lax.full_like(found, params["fill_value"])
    )


def _clipped(operand: jax.Array, indices: jax.Array, params: dict[str, Any]) -> jax.Array:
    """A gather of windows, moved so that all of each lies inside."""
    last = jax.lax.broadcast_in_dim(_last(operand, indices, params), indices.shape, (indices.ndim - 1,))
    return _gathered(operand, jax.lax.min(jax.lax.max(indices, jax.lax.full_like(indices, 0)), last), params)


def _last(operand: jax.Array, indices: jax.Array, params: dict[str, Any]) -> np.ndarray:
    """The largest index of a window, per indexed dimension; no index of the type lies beyond its own largest value."""
    sizes, largest = params["slice_sizes"], np.iinfo(indices.dtype).max
    dims = params["dimension_numbers"].start_index_map
    return np.array([min(operand.shape[dim] - sizes[dim], largest) for dim in dims], indices.dtype)


def _gathered(operand: jax.Array, indices: jax.Array, params: dict[str, Any]) -> jax.Array:
    return jax.lax.gather(
        operand,
        indices,
        params["dimension_numbers"],
        params["slice_sizes"],
        unique_indices=params["unique_indices"],
        indices_are_sorted=params["indices_are_sorted"],
        mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


_EXPANDED = {jax.lax.GatherScatterMode.FILL_OR_DROP: _filled, jax.lax.GatherScatterMode.CLIP: _clipped}
