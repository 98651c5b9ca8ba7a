"""Embedding nets as series: the same numbers, many times faster.

The net of se_e2_a and se_e2_r sees one number per neighbour, so its outputs are functions of one variable, and smooth ones;
so does that of se_atten where types come in as factors and no attention follows.
Written as Chebyshev series, sum_k T_k(x) c_km, the net runs over the nodes of the series in place of all neighbours, and
the sum over neighbours runs over their few T_k alone; the wide outputs are made of those sums, once per atom.
As T_(i J + j) = 2 T_(i J) T_j - T_(i J - j), products of two short rows of polynomials span all T_k: the sums are matrix products.

A training makes the series anew in every step (`tabulated`): the T_k do not depend on parameters, so gradients of forces
pass through small arrays alone. A compressed model has series that were made once (`compressed`), as long as it takes.

Dimensions: N atoms, S slots, A row components, K terms, I x J = K, M = neuron[-1].
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from zoo.errors import UserError
from zoo.models.deepmd.config import Potential
from zoo.models.deepmd.descriptors import SeA, SeR, parts
from zoo.models.deepmd.networks import network

TOLERANCE = 1e-11
"""What the terms that a compressed net leaves out may add up to, relative to the largest value of the net."""

REST = {"float64": 1e-10, "float32": 1e-5}
"""How large the last terms of a series made in a training may be, relative to the largest value of the net."""

MOST_TERMS = 1024
"""Of a compressed net."""

MOST_TRAINED = 384
"""Of a series made anew in every step: with more, the net itself is as fast."""

BLOCK = 16
"""J: the T_k below it and those of its multiples are multiplied."""

CLOSER = 0.7
"""Moving atoms come nearer than those of the training frames; by this factor nothing is lost."""

SMOOTH = ("tanh", "softplus", "sigmoid", "gelu", "gelu_tf", "silu")
"""Activations without a kink."""

Series = dict[str, Any]


def is_series(layers: Any) -> bool:
    return "series" in layers


def nets_of(part: Any, params: Any) -> tuple[str, ...]:
    """The nets of a descriptor, by name, that see one number per neighbour and of which only the sum is asked for."""
    if isinstance(part, SeA | SeR):
        return tuple(params)
    return ("embedding",) if part.tebd_input_mode == "strip" and not part.attn_layer else ()


def can_be_tabulated(config: Potential) -> bool:
    """Whether a training gains by series: all nets of at least one part are smooth functions of one number."""
    return any(
        part.activation_function in SMOOTH and (isinstance(part, SeA | SeR) or nets_of(part, ()))
        for part in parts(config.descriptor)
    )


def tabulated(
    config: Potential, params: Any, statistics: Any, nearest_a: jax.Array, count: int
) -> tuple[Any, jax.Array]:
    """The parameters with series of `count` terms where they serve; differentiable, for jit.

    Args:
        nearest_a: the smallest distance to a neighbour in what the parameters are for, in angstrom.

    Returns:
        the parameters, and how large the last terms are relative to the nets; with more than REST, it takes more.
    """
    described, rest = dict(params["descriptor"]), jnp.zeros(())
    for index, part in enumerate(parts(config.descriptor)):
        names = nets_of(part, described[str(index)]) if part.activation_function in SMOOTH else ()
        span = spans(part, statistics["descriptor"][str(index)], nearest_a)
        made = dict(described[str(index)])
        for name in names:
            net = made[name]
            low, high = span(centre(name))
            x = 0.5 * (low + high) + 0.5 * (high - low) * nodes(count)
            terms = to_terms(count) @ network(net, x[:, None].astype(low.dtype), part.activation_function)
            largest = jnp.maximum(jnp.max(jnp.abs(terms)), jnp.finfo(terms.dtype).tiny)
            last = jnp.max(jnp.abs(terms[-count // 8 :])) / largest
            rest = jnp.maximum(rest, jax.lax.stop_gradient(last).astype(rest.dtype))
            made[name] = {"series": (to_products(count) @ terms).astype(low.dtype), "low": low, "high": high}
        described[str(index)] = made
    return {**params, "descriptor": described}, rest


def compressed(config: Potential, params: Any, statistics: Any, nearest_a: float) -> Any:
    """The parameters with series in place of all embedding nets that `nets_of` names.

    Args:
        nearest_a: the smallest distance in the training frames, in angstrom; the series hold down to CLOSER times that, and
            go on as straight lines below.

    Raises:
        UserError: no part of the descriptor has such nets, or a net is too rough for a series.
    """
    described = dict(params["descriptor"])
    for index, part in enumerate(parts(config.descriptor)):
        nets, span = described[str(index)], spans(part, statistics["descriptor"][str(index)], CLOSER * nearest_a)
        made = {
            name: fitted(part, nets[name], *map(float, span(centre(name))))
            for name in nets_of(part, nets)
            if not is_series(nets[name])
        }
        described[str(index)] = {**nets, **made} if made else nets
    if all(described[name] is net for name, net in params["descriptor"].items()):
        kinds = ", ".join(part.type for part in parts(config.descriptor))
        raise UserError(
            f"a descriptor {kinds} cannot be compressed; se_e2_a and se_e2_r can, and se_atten with tebd_input_mode=strip "
            "and attn_layer=0"
        )
    return {**params, "descriptor": described}


def centre(name: str) -> int | None:
    """The centre type that a net is for; None for all."""
    first, dash, _ = name.partition("-")
    return int(first) if dash else None


def spans(part: Any, statistics: Any, nearest_a: Any) -> Any:
    """The least and the largest number that a net sees, as a function of its centre type (None: of all)."""
    xp = jnp if isinstance(nearest_a, jax.Array) else np
    mean, deviation = statistics["davg"][:, 0], statistics["dstd"][:, 0]
    lows = xp.minimum(-mean / deviation, 0.0)  # 0: rows of excluded pairs
    highs = (1 / (nearest_a + part.env_protection) - mean) / deviation

    def span(kind: int | None) -> tuple[Any, Any]:
        return (lows.min(), highs.max()) if kind is None else (lows[kind], highs[kind])

    return span


def fitted(part: Any, net: Any, low: float, high: float) -> Series:
    """A net as a series as short as TOLERANCE allows: {"series": [K, M], "line": [2, M], "low": (), "high": ()}."""
    count = 2 * MOST_TERMS
    x = 0.5 * (low + high) + 0.5 * (high - low) * nodes(count)
    with versions.enable_x64():
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), net)
        values = np.asarray(network(wide, jnp.asarray(x)[:, None], part.activation_function))
    terms = (to_terms(count) @ values)[:MOST_TERMS]
    rest = np.cumsum(np.abs(terms)[::-1], axis=0)[::-1].max(axis=1)  # all terms from k on
    short = np.flatnonzero(rest < TOLERANCE * np.abs(values).max())
    if not len(short):
        raise UserError(
            f"the embedding net is too rough for a series of {MOST_TERMS} terms (activation {part.activation_function}); "
            "use the model as it is"
        )
    kept = BLOCK * max(1, -(-int(short[0]) // BLOCK))
    k = np.arange(kept)
    slopes = k**2 * np.stack([(-1.0) ** (k + 1), np.ones(kept)])  # of T_k at -1 and 1
    dtype = np.dtype(part.precision)
    found = {"series": to_products(kept) @ terms[:kept], "line": slopes @ terms[:kept], "low": low, "high": high}
    return {name: np.asarray(value, dtype) for name, value in found.items()}


def nodes(count: int) -> np.ndarray:
    """The nodes of a series of `count` terms, in [-1, 1]."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


@functools.cache
def to_terms(count: int) -> np.ndarray:
    """From values at the nodes to the factors c_k, [count, count]."""
    angles = np.pi * (np.arange(count) + 0.5) / count
    matrix = np.cos(np.arange(count)[:, None] * angles) * (2 / count)
    matrix[0] /= 2
    return matrix


@functools.cache
def to_products(count: int) -> np.ndarray:
    """From factors of T_k to those of T_(i J) T_j, [count, count]; `count` is a multiple of J."""
    rest = np.eye(count)
    found = np.zeros((count, count))
    for k in range(count - 1, -1, -1):
        i, j = divmod(k, BLOCK)
        if i and j:
            found[k] = 2 * rest[k]
            rest[BLOCK * i - j] -= rest[k]
        else:
            found[k] = rest[k]
    return found


def moments(series: Series, rows_NSA: jax.Array, argument_NS: jax.Array) -> jax.Array:
    """Sum over the slots of row times embedding of the argument: [N, A, M]."""
    u = (2 * argument_NS - series["low"] - series["high"]) / (series["high"] - series["low"])
    if "line" not in series:
        return jnp.einsum("nak,km->nam", sums(series["series"].shape[0], rows_NSA, u), series["series"])
    inside = jnp.clip(u, -1.0, 1.0)
    beyond_NS2 = jnp.stack([jnp.minimum(u + 1, 0.0), jnp.maximum(u - 1, 0.0)], axis=-1)
    found = jnp.einsum("nak,km->nam", sums(series["series"].shape[0], rows_NSA, inside), series["series"])
    return found + jnp.einsum("nsa,nsb->nab", rows_NSA, beyond_NS2) @ series["line"]


def sums(count: int, rows_NSA: jax.Array, u_NS: jax.Array) -> jax.Array:
    """Sum over the slots of each row component times each product T_(i J)(u) T_j(u), [N, A, K]."""
    low = polynomials(u_NS, BLOCK + 1)
    high_NSI = jnp.stack(polynomials(low[BLOCK], count // BLOCK), axis=-1)
    low_NSJ = jnp.stack(low[:BLOCK], axis=-1)
    weighted = rows_NSA[..., :, None] * high_NSI[..., None, :]
    atoms, slots, components = rows_NSA.shape
    found = jnp.einsum("nsq,nsj->nqj", weighted.reshape(atoms, slots, -1), low_NSJ)
    return found.reshape(atoms, components, count)


def polynomials(u: jax.Array, count: int) -> list[jax.Array]:
    """T_0(u), T_1(u), ... as a list of `count`."""
    found = [jnp.ones_like(u), u]
    while len(found) < count:
        found.append(2 * u * found[-1] - found[-2])
    return found[:count]
