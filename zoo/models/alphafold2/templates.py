"""Templates: known structures of relatives, embedded into pairs (algorithms 16 and 17) and as further rows of the alignment.

Suffixes: T templates, N residues, C channels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import haiku as hk
import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from zoo.models.alphafold2.evoformer import pair_updates
from zoo.models.alphafold2.geometry import (
    backbone_frame,
    chi_angles,
    distance_bins,
    pseudo_beta,
    pseudo_beta_mask,
    torsions,
)
from zoo.models.alphafold2.layers import attention, layer_norm, linear, one_hot, parameters_of, scope, stacked

Features = Mapping[str, jax.Array]
PER_TEMPLATE = ("template_aatype", "template_all_atom_positions", "template_all_atom_mask")


def template_embedding(
    config: ConfigDict, z: jax.Array, features: Features, pair_mask: jax.Array, chunk: int, key: jax.Array | None
) -> jax.Array:
    """Algorithm 2, lines 9-12: what the templates add to the pairs [N, N, C].

    Args:
        config: section `template`.
        z: [N, N, C] pairs.
        features: template_aatype [T, N], template_all_atom_positions [T, N, 37, 3], template_all_atom_mask [T, N, 37],
            template_mask [T].
        pair_mask: [N, N], 0 for padding.
        chunk: bytes that one attention may hold at a time.
        key: for dropout, or None for none.
    """
    channels = config.template_pair_stack.triangle_attention_ending_node.value_dim
    stack = config.template_pair_stack
    templates = {name: features[name] for name in PER_TEMPLATE}

    def embed(one: Features, own: jax.Array | None) -> jax.Array:
        x = linear(pair_features(config, one, z.dtype), channels, "embedding2d")

        def block(x: jax.Array, own: jax.Array | None) -> jax.Array:
            return pair_updates(stack, x, pair_mask, chunk, own, attention_first=True)

        keys = None if own is None else jax.random.split(own, stack.num_block)
        with scope("template_pair_stack"):
            x = stacked(block, stack.num_block, "__layer_stack_no_state", x, keys)
        return layer_norm(x, "output_layer_norm")

    with scope("template_embedding"):
        embedded_TNNC = each_template(embed, "single_template_embedding", templates, key)
        num_res, num_out = z.shape[0], z.shape[-1]
        query = z.reshape(num_res * num_res, 1, num_out)
        values = jnp.moveaxis(embedded_TNNC, 0, 2).reshape(num_res * num_res, -1, channels)
        mask = features["template_mask"].astype(z.dtype)
        # Algorithm 17: every pair attends to the templates.
        update = attention(config.attention, query, values, mask[None], num_out, chunk // num_out)
        return update.reshape(z.shape) * (jnp.sum(mask) > 0).astype(z.dtype)


def each_template(embed, name: str, templates: Features, key: jax.Array | None) -> jax.Array:  # type: ignore[no-untyped-def]
    """`embed(template, key)` of every template, one after another, with the same parameters."""
    num = templates["template_aatype"].shape[0]
    keys = None if key is None else jax.random.split(key, num)
    example = jax.tree.map(lambda x: x[0], (templates, keys))
    params = parameters_of(embed, name, *example)
    return jax.lax.map(lambda one: hk.transform(embed).apply(params, None, *one), (templates, keys))


def pair_features(config: ConfigDict, one: Features, dtype: jnp.dtype) -> jax.Array:
    """88 channels [N, N, C] of one template: distances, types, the masks; the unit vectors are 0, as the models were trained."""
    aatype, num_res = one["template_aatype"], one["template_aatype"].shape[0]
    positions, mask = one["template_all_atom_positions"], one["template_all_atom_mask"]
    beta_mask = pseudo_beta_mask(aatype, mask)
    beta = pseudo_beta(aatype, positions)
    kinds = one_hot(aatype, 22)
    backbone = jnp.prod(mask[:, :3], axis=-1)
    backbone_2d = (backbone[:, None] * backbone[None])[..., None]
    features = [
        distance_bins(beta, **config.dgram_features),
        (beta_mask[:, None] * beta_mask[None])[..., None],
        jnp.broadcast_to(kinds[None], (num_res, num_res, 22)),
        jnp.broadcast_to(kinds[:, None], (num_res, num_res, 22)),
        jnp.zeros((num_res, num_res, 3)),
        backbone_2d,
    ]
    return (jnp.concatenate(features, axis=-1) * backbone_2d).astype(dtype)


def template_rows(
    features: Features, num_channel: int, dtype: jnp.dtype, multimer: bool
) -> tuple[jax.Array, jax.Array]:
    """Algorithm 2, lines 7-8: rows [T, N, C] to append to the alignment, and their mask [T, N]."""
    aatype = features["template_aatype"]
    positions, mask = features["template_all_atom_positions"], features["template_all_atom_mask"]
    kinds = one_hot(aatype, 22)
    if multimer:
        angles, present = chi_angles(jnp.minimum(aatype, 20), positions, mask)
        parts = [kinds, jnp.sin(angles) * present, jnp.cos(angles) * present, present]
        row_mask = present[..., 0]
    else:
        angles, turned, present = torsions(aatype, positions, mask)
        parts = [kinds, angles.reshape(*aatype.shape, 14), turned.reshape(*aatype.shape, 14), present]
        row_mask = present[..., 2]  # psi: it needs the backbone of this residue only
    x = linear(jnp.concatenate(parts, axis=-1).astype(dtype), num_channel, "template_single_embedding")
    return linear(jax.nn.relu(x), num_channel, "template_projection"), row_mask.astype(dtype)


def multimer_template_embedding(
    config: ConfigDict, z: jax.Array, features: Features, pair_mask: jax.Array, chunk: int, key: jax.Array | None
) -> jax.Array:
    """The embedding of AlphaFold-Multimer (Evans et al. 2021, section 7.2): a sum over templates, each within its own chain."""
    stack = config.template_pair_stack
    same_chain = features["asym_id"][:, None] == features["asym_id"][None]
    templates = {name: features[name] for name in PER_TEMPLATE}

    def embed(one: Features, own: jax.Array | None) -> jax.Array:
        x = multimer_pair_embedding(config, z, one, same_chain)

        def block(x: jax.Array, own: jax.Array | None) -> jax.Array:
            return pair_updates(stack, x, pair_mask, chunk, own, attention_first=False)

        keys = None if own is None else jax.random.split(own, stack.num_block)
        return layer_norm(stacked(block, stack.num_block, "template_embedding_iteration", x, keys), "output_layer_norm")

    with scope("template_embedding"):
        total = jnp.sum(each_template(embed, "single_template_embedding", templates, key), axis=0)
        mean = jax.nn.relu(total / templates["template_aatype"].shape[0])
        return linear(mean, z.shape[-1], "output_linear")


def multimer_pair_embedding(config: ConfigDict, z: jax.Array, one: Features, same_chain: jax.Array) -> jax.Array:
    """Each feature by a matrix of its own, summed: [N, N, C]."""
    aatype, positions, mask = (one[name] for name in PER_TEMPLATE)
    beta_mask = pseudo_beta_mask(aatype, mask)
    beta_2d = beta_mask[:, None] * beta_mask[None] * same_chain
    bins = distance_bins(pseudo_beta(aatype, positions), **config.dgram_features) * beta_2d[..., None]
    frame = backbone_frame(positions)
    # Where each residue sees every other, as a direction in its own frame.
    seen = frame.expand(1).apply_inverse(frame.translation[None])
    unit = seen / jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(seen), axis=-1, keepdims=True), 1e-12))
    backbone = jnp.prod(mask[:, :3], axis=-1)
    backbone_2d = backbone[:, None] * backbone[None] * same_chain
    unit = unit * backbone_2d[..., None]
    kinds = one_hot(aatype, 22)
    inputs = [
        (bins, 1), (beta_2d, 0), (kinds[None], 1), (kinds[:, None], 1),
        (unit[..., 0], 0), (unit[..., 1], 0), (unit[..., 2], 0), (backbone_2d, 0),
        (layer_norm(z, "query_embedding_norm"), 1),
    ]  # fmt: skip
    parts = [
        linear(x.astype(z.dtype), config.num_channels, f"template_pair_embedding_{number}", in_dims=dims)
        for number, (x, dims) in enumerate(inputs)
    ]
    return functools.reduce(jnp.add, parts)
