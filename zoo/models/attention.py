"""Attention of several heads, and the dropout around it.

Shape suffixes: B examples, S queries, T keys, N heads, H size of a head, D = N * H.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def attend(
    query_BSNH: jax.Array,
    key_BTNH: jax.Array,
    value_BTNH: jax.Array,
    mask: jax.Array | None,
    bias: jax.Array | None = None,
    scale: float = 1.0,
    dropout: tuple[float, jax.Array] | None = None,
) -> jax.Array:
    """The values, weighted by the softmax of the queries' products with the keys: [B, S, N, H].

    Args:
        query_BSNH, key_BTNH, value_BTNH: projections, of one dtype.
        mask: true where a key may be seen; broadcasts to [B, N, S, T]. A query that may see no key sees all alike.
        bias: added to the logits; broadcasts to [B, N, S, T].
        scale: factor of the products.
        dropout: rate and key; None drops nothing.
    """
    logits_BNST = jnp.einsum("bsnh,btnh->bnst", query_BSNH, key_BTNH)
    wide = jnp.promote_types(logits_BNST.dtype, jnp.float32)
    logits_BNST = logits_BNST.astype(wide)
    if scale != 1.0:
        logits_BNST = logits_BNST * jnp.asarray(scale, wide)
    if bias is not None:
        logits_BNST = logits_BNST + bias.astype(wide)
    if mask is not None:
        logits_BNST = jnp.where(mask, logits_BNST, jnp.asarray(jnp.finfo(wide).min, wide))
    weights_BNST = jax.nn.softmax(logits_BNST, axis=-1).astype(query_BSNH.dtype)
    if dropout is not None:
        weights_BNST = dropped(weights_BNST, *dropout)
    return jnp.einsum("bnst,btnh->bsnh", weights_BNST, value_BTNH)


def dropped(x: jax.Array, rate: float, key: jax.Array) -> jax.Array:
    """Sets a share `rate` of the values to 0 and scales the others so that the mean stays."""
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / jnp.asarray(1 - rate, x.dtype), jnp.zeros((), x.dtype))


def heads(x_BSD: jax.Array, count: int) -> jax.Array:
    """[B, S, D] to [B, S, N, H]."""
    return x_BSD.reshape(*x_BSD.shape[:-1], count, x_BSD.shape[-1] // count)


def merged(x_BSNH: jax.Array) -> jax.Array:
    """[B, S, N, H] to [B, S, D]."""
    return x_BSNH.reshape(*x_BSNH.shape[:-2], x_BSNH.shape[-2] * x_BSNH.shape[-1])
