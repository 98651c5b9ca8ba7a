"""Embedding nets as series: what makes a finished potential almost twice as fast.

The net of se_e2_a sees one number per neighbour, so its outputs are functions of one variable, and smooth ones. Written as
Chebyshev series, sum_k T_k(x) c_km, the sum over neighbours runs over their few T_k alone; the wide outputs are made of those
sums, once per atom. Series are as long as it takes to agree with the net to `TOLERANCE`.

Dimensions: N atoms, S slots, A = 4 row components, K terms, M = neuron[-1].
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from zoo.errors import UserError
from zoo.models.deepmd.config import Potential, SeA, parts
from zoo.models.deepmd.networks import network

TOLERANCE = 1e-11
"""What the terms that are left out may add up to, relative to the largest value of the net."""

MOST_TERMS = 1024

CLOSER = 0.7
"""Moving atoms come nearer than those of the training frames; by this factor nothing is lost."""

Series = dict[str, np.ndarray]


def is_series(layers: Any) -> bool:
    return "series" in layers


def compressed(config: Potential, params: Any, statistics: Any, nearest_a: float) -> Any:
    """The parameters with the embedding nets of every se_e2_a as series.

    Args:
        nearest_a: the smallest distance in the training frames, in angstrom; the series hold down to CLOSER times that, and
            go on as straight lines below.

    Raises:
        UserError: no part of the descriptor has such nets, or a net is too rough for a series.
    """
    described = dict(params["descriptor"])
    for index, part in enumerate(parts(config.descriptor)):
        if isinstance(part, SeA):
            span = spans(part, statistics["descriptor"][str(index)], CLOSER * nearest_a)
            described[str(index)] = {
                name: net if is_series(net) else fitted(part, net, *span[centre(name)])
                for name, net in described[str(index)].items()
            }
    if all(described[name] is net for name, net in params["descriptor"].items()):
        kinds = ", ".join(part.type for part in parts(config.descriptor))
        raise UserError(f"a descriptor {kinds} cannot be compressed; se_e2_a can")
    return {**params, "descriptor": described}


def centre(name: str) -> int | None:
    """The centre type that a net is for; None for all."""
    first, dash, _ = name.partition("-")
    return int(first) if dash else None


def spans(part: SeA, statistics: Any, nearest_a: float) -> dict[int | None, tuple[float, float]]:
    """The least and the largest number that a net sees, per centre type and (None) of all."""
    largest = 1 / (nearest_a + part.env_protection)
    mean, deviation = (np.asarray(statistics[name], np.float64)[:, 0] for name in ("davg", "dstd"))
    low, high = np.minimum(-mean / deviation, 0.0), (largest - mean) / deviation  # 0: rows of excluded pairs
    found: dict[int | None, tuple[float, float]] = {kind: (low[kind], high[kind]) for kind in range(len(mean))}
    return {**found, None: (float(low.min()), float(high.max()))}


def fitted(part: SeA, net: Any, low: float, high: float) -> Series:
    """A net as {"series": [K, M], "low": (), "high": ()}, K as small as TOLERANCE allows."""
    nodes = 2 * MOST_TERMS
    angles = np.pi * (np.arange(nodes) + 0.5) / nodes
    x = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles)
    with versions.enable_x64():
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), net)
        values = np.asarray(network(wide, jnp.asarray(x)[:, None], part.activation_function))
    terms = np.cos(np.arange(MOST_TERMS)[:, None] * angles) @ values * (2 / nodes)
    terms[0] /= 2
    rest = np.cumsum(np.abs(terms)[::-1], axis=0)[::-1].max(axis=1)  # all terms from k on
    short = np.flatnonzero(rest < TOLERANCE * np.abs(values).max())
    if not len(short):
        raise UserError(
            f"the embedding net is too rough for a series of {MOST_TERMS} terms (activation {part.activation_function}); "
            "use the model as it is"
        )
    dtype = np.dtype(part.precision)
    ends = {"low": np.asarray(low, dtype), "high": np.asarray(high, dtype)}
    return {"series": terms[: max(int(short[0]), 2)].astype(dtype), **ends}


def moments(series: Any, rows_NSA: jax.Array) -> jax.Array:
    """Sum over the slots of row times embedding of its first component: [N, A, M]."""
    scaled_NS = (2 * rows_NSA[..., 0] - series["low"] - series["high"]) / (series["high"] - series["low"])
    columns_ANS = jnp.moveaxis(rows_NSA, -1, 0)
    sums_KAN = sums(series["series"].shape[0], columns_ANS, scaled_NS)
    return jnp.einsum("kan,km->nam", sums_KAN, series["series"])


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """T_k and its derivative at numbers u, k going up; outside [-1, 1] both go on as the straight line at the end."""

    u: jax.Array
    beyond: jax.Array

    @staticmethod
    def at(u: jax.Array) -> Recurrence:
        inside = jnp.clip(u, -1.0, 1.0)
        return Recurrence(inside, u - inside)

    def line(self, k: jax.Array) -> jax.Array:
        """What the straight line adds to T_k: its slope at 1 is k^2, at -1 it is k^2 (-1)^(k + 1)."""
        sign = jnp.where(self.beyond < 0, 1 - 2 * ((k + 1) % 2), 1).astype(self.u.dtype)
        return (k**2).astype(self.u.dtype) * sign * self.beyond


def sums_forward(count: int, columns_ANS: jax.Array, u_NS: jax.Array) -> jax.Array:
    at = Recurrence.at(u_NS)

    def term(carry: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        now, after = carry
        return (after, 2 * at.u * after - now), jnp.sum(columns_ANS * (now + at.line(k)), axis=-1)

    first = jnp.ones_like(u_NS), at.u
    return jax.lax.scan(term, first, jnp.arange(count))[1]


def sums_backward(count: int, saved: Any, slope_KAN: jax.Array) -> tuple[jax.Array, jax.Array]:
    columns_ANS, u_NS = saved
    at = Recurrence.at(u_NS)

    def term(carry: Any, terms: Any) -> tuple[Any, None]:
        now, after, slope_now, slope_after, to_columns, to_u = carry
        k, slope_AN = terms
        to_columns = to_columns + slope_AN[..., None] * (now + at.line(k))
        to_u = to_u + jnp.sum(slope_AN[..., None] * columns_ANS, axis=0) * slope_now
        following = 2 * at.u * after - now, 2 * after + 2 * at.u * slope_after - slope_now
        return (after, following[0], slope_after, following[1], to_columns, to_u), None

    one, none = jnp.ones_like(u_NS), jnp.zeros_like(u_NS)
    first = (one, at.u, none, one, jnp.zeros_like(columns_ANS), none)
    return jax.lax.scan(term, first, (jnp.arange(count), slope_KAN))[0][4:]


sums = jax.custom_vjp(sums_forward, nondiff_argnums=(0,))
sums.__doc__ = (
    "Sum over the slots of T_k(u) times each column, [K, A, N]; what its derivative keeps does not grow with K."
)
sums.defvjp(lambda count, columns, u: (sums_forward(count, columns, u), (columns, u)), sums_backward)
