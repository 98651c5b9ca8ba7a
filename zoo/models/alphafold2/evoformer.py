"""The Evoformer block (algorithms 6-15) and its variant for further sequences (algorithms 18 and 19).

Suffixes: S sequences, N residues, C channels, H heads; z is the pair representation [N, N, C], m the alignment [S, N, C].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from zoo.models.alphafold2.layers import (
    affine,
    attention,
    dropout,
    global_attention,
    in_chunks,
    layer_norm,
    linear,
    linear_parameters,
    norm_parameters,
    normalised,
    parameter,
    scope,
    split,
    stacked,
    transition,
)

ROWS, COLUMNS = 0, 1  # dimension along which one draw of the dropout is shared


def evoformer_stack(
    config: ConfigDict,
    count: int,
    name: str,
    m: jax.Array,
    z: jax.Array,
    masks: tuple[jax.Array, jax.Array],
    chunk: int,
    key: jax.Array | None,
    further: bool,
) -> tuple[jax.Array, jax.Array]:
    """Algorithm 6 without its last line, or algorithm 18.

    Args:
        config: section `evoformer`.
        count: number of blocks.
        name: scope of the parameters.
        m: [S, N, C] alignment.
        z: [N, N, C] pairs.
        masks: [S, N] and [N, N], 0 for padding.
        chunk: bytes that one attention may hold at a time.
        key: for dropout, or None for none.
        further: the alignment is that of the further sequences, whose columns have global attention.
    """

    def block(mz: tuple[jax.Array, jax.Array], own: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        return evoformer_block(config, *mz, *masks, chunk, own, further)

    keys = None if key is None else jax.random.split(key, count)
    return stacked(block, count, name, (m, z), keys)


def evoformer_block(
    config: ConfigDict,
    m: jax.Array,
    z: jax.Array,
    msa_mask: jax.Array,
    pair_mask: jax.Array,
    chunk: int,
    key: jax.Array | None,
    further: bool,
) -> tuple[jax.Array, jax.Array]:
    """Algorithm 6, lines 2-10; AlphaFold-Multimer takes the outer product first."""
    c = config
    row_key, pair_key = split(key, 2)
    if c.outer_product_mean.first:
        z = z + outer_product_mean(c.outer_product_mean, m, msa_mask, z.shape[-1], chunk)
    update = row_attention_with_pair_bias(c.msa_row_attention_with_pair_bias, m, msa_mask, z, chunk)
    m = m + dropout(update, c.msa_row_attention_with_pair_bias.dropout_rate, row_key, ROWS)
    column = column_global_attention if further else column_attention
    m = m + column(c.msa_column_attention, m, msa_mask, chunk)
    m = m + transition(c.msa_transition, m, "msa_transition", chunk)
    if not c.outer_product_mean.first:
        z = z + outer_product_mean(c.outer_product_mean, m, msa_mask, z.shape[-1], chunk)
    return m, pair_updates(c, z, pair_mask, chunk, pair_key, attention_first=False)


def pair_updates(
    config: ConfigDict, z: jax.Array, mask: jax.Array, chunk: int, key: jax.Array | None, attention_first: bool
) -> jax.Array:
    """Algorithm 6, lines 6-10, or one block of algorithm 16, which attends before it multiplies."""
    c = config
    keys = split(key, 4)

    def multiplications(z: jax.Array) -> jax.Array:
        for own, edges in zip(keys[:2], ("outgoing", "incoming"), strict=True):
            name = f"triangle_multiplication_{edges}"
            z = z + dropout(triangle_multiplication(c[name], z, mask, name, chunk), c[name].dropout_rate, own, ROWS)
        return z

    def attentions(z: jax.Array) -> jax.Array:
        for own, node, dim in zip(keys[2:], ("starting", "ending"), (ROWS, COLUMNS), strict=True):
            name = f"triangle_attention_{node}_node"
            z = z + dropout(triangle_attention(c[name], z, mask, name, chunk), c[name].dropout_rate, own, dim)
        return z

    z = multiplications(attentions(z)) if attention_first else attentions(multiplications(z))
    return z + transition(c.pair_transition, z, "pair_transition", chunk)


def row_attention_with_pair_bias(
    config: ConfigDict, m: jax.Array, mask: jax.Array, z: jax.Array, chunk: int
) -> jax.Array:
    """Algorithm 7: the residues of a sequence attend to each other, biased by the pairs."""
    with scope("msa_row_attention_with_pair_bias"):
        m = layer_norm(m, "query_norm")
        bias_HNN = pair_bias(layer_norm(z, "feat_2d_norm"), config.num_head)
        return attention(config, m, m, mask, m.shape[-1], chunk, bias_HNN)


def pair_bias(z: jax.Array, num_head: int) -> jax.Array:
    weights = parameter("feat_2d_weights", (z.shape[-1], num_head), z.dtype)
    return jnp.einsum("qkc,ch->hqk", z, weights)


def column_attention(config: ConfigDict, m: jax.Array, mask: jax.Array, chunk: int) -> jax.Array:
    """Algorithm 8: the sequences of a column attend to each other."""
    with scope("msa_column_attention"):
        m = layer_norm(jnp.swapaxes(m, 0, 1), "query_norm")
        return jnp.swapaxes(attention(config, m, m, mask.T, m.shape[-1], chunk), 0, 1)


def column_global_attention(config: ConfigDict, m: jax.Array, mask: jax.Array, chunk: int) -> jax.Array:
    """Algorithm 19."""
    with scope("msa_column_global_attention"):
        m = layer_norm(jnp.swapaxes(m, 0, 1), "query_norm")
        return jnp.swapaxes(global_attention(config, m, mask.T, chunk), 0, 1)


def outer_product_mean(config: ConfigDict, m: jax.Array, mask: jax.Array, num_out: int, chunk: int) -> jax.Array:
    """Algorithm 10: how two columns vary together, averaged over the sequences."""
    outer = config.num_outer_channel
    with scope("outer_product_mean"):
        m = layer_norm(m, "layer_norm_input")
        left_SNC = mask[..., None] * linear(m, outer, "left_projection")
        right_SNC = mask[..., None] * linear(m, outer, "right_projection")
        weights = parameter("output_w", (outer, outer, num_out), m.dtype)
        bias = parameter("output_b", (num_out,), m.dtype)

    def rows(left_NSC: jax.Array) -> jax.Array:
        product = jnp.einsum("isc,sjd->ijcd", left_NSC, right_SNC)
        return jnp.einsum("ijcd,cdo->ijo", product, weights) + bias

    row_bytes = 4 * outer * outer * m.shape[1]
    total = in_chunks(rows, chunk // row_bytes, jnp.swapaxes(left_SNC, 0, 1))
    return total / (1e-3 + jnp.einsum("si,sj->ij", mask, mask))[..., None]


def triangle_multiplication(config: ConfigDict, z: jax.Array, mask: jax.Array, name: str, chunk: int) -> jax.Array:
    """Algorithm 11 (outgoing) or 12 (incoming); all but the sum over the third residue is done on some rows at a time."""
    channels, inside, fused = z.shape[-1], config.num_intermediate_channel, config.fuse_projection_weights
    with scope(name):
        norm = norm_parameters("left_norm_input" if fused else "layer_norm_input", channels)
        # AlphaFold-Multimer v3 has both sides in one matrix.
        names = (
            [("projection", "gate")]
            if fused
            else [(f"{side}_projection", f"{side}_gate") for side in ("left", "right")]
        )
        sides = [
            tuple(linear_parameters(part, channels, 2 * inside // len(names), z.dtype) for part in pair)
            for pair in names
        ]
        center = norm_parameters("center_norm" if fused else "center_layer_norm", inside)
        output = linear_parameters("output_projection", inside, channels, z.dtype)
        gate = linear_parameters("gating_linear", channels, channels, z.dtype)

    def edges(z: jax.Array, mask: jax.Array) -> list[jax.Array]:
        z = normalised(z, norm)
        both = [mask[..., None] * affine(z, one) * jax.nn.sigmoid(affine(z, its_gate)) for one, its_gate in sides]
        return jnp.split(both[0], 2, axis=-1) if fused else both

    def update(z: jax.Array, product: jax.Array) -> jax.Array:
        return affine(normalised(product, center), output) * jax.nn.sigmoid(affine(normalised(z, norm), gate))

    rows = chunk // (4 * 4 * z.shape[1] * inside)
    left, right = in_chunks(edges, rows, z, mask)
    equation = "ikc,jkc->ijc" if name.endswith("outgoing") else "kjc,kic->ijc"
    return in_chunks(update, rows, z, jnp.einsum(equation, left, right))


def triangle_attention(config: ConfigDict, z: jax.Array, mask: jax.Array, name: str, chunk: int) -> jax.Array:
    """Algorithm 13 (starting node) or 14 (ending node: the same on the transposed pairs)."""
    ending = "ending" in name
    with scope(name):
        z, mask = (jnp.swapaxes(z, 0, 1), mask.T) if ending else (z, mask)
        z = layer_norm(z, "query_norm")
        update = attention(config, z, z, mask, z.shape[-1], chunk, pair_bias(z, config.num_head))
        return jnp.swapaxes(update, 0, 1) if ending else update
