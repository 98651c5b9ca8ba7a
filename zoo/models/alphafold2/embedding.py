"""From features to representations (algorithm 2, lines 5-18): embedders, recycling, templates, further sequences, Evoformer.

Suffixes: S sequences, N residues, C channels; m is the alignment [S, N, C], z the pairs [N, N, C].
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from zoo.models.alphafold2.evoformer import evoformer_stack
from zoo.models.alphafold2.geometry import distance_bins, pseudo_beta
from zoo.models.alphafold2.layers import layer_norm, linear, one_hot, scope, split
from zoo.models.alphafold2.templates import multimer_template_embedding, template_embedding, template_rows

Features = Mapping[str, jax.Array]


def representations(
    config: ConfigDict, switches: ConfigDict, features: Features, previous: Features, key: jax.Array | None
) -> dict[str, jax.Array]:
    """What the heads read: msa [S, N, C], msa_first_row [N, C], pair [N, N, C], single [N, C].

    Args:
        config: section `embeddings_and_evoformer`.
        switches: section `global_config`.
        features: of one draw of the alignment.
        previous: prev_pos [N, 37, 3], prev_msa_first_row [N, C], prev_pair [N, N, C] of the recycle before; 0 at first.
        key: for dropout, or None for none.
    """
    c, chunk = config, switches.chunk_bytes
    dtype = jnp.bfloat16 if switches.bfloat16 else jnp.float32
    template_key, further_key, main_key = split(key, 3)
    seq_mask = features["seq_mask"].astype(dtype)
    pair_mask = seq_mask[:, None] * seq_mask[None]
    m, z = input_embedder(c, features, dtype)
    m, z = recycling_embedder(c, m, z, features["aatype"], previous)
    z = z + relative_positions(c, switches, features, dtype)
    if c.template.enabled:
        embed = multimer_template_embedding if switches.multimer_mode else template_embedding
        z = z + embed(c.template, z, features, pair_mask, chunk, template_key)
    further = linear(further_features(features).astype(dtype), c.extra_msa_channel, "extra_msa_activations")
    masks = (features["extra_msa_mask"].astype(dtype), pair_mask)
    count = c.extra_msa_stack_num_block
    _, z = evoformer_stack(c.evoformer, count, "extra_msa_stack", further, z, masks, chunk, further_key, further=True)
    num_rows, msa_mask = m.shape[0], features["msa_mask"].astype(dtype)
    if c.template.enabled and c.template.get("embed_torsion_angles", True):
        rows, row_mask = template_rows(features, c.msa_channel, dtype, switches.multimer_mode)
        m, msa_mask = jnp.concatenate([m, rows]), jnp.concatenate([msa_mask, row_mask])
    count = c.evoformer_num_block
    m, z = evoformer_stack(
        c.evoformer, count, "evoformer_iteration", m, z, (msa_mask, pair_mask), chunk, main_key, further=False
    )
    result = {
        "single": linear(m[0], c.seq_channel, "single_activations"),
        "pair": z,
        "msa": m[:num_rows],
        "msa_first_row": m[0],
    }
    return result if switches.bfloat16_output else {name: x.astype(jnp.float32) for name, x in result.items()}


def input_embedder(config: ConfigDict, features: Features, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """Algorithm 3 without the relative positions."""
    target = features["target_feat"].astype(dtype)
    m = linear(target, config.msa_channel, "preprocess_1d")[None]
    m = m + linear(features["msa_feat"].astype(dtype), config.msa_channel, "preprocess_msa")
    left = linear(target, config.pair_channel, "left_single")
    right = linear(target, config.pair_channel, "right_single")
    return m, left[:, None] + right[None]


def recycling_embedder(
    config: ConfigDict, m: jax.Array, z: jax.Array, aatype: jax.Array, previous: Features
) -> tuple[jax.Array, jax.Array]:
    """Algorithm 32."""
    if config.recycle_pos:
        bins = distance_bins(pseudo_beta(aatype, previous["prev_pos"]), **config.prev_pos)
        z = z + linear(bins.astype(z.dtype), config.pair_channel, "prev_pos_linear")
    if config.recycle_features:
        row = layer_norm(previous["prev_msa_first_row"], "prev_msa_first_row_norm")
        m = m.at[0].add(row.astype(m.dtype))
        z = z + layer_norm(previous["prev_pair"], "prev_pair_norm").astype(z.dtype)
    return m, z


def relative_positions(config: ConfigDict, switches: ConfigDict, features: Features, dtype: jnp.dtype) -> jax.Array:
    """Algorithms 4 and 5; in complexes also which chains belong together (Evans et al. 2021, section 7.1)."""
    position = features["residue_index"]
    offset = position[:, None] - position[None]
    if not switches.multimer_mode:
        reach = config.max_relative_feature
        near = one_hot(jnp.clip(offset + reach, 0, 2 * reach), 2 * reach + 1)
        return linear(near.astype(dtype), config.pair_channel, "pair_activiations")  # spelt so in the published files
    same_chain, same_entity = (features[name][:, None] == features[name][None] for name in ("asym_id", "entity_id"))
    reach, chains = config.max_relative_idx, config.max_relative_chain
    along = jnp.where(same_chain, jnp.clip(offset + reach, 0, 2 * reach), 2 * reach + 1)
    copy = (features["sym_id"][:, None] - features["sym_id"][None]).astype(jnp.int32)
    copy = jnp.where(same_entity, jnp.clip(copy + chains, 0, 2 * chains), 2 * chains + 1)
    parts = [one_hot(along, 2 * reach + 2), same_entity[..., None].astype(jnp.float32), one_hot(copy, 2 * chains + 2)]
    with scope("relative_encoding"):
        return linear(jnp.concatenate(parts, axis=-1).astype(dtype), config.pair_channel, "position_activations")


def further_features(features: Features) -> jax.Array:
    """25 channels [S, N, C] of the sequences that are no cluster centres; one-hot only here, as they are many."""
    letters = one_hot(features["extra_msa"], 23)
    rest = [features["extra_has_deletion"][..., None], features["extra_deletion_value"][..., None]]
    return jnp.concatenate([letters, *rest], axis=-1)
