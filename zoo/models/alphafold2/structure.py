"""The structure module (algorithms 20-25): residues as frames in space, moved by invariant point attention.

AlphaFold-Multimer keeps its frames as rotations and scales positions by 20; the monomer keeps quaternions and scales by 10. Apart
from the names of the parameters of the projections both compute the same.

Suffixes: N residues, H heads, P points, C channels.
"""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from zoo.models.alphafold2.geometry import (
    Frame,
    atom37_from_atom14,
    atoms_from_torsions,
    quaternion_rotation,
    quaternion_update,
)
from zoo.models.alphafold2.layers import layer_norm, linear, parameter, parameters_of, scope


def structure_module(
    config: ConfigDict, single: jax.Array, pair: jax.Array, aatype: jax.Array, seq_mask: jax.Array, multimer: bool
) -> dict[str, jax.Array]:
    """Algorithm 20.

    Args:
        config: section `heads.structure_module`.
        single: [N, C] representation.
        pair: [N, N, C] representation.
        aatype: [N] residue types.
        seq_mask: [N], 0 for padding.
        multimer: names and frames of AlphaFold-Multimer.

    Returns:
        final_atom_positions [N, 37, 3] in angstrom, final_atom_mask [N, 37], act [N, C] (what pLDDT is read from).
    """
    with scope("structure_module"):
        initial = layer_norm(single, "single_layer_norm")
        act = linear(initial, config.num_channel, "initial_projection")
        pair = layer_norm(pair, "pair_layer_norm")
        quaternions = jnp.tile(jnp.array([1.0, 0, 0, 0]), (act.shape[0], 1))
        pose = (quaternions, Frame(quaternion_rotation(quaternions), jnp.zeros((act.shape[0], 3))))

        def iterate(act: jax.Array, pose: Any) -> Any:
            return fold_iteration(config, act, pair, pose, seq_mask, multimer)

        def whole(act: jax.Array, pose: Any) -> Any:
            act, pose = iterate(act, pose)
            return side_chains(config, act, initial, pose[1], aatype)

        params = parameters_of(whole, "fold_iteration", act, pose)
    steps = hk.transform(iterate).apply
    act, pose = jax.lax.scan(lambda x, _: (steps(params, None, *x), None), (act, pose), length=config.num_layer)[0]
    read_out = hk.transform(lambda act, frame: side_chains(config, act, initial, frame, aatype)).apply
    positions, mask = atom37_from_atom14(aatype, read_out(params, None, act, pose[1]), seq_mask)
    return {"final_atom_positions": positions, "final_atom_mask": mask, "act": act}


def fold_iteration(
    config: ConfigDict, act: jax.Array, pair: jax.Array, pose: Any, seq_mask: jax.Array, multimer: bool
) -> Any:
    """Algorithm 20, lines 6-10: attend, transform, move the frames."""
    quaternions, frame = pose
    act = act + invariant_point_attention(config, act, pair, frame, seq_mask, multimer)
    act = layer_norm(act, "attention_layer_norm")
    hidden = act
    for layer in range(config.num_layer_in_transition):
        hidden = jax.nn.relu(hidden) if layer else hidden
        hidden = linear(hidden, config.num_channel, "transition")
    act = layer_norm(act + hidden, "transition_layer_norm")
    return act, moved(act, quaternions, frame, multimer)


def moved(act: jax.Array, quaternions: jax.Array, frame: Frame, multimer: bool) -> tuple[jax.Array, Frame]:
    """Algorithm 23."""
    if multimer:
        with scope("quat_rigid"):
            update = linear(act, 6, "rigid", precise=True)
        real = jnp.ones_like(update[:, :1])
        turn = jnp.concatenate([real, update[:, :3]], axis=-1)
        turn = turn / jnp.linalg.norm(turn, axis=-1, keepdims=True)
        return quaternions, frame.compose(Frame(quaternion_rotation(turn), update[:, 3:]))
    update = linear(act, 6, "affine_update")
    translation = frame.apply(update[:, 3:])
    quaternions = quaternion_update(quaternions, update[:, :3])
    return quaternions, Frame(quaternion_rotation(quaternions), translation)


def invariant_point_attention(
    config: ConfigDict, act: jax.Array, pair: jax.Array, frame: Frame, seq_mask: jax.Array, multimer: bool
) -> jax.Array:
    """Algorithm 22: scalars, pairs and distances between points in space decide what each residue attends to."""
    num_res, heads = act.shape[0], config.num_head
    project = multimer_projections if multimer else monomer_projections
    with scope("invariant_point_attention"):
        (q, k, v), (q_points, k_points, v_points) = project(config, act, frame)
        weight_H = jax.nn.softplus(parameter("trainable_point_weights", (heads,), jnp.float32))
        weight_H = weight_H * np.sqrt(1 / (config.num_point_qk * 9 / 2))
        square = jnp.square(q_points[:, None] - k_points[None])  # [N, N, H, P, 3]
        logits = jnp.einsum("qhc,khc->qkh", q * np.sqrt(1 / config.num_scalar_qk), k)
        logits = logits - 0.5 * weight_H * jnp.sum(square, axis=(-2, -1)) + linear(pair, heads, "attention_2d")
        logits = jnp.sqrt(1 / 3) * logits - 1e5 * (1 - seq_mask[:, None] * seq_mask[None])[..., None]
        weights = jax.nn.softmax(logits, axis=1)
        points = jnp.sum(weights[..., None, None] * v_points[None], axis=1)
        local = frame.expand(2).apply_inverse(points)  # [N, H, P, 3]
        features = [
            jnp.einsum("qkh,khc->qhc", weights, v),
            *(local[..., axis] for axis in range(3)),
            lengths(local, multimer),
            jnp.einsum("qkh,qkc->qhc", weights, pair),
        ]
        flat = jnp.concatenate([feature.reshape(num_res, -1) for feature in features], axis=-1)
        return linear(flat, config.num_channel, "output_projection")


def lengths(local: jax.Array, multimer: bool) -> jax.Array:
    square = jnp.sum(jnp.square(local), axis=-1)
    return jnp.sqrt(jnp.maximum(square, 1e-16) if multimer else square + 1e-8)


def monomer_projections(config: ConfigDict, act: jax.Array, frame: Frame) -> Any:
    """Scalars (q, k, v), each [N, H, C], and points (q, k, v), each [N, H, P, 3] in space."""
    num_res, heads = act.shape[0], config.num_head
    q = linear(act, heads * config.num_scalar_qk, "q_scalar").reshape(num_res, heads, -1)
    kv = linear(act, heads * (config.num_scalar_qk + config.num_scalar_v), "kv_scalar").reshape(num_res, heads, -1)

    def points(count: int, name: str) -> jax.Array:
        local = linear(act, heads * 3 * count, name).reshape(num_res, 3, heads, count)
        return frame.expand(2).apply(jnp.moveaxis(local, 1, -1))

    q_points = points(config.num_point_qk, "q_point_local")
    kv_points = points(config.num_point_qk + config.num_point_v, "kv_point_local")
    cut, point_cut = config.num_scalar_qk, config.num_point_qk
    return (q, kv[..., :cut], kv[..., cut:]), (q_points, kv_points[..., :point_cut, :], kv_points[..., point_cut:, :])


def multimer_projections(config: ConfigDict, act: jax.Array, frame: Frame) -> Any:
    """As `monomer_projections`, with a matrix of its own for each."""
    heads = config.num_head

    def points(count: int, name: str) -> jax.Array:
        with scope(name):
            local = linear(act, (heads, 3 * count), "point_projection", precise=True)
        return frame.expand(2).apply(jnp.moveaxis(local.reshape(act.shape[0], heads, 3, count), 2, -1))

    def scalars(count: int, name: str) -> jax.Array:
        return linear(act, (heads, count), name, bias=False)

    q, k = (scalars(config.num_scalar_qk, f"{side}_scalar_projection") for side in "qk")
    q_points, k_points = (points(config.num_point_qk, f"{side}_point_projection") for side in "qk")
    v = scalars(config.num_scalar_v, "v_scalar_projection")
    return (q, k, v), (q_points, k_points, points(config.num_point_v, "v_point_projection"))


def side_chains(config: ConfigDict, act: jax.Array, initial: jax.Array, frame: Frame, aatype: jax.Array) -> jax.Array:
    """Algorithm 20, lines 11-14 and 24: torsions from the activations, then atom14 positions [N, 14, 3] in angstrom."""
    with scope("rigid_sidechain"):
        x = sum(linear(jax.nn.relu(one), config.sidechain.num_channel, "input_projection") for one in (act, initial))
        for _ in range(config.sidechain.num_residual_block):
            hidden = linear(jax.nn.relu(x), config.sidechain.num_channel, "resblock1")
            x = x + linear(jax.nn.relu(hidden), config.sidechain.num_channel, "resblock2")
        angles = linear(jax.nn.relu(x), 14, "unnormalized_angles").reshape(-1, 7, 2)
    angles = angles / jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(angles), axis=-1, keepdims=True), 1e-12))
    return atoms_from_torsions(aatype, frame.scaled(config.position_scale), angles)
