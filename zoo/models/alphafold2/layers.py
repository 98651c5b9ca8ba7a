"""What every part of the network is made of: parameters by scope, linear maps, normalisation, attention, stacks, chunks.

A function opens a scope (`hk.name_scope`) for the parameters it owns, so parameters have the names of the published files. They
are kept in float32 and used in the type of the activations.

Suffixes: N residues, S sequences, B rows that attend independently, Q queries, K keys, H heads, C and D channels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

scope = hk.name_scope
MASKED_LOGIT = -1e9
LEAST_ROWS = 4  # that are treated at a time: fewer keep no accelerator busy


def parameter(name: str, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """A parameter in the scope that is open, cast to `dtype`; a fresh one is zero (see `convert.draw`)."""
    return hk.get_parameter(name, shape, jnp.float32, init=jnp.zeros).astype(dtype)


def linear(
    x: jax.Array,
    num_out: int | tuple[int, ...],
    name: str,
    *,
    bias: bool = True,
    in_dims: int = 1,
    precise: bool = False,
) -> jax.Array:
    """Maps the last `in_dims` dimensions of `x` (0: a scalar feature is spread out) to dimensions of `num_out`."""
    out = (num_out,) if isinstance(num_out, int) else tuple(num_out)
    inside = x.shape[x.ndim - in_dims :]
    with scope(name):
        weights = parameter("weights", (*inside, *out), x.dtype)
        precision = jax.lax.Precision.HIGHEST if precise else None
        y = jnp.tensordot(x, weights, axes=in_dims, precision=precision)
        return y + parameter("bias", out, x.dtype) if bias else y


def linear_parameters(name: str, num_in: int, num_out: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Weights and bias of a linear map, for `affine` in functions that work on some rows at a time."""
    with scope(name):
        return parameter("weights", (num_in, num_out), dtype), parameter("bias", (num_out,), dtype)


def affine(x: jax.Array, of: tuple[jax.Array, jax.Array]) -> jax.Array:
    return x @ of[0] + of[1]


def layer_norm(x: jax.Array, name: str) -> jax.Array:
    """Normalises the last dimension; in float32 whatever the type of `x`."""
    return normalised(x, norm_parameters(name, x.shape[-1]))


def norm_parameters(name: str, channels: int) -> tuple[jax.Array, jax.Array]:
    with scope(name):
        return parameter("scale", (channels,), jnp.float32), parameter("offset", (channels,), jnp.float32)


def normalised(x: jax.Array, of: tuple[jax.Array, jax.Array]) -> jax.Array:
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(wide - mean), axis=-1, keepdims=True)
    return ((wide - mean) * (jax.lax.rsqrt(variance + 1e-5) * of[0]) + of[1]).astype(x.dtype)


def softmax(logits: jax.Array) -> jax.Array:
    """Over the last dimension; in float32, since a masked logit is large."""
    return jax.nn.softmax(logits.astype(jnp.float32), axis=-1).astype(logits.dtype)


def attention(
    config: ConfigDict,
    q_BQC: jax.Array,
    m_BKC: jax.Array,
    mask_BK: jax.Array,
    num_out: int,
    chunk: int,
    bias_HQK: jax.Array | None = None,
) -> jax.Array:
    """Gated multi-head attention of every row on its own, as in algorithms 7, 8, 13, 14 and 17.

    Args:
        config: num_head, gating, and key_dim and value_dim (all heads together; by default the channels of q and m).
        q_BQC: queries come from these.
        m_BKC: keys and values come from these.
        mask_BK: 0 where a key is padding; [1, K] for one mask of all rows.
        num_out: channels of the result.
        chunk: bytes of logits that may exist at a time: rows beyond that are done one after another.
        bias_HQK: added to the logits of every row.
    """
    dtype, heads, out = q_BQC.dtype, config.num_head, num_out
    key = config.get("key_dim", q_BQC.shape[-1]) // heads
    value = config.get("value_dim", m_BKC.shape[-1]) // heads
    with scope("attention"):
        query_w = parameter("query_w", (q_BQC.shape[-1], heads, key), dtype)
        key_w = parameter("key_w", (m_BKC.shape[-1], heads, key), dtype)
        value_w = parameter("value_w", (m_BKC.shape[-1], heads, value), dtype)
        gate = gate_parameters(config, q_BQC.shape[-1], (heads, value), dtype)
        output_w = parameter("output_w", (heads, value, out), dtype)
        output_b = parameter("output_b", (out,), dtype)

    def rows(q: jax.Array, m: jax.Array, mask: jax.Array) -> jax.Array:
        queries, keys, values = (
            heads_first(flat(x, w), heads) for x, w in ((q, query_w * key**-0.5), (m, key_w), (m, value_w))
        )
        logits = jnp.einsum("bhqd,bhkd->bhqk", queries, keys)
        logits = logits if bias_HQK is None else logits + bias_HQK
        weights = softmax(jnp.where(mask[:, None, None, :] != 0, logits, MASKED_LOGIT))
        average = heads_last(jnp.einsum("bhqk,bhkd->bhqd", weights, values))
        return gated(average, q, gate) @ output_w.reshape(-1, out) + output_b

    queries, keys = q_BQC.shape[1], m_BKC.shape[1]
    row_bytes = 4 * heads * (queries * keys + queries * (key + 2 * value) + keys * (key + value))
    mask_BK = jnp.broadcast_to(mask_BK, m_BKC.shape[:2])
    return in_chunks(rows, chunk // row_bytes, q_BQC, m_BKC, mask_BK)


def global_attention(config: ConfigDict, x_BKC: jax.Array, mask_BK: jax.Array, chunk: int) -> jax.Array:
    """Algorithm 19, lines 2-7: one query a row, the mean of its columns; keys and values are shared by the heads."""
    dtype, heads = x_BKC.dtype, config.num_head
    channels = x_BKC.shape[-1]
    size = channels // heads
    with scope("attention"):
        query_w = parameter("query_w", (channels, heads, size), dtype)
        key_w = parameter("key_w", (channels, size), dtype)
        value_w = parameter("value_w", (channels, size), dtype)
        gate = gate_parameters(config, channels, (heads, size), dtype)
        output_w = parameter("output_w", (heads, size, channels), dtype)
        output_b = parameter("output_b", (channels,), dtype)

    def rows(x: jax.Array, mask: jax.Array) -> jax.Array:
        mean = jnp.sum(mask[..., None] * x, axis=1) / (jnp.sum(mask, axis=1)[:, None] + 1e-10)
        query = jnp.einsum("bc,chd->bhd", mean, query_w) * size**-0.5
        logits = jnp.einsum("bhd,bkd->bhk", query, x @ key_w)
        weights = softmax(jnp.where(mask[:, None, :] != 0, logits, MASKED_LOGIT))
        average = jnp.einsum("bhk,bkd->bhd", weights, x @ value_w)
        return gated(average.reshape(-1, 1, channels), x, gate) @ output_w.reshape(channels, -1) + output_b

    return in_chunks(rows, chunk // (4 * x_BKC.shape[1] * channels), x_BKC, mask_BK)


def gate_parameters(
    config: ConfigDict, channels: int, shape: tuple[int, int], dtype: Any
) -> tuple[jax.Array, jax.Array] | None:
    if not config.gating:
        return None
    return parameter("gating_w", (channels, *shape), dtype), parameter("gating_b", shape, dtype)


def gated(average: jax.Array, q: jax.Array, gate: tuple[jax.Array, jax.Array] | None) -> jax.Array:
    """Averages [B, Q, H * D] times a gate that the queries' inputs open."""
    if gate is None:
        return average
    return average * jax.nn.sigmoid(flat(q, gate[0]) + gate[1].reshape(-1))


def flat(x: jax.Array, weights: jax.Array) -> jax.Array:
    """[B, Q, C] times [C, H, D] as [B, Q, H * D]."""
    return x @ weights.reshape(weights.shape[0], -1)


def heads_first(x: jax.Array, heads: int) -> jax.Array:
    """[B, Q, H * D] as [B, H, Q, D].

    Put together from slices, as a transposition would become part of the product before it, which then takes half as long
    again on a processor.
    """
    return jnp.concatenate([part[:, None] for part in jnp.split(x, heads, axis=-1)], axis=1)


def heads_last(x: jax.Array) -> jax.Array:
    """The other way."""
    return jnp.concatenate([x[:, head] for head in range(x.shape[1])], axis=-1)


def transition(config: ConfigDict, x_BNC: jax.Array, name: str, chunk: int) -> jax.Array:
    """Algorithms 9 and 15: two layers, wider in between."""
    channels = x_BNC.shape[-1]
    wide = int(channels * config.num_intermediate_factor)
    with scope(name):
        x_BNC = layer_norm(x_BNC, "input_layer_norm")
        first = linear_parameters("transition1", channels, wide, x_BNC.dtype)
        second = linear_parameters("transition2", wide, channels, x_BNC.dtype)

    def rows(x: jax.Array) -> jax.Array:
        return affine(jax.nn.relu(affine(x, first)), second)

    return in_chunks(rows, chunk // (4 * x_BNC.shape[1] * wide), x_BNC)


def in_chunks(function: Callable[..., Any], rows: int, *arrays: jax.Array) -> Any:
    """`function(*arrays)` for a function that treats each row of the first dimension alone, about `rows` of them at a time."""
    total, rows = arrays[0].shape[0], max(rows, LEAST_ROWS)
    if rows >= total:
        return function(*arrays)
    num_chunks = -(-total // rows)
    size = -(-total // num_chunks)  # as even as possible, so that little is padding
    extra = num_chunks * size - total

    def cut(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, [(0, extra)] + [(0, 0)] * (array.ndim - 1))
        return padded.reshape(num_chunks, size, *array.shape[1:])

    parts = jax.lax.map(lambda part: function(*part), tuple(cut(array) for array in arrays))
    return jax.tree.map(lambda part: part.reshape(num_chunks * size, *part.shape[2:])[:total], parts)


def parameters_of(function: Callable[..., Any], name: str, *example: Any) -> Any:
    """The parameters that a call of `function` uses, kept under `name` in the scope that is open.

    `hk.transform(function).apply(parameters, None, ...)` then is a pure function, for scans and for several calls.
    """
    return hk.lift(hk.transform(function).init, name=name)(jax.random.PRNGKey(0), *example)


def stacked(block: Callable[..., Any], count: int, name: str, carry: Any, keys: jax.Array | None = None) -> Any:
    """Applies `block(carry, key)` `count` times, each with parameters of its own, stacked along their first dimension.

    Args:
        block: returns a value like its first argument; `key` is None where nothing is drawn.
        count: number of blocks.
        name: scope of the parameters.
        carry: what goes through the blocks.
        keys: [count] PRNG keys, or None.
    """
    inner = hk.transform(block)
    example = None if keys is None else keys[0]

    def init(key: jax.Array, value: Any) -> Any:
        return jax.vmap(lambda one: inner.init(one, value, example))(jax.random.split(key, count))

    params = hk.lift(init, name=name)(jax.random.PRNGKey(0), carry)

    def step(value: Any, layer: Any) -> tuple[Any, None]:
        own, key = layer
        return inner.apply(own, None, value, key), None

    return jax.lax.scan(step, carry, (params, keys))[0]


def dropout(x: jax.Array, rate: float, key: jax.Array | None, shared_dim: int) -> jax.Array:
    """Drops whole rows (shared_dim=0) or columns (1) of channels; nothing where there is no key."""
    if key is None or rate == 0.0:
        return x
    shape = tuple(1 if dim == shared_dim else size for dim, size in enumerate(x.shape))
    return x * (jax.random.bernoulli(key, 1 - rate, shape) / (1 - rate)).astype(x.dtype)


def split(key: jax.Array | None, count: int) -> Any:
    """`count` keys, or as many times None."""
    return [None] * count if key is None else list(jax.random.split(key, count))


one_hot = partial(jax.nn.one_hot, dtype=jnp.float32)
