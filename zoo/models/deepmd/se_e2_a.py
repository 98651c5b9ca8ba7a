"""The descriptor se_e2_a (DeepPot-SE): products of neighbour rows with an embedding of their distances.

Reference: L. Zhang et al., End-to-end Symmetry Preserving Inter-atomic Potential Energy Model, NeurIPS 2018.
Dimensions: N atoms, S slots, A = 4 row components, M = neuron[-1], K = axis_neuron, T types.
Slots that are not stored (sel less what the layout has) hold no neighbour; their constant part is added at once.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from zoo.models.deepmd import series
from zoo.models.deepmd.descriptors import SeA
from zoo.models.deepmd.environment import normalised
from zoo.models.deepmd.layout import Layout
from zoo.models.deepmd.networks import Draw, embedding_parameters, network


def width(config: SeA) -> int:
    """Length of an atom's descriptor."""
    return config.neuron[-1] * config.axis_neuron


def parameters(config: SeA, num_types: int, draw: Draw) -> Any:
    """Random embedding nets: {"T": net} per neighbour type, or {"C-T": net} per centre and neighbour type."""
    return {
        name: embedding_parameters(draw, 1, config.neuron, config.resnet_dt) for name in net_names(config, num_types)
    }


def net_names(config: Any, num_types: int) -> list[str]:
    if config.type_one_side:
        return [str(neighbour) for neighbour in range(num_types)]
    return [f"{centre}-{neighbour}" for neighbour in range(num_types) for centre in range(num_types)]


def descriptor(
    config: SeA, params: Any, statistics: Any, layout: Layout, displacement_NS3: jax.Array, present_NS: jax.Array
) -> jax.Array:
    """The descriptor [N, M * K] of every atom."""
    rows_NSA, empty_TA = normalised(config, statistics, layout, displacement_NS3, present_NS)
    assert isinstance(config.sel, tuple)
    total_NAM: Any = 0.0
    for neighbour, section in enumerate(layout.slot_sections):
        spare = config.sel[neighbour] - layout.slots[neighbour]
        total_NAM += moments(config, params, layout, neighbour, rows_NSA[:, section])
        total_NAM += spare * empty_moments(config, params, neighbour, empty_TA)[layout.types]
    total_NAM = total_NAM / sum(config.sel)
    product_NMK = jnp.einsum("nam,nak->nmk", total_NAM, total_NAM[..., : config.axis_neuron])
    return product_NMK.reshape(product_NMK.shape[0], -1)


def moments(config: Any, params: Any, layout: Layout, neighbour: int, block_NSA: jax.Array) -> jax.Array:
    """Sum over the slots of one neighbour type of row times embedding: [N, A, M]."""

    def contract(layers: Any, part_nSA: jax.Array) -> jax.Array:
        if series.is_series(layers):
            return series.moments(layers, part_nSA, part_nSA[..., 0])
        embedded = network(layers, part_nSA[..., :1], config.activation_function)
        return jnp.einsum("nsa,nsm->nam", part_nSA, embedded)

    if config.type_one_side:
        return contract(params[str(neighbour)], block_NSA)
    found = [
        contract(params[f"{centre}-{neighbour}"], block_NSA[part]) for centre, part in enumerate(layout.atom_sections)
    ]
    return jnp.concatenate(found)


def empty_moments(config: Any, params: Any, neighbour: int, empty_TA: jax.Array) -> jax.Array:
    """What one slot without a neighbour adds, per centre type: [T, A, M]."""
    found = []
    for centre in range(empty_TA.shape[0]):
        layers, row_1A = (
            params[str(neighbour) if config.type_one_side else f"{centre}-{neighbour}"],
            empty_TA[centre, None],
        )
        if series.is_series(layers):
            found.append(series.moments(layers, row_1A[:, None], row_1A[:, :1])[0])
        else:
            embedded_1M = network(layers, row_1A[:, :1], config.activation_function)
            found.append(row_1A.T * embedded_1M)
    return jnp.stack(found)
