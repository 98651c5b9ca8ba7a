"""The descriptor se_atten (DPA-1): neighbours embedded with their types, then attending to each other.

Reference: D. Zhang et al., DPA-1: Pretraining of Attention-based Deep Potential Model, arXiv 2208.08236.
Dimensions: N atoms, S slots, Z = S + 1 with a last slot that stands for all neighbours that `sel` allows and the layout
does not store (its weight says how many), A = 4 row components, M = neuron[-1], K = axis_neuron, T types, E = tebd_dim,
H = attn.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.models.deepmd import series
from zoo.models.deepmd.descriptors import SeAtten
from zoo.models.deepmd.environment import near, normalised, switch
from zoo.models.deepmd.layout import Layout, excluded
from zoo.models.deepmd.networks import Draw, embedding_parameters, layer_parameters, network

SHIFT = 20.0
"""Smooth attention fades a neighbour's score to -SHIFT as it leaves."""

TINY = 1e-12
"""Shortest length that a vector is divided by."""


def width(config: SeAtten) -> int:
    """Length of an atom's descriptor."""
    return config.neuron[-1] * config.axis_neuron + (config.tebd_dim if config.concat_output_tebd else 0)


def parameters(config: SeAtten, num_types: int, draw: Draw) -> Any:
    """Random {"embedding", "types", "attention": {"0": ...}} and, in strip mode, "strip"."""
    sides = config.tebd_dim * (1 if config.type_one_side else 2)
    strip = config.tebd_input_mode == "strip"
    types = embedding_parameters(draw, num_types, (config.tebd_dim,), False)
    if not config.use_tebd_bias:
        del types["0"]["b"]
    inside = 1 if strip else 1 + sides
    found = {
        "types": types,
        "embedding": embedding_parameters(draw, inside, config.neuron, config.resnet_dt),
        "attention": {str(index): attention_parameters(config, draw) for index in range(config.attn_layer)},
    }
    if strip:
        found["strip"] = embedding_parameters(draw, sides, config.neuron, config.resnet_dt)
    return found


def attention_parameters(config: SeAtten, draw: Draw) -> Any:
    wide = config.neuron[-1]
    into = layer_parameters(draw, wide, 3 * config.attn, False)
    norm = {"w": jnp.ones(wide, into["w"].dtype), "b": jnp.zeros(wide, into["w"].dtype)}
    return {
        "in": into,
        "out": layer_parameters(draw, config.attn, wide, False),
        "norm": norm,
    }


def descriptor(
    config: SeAtten, params: Any, statistics: Any, layout: Layout, displacement_NS3: jax.Array, present_NS: jax.Array
) -> jax.Array:
    """The descriptor [N, M * K (+ E)] of every atom."""
    types, count = layout.types, len(layout.counts)
    rows_NSA, empty_TA = normalised(config, statistics, layout, displacement_NS3, present_NS)
    near_NS = near(displacement_NS3, present_NS, config.rcut) & ~excluded(config.exclude_types, layout)
    switch_NS = switch(displacement_NS3, near_NS, config.rcut_smth, config.rcut)
    near_NZ = jnp.pad(near_NS, ((0, 0), (0, 1)))
    switch_NZ = jnp.pad(switch_NS, ((0, 0), (0, 1)))
    rows_NZA = jnp.concatenate([rows_NSA, empty_TA[types][:, None]], axis=1)
    assert isinstance(config.sel, int)
    weight_Z = np.concatenate([np.ones(layout.num_slots), [config.sel - layout.num_slots]]).astype(rows_NSA.dtype)
    tebd_TE = network(params["types"], jnp.eye(count, dtype=rows_NSA.dtype), "linear")
    if series.is_series(params["embedding"]):
        moments_NAM = moments(config, params, layout, tebd_TE, rows_NZA, switch_NZ, near_NZ, weight_Z)
    else:
        embedded_NZM = embedded(config, params, layout, tebd_TE, rows_NZA[..., :1], switch_NZ, near_NZ)
        direction_NZ3 = unit(rows_NZA[..., 1:])
        for index in range(config.attn_layer):
            layer = params["attention"][str(index)]
            embedded_NZM = attention(config, layer, embedded_NZM, direction_NZ3, switch_NZ, near_NZ, weight_Z)
        moments_NAM = jnp.einsum("nza,nzm->nam", rows_NZA * weight_Z[:, None], embedded_NZM)
    moments_NAM = moments_NAM / config.sel
    product_NMK = jnp.einsum("nam,nak->nmk", moments_NAM, moments_NAM[..., : config.axis_neuron])
    found = product_NMK.reshape(product_NMK.shape[0], -1)
    return jnp.concatenate([found, tebd_TE[types]], axis=-1) if config.concat_output_tebd else found


def embedded(
    config: SeAtten,
    params: Any,
    layout: Layout,
    tebd_TE: jax.Array,
    radial_NZ1: jax.Array,
    switch_NZ: jax.Array,
    near_NZ: jax.Array,
) -> jax.Array:
    """The embedding [N, Z, M] of distances and types.

    A slot without a neighbour has the layout's vacant type, or the embedding 0 for a type.
    """
    act = config.activation_function
    types, count = layout.types, len(layout.counts)
    vacant = count if layout.vacant is None else layout.vacant
    kinds_Z = np.append(layout.slot_types, vacant)
    padded_UE = jnp.pad(tebd_TE, ((0, 1), (0, 0)))
    if config.tebd_input_mode == "strip":
        factor_TUM = factors(config, params, tebd_TE)
        factor_NZM = factor_TUM[types][:, kinds_Z]
        empty_N1M = factor_TUM[types][:, vacant, None]
        factor_NZM = jnp.where(near_NZ[..., None], factor_NZM, empty_N1M)
        if config.smooth_type_embedding:
            factor_NZM = factor_NZM * switch_NZ[..., None]
        radial_NZM = network(params["embedding"], radial_NZ1, act)
        return radial_NZM * factor_NZM + radial_NZM
    inputs = [radial_NZ1, jnp.where(near_NZ[..., None], padded_UE[kinds_Z][None], padded_UE[vacant])]
    if not config.type_one_side:
        inputs.append(jnp.broadcast_to(tebd_TE[types][:, None], (*near_NZ.shape, config.tebd_dim)))
    return network(params["embedding"], jnp.concatenate(inputs, axis=-1), act)


def factors(config: SeAtten, params: Any, tebd_TE: jax.Array) -> jax.Array:
    """What embeddings are multiplied by, per type of the centre and of the neighbour, in strip mode: [T, T + 1, M].

    The last neighbour type is none.
    """
    count = tebd_TE.shape[0]
    padded_UE = jnp.pad(tebd_TE, ((0, 1), (0, 0)))
    sides = [padded_UE[None, :, :].repeat(count, axis=0)]
    if not config.type_one_side:
        sides.append(tebd_TE[:, None, :].repeat(count + 1, axis=1))
    return network(params["strip"], jnp.concatenate(sides, axis=-1), config.activation_function)


def moments(
    config: SeAtten,
    params: Any,
    layout: Layout,
    tebd_TE: jax.Array,
    rows_NZA: jax.Array,
    switch_NZ: jax.Array,
    near_NZ: jax.Array,
    weight_Z: np.ndarray,
) -> jax.Array:
    """Sum over the slots of row times embedding [N, 4, M], with the embedding net as a series.

    Slots of one type have one factor, so they are summed before it is applied.
    """
    count = len(layout.counts)
    factor_NUM = factors(config, params, tebd_TE)[layout.types]
    gate_NZ = switch_NZ if config.smooth_type_embedding else near_NZ.astype(rows_NZA.dtype)
    weighted_NZA = rows_NZA * weight_Z[:, None]
    net, argument_NZ = params["embedding"], rows_NZA[..., 0]
    found_NAM = series.moments(net, weighted_NZA, argument_NZ)
    for kind, section in enumerate(layout.slot_sections):
        gated_NSA = weighted_NZA[:, section] * gate_NZ[:, section, None]
        found_NAM += series.moments(net, gated_NSA, argument_NZ[:, section]) * factor_NUM[:, kind, None]
    if not config.smooth_type_embedding:
        vacant = count if layout.vacant is None else layout.vacant
        empty_NZA = weighted_NZA * ~near_NZ[..., None]
        found_NAM += series.moments(net, empty_NZA, argument_NZ) * factor_NUM[:, vacant, None]
    return found_NAM


def attention(
    config: SeAtten,
    layer: Any,
    embedded_NZM: jax.Array,
    direction_NZ3: jax.Array,
    switch_NZ: jax.Array,
    near_NZ: jax.Array,
    weight_Z: np.ndarray,
) -> jax.Array:
    """One layer of attention between the neighbours of an atom, with its residual and layer norm: [N, Z, M]."""
    query, key, value = jnp.split(embedded_NZM @ layer["in"]["w"] + layer["in"]["b"], 3, axis=-1)
    if config.normalize:
        query, key, value = unit(query), unit(key), unit(value)
    scale = config.temperature if config.temperature is not None else (config.attn * config.scaling_factor) ** -0.5
    score_NZZ = jnp.einsum("nih,njh->nij", query * scale, key)
    if config.smooth_type_embedding:
        fade_NZZ = switch_NZ[:, :, None] * switch_NZ[:, None, :]
        score_NZZ = (score_NZZ + SHIFT) * fade_NZZ - SHIFT
        power_NZZ = jnp.exp(score_NZZ - highest(score_NZZ))
        # Slots without a neighbour count in the sum: that is how the model was defined.
        share_NZZ = power_NZZ * fade_NZZ / jnp.sum(power_NZZ * weight_Z, axis=-1, keepdims=True)
    else:
        score_NZZ = jnp.where(near_NZ[:, None, :], score_NZZ, -jnp.inf)
        peak_NZ1 = highest(score_NZZ)
        power_NZZ = jnp.exp(score_NZZ - jnp.where(jnp.isfinite(peak_NZ1), peak_NZ1, 0.0))
        share_NZZ = power_NZZ / jnp.maximum(jnp.sum(power_NZZ, axis=-1, keepdims=True), TINY)
        share_NZZ = jnp.where(near_NZ[:, :, None], share_NZZ, 0.0)
    if config.attn_dotr:
        share_NZZ = share_NZZ * jnp.einsum("nix,njx->nij", direction_NZ3, direction_NZ3)
    mixed_NZH = jnp.einsum("nij,njh->nih", share_NZZ, value)
    out_NZM = embedded_NZM + mixed_NZH @ layer["out"]["w"] + layer["out"]["b"]
    return layer_norm(layer["norm"], out_NZM, config.ln_eps)


def highest(score_NZZ: jax.Array) -> jax.Array:
    """The highest score of each row [N, Z, 1], as a constant: shares do not depend on what all scores are shifted by.

    The derivative of a maximum divides by how many scores equal it. A compiler that computes the scores anew for the
    comparison may round them otherwise, and then none does: 0 / 0.
    """
    return jax.lax.stop_gradient(jnp.max(score_NZZ, axis=-1, keepdims=True))


def layer_norm(layer: Any, x: jax.Array, epsilon: float) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(centred**2, axis=-1, keepdims=True)
    return centred / jnp.sqrt(variance + epsilon) * layer["w"] + layer["b"]


def unit(vector: jax.Array) -> jax.Array:
    """The vector over its length; 0, with derivative 0, where it is 0."""
    square = jnp.sum(vector**2, axis=-1, keepdims=True)
    something = square > 0
    length = jnp.sqrt(jnp.where(something, square, 1.0))
    return jnp.where(something, vector / jnp.maximum(length, TINY), 0.0)
