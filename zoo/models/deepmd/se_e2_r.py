"""The descriptor se_e2_r (DeepPot-SE without angles): the mean embedding of the neighbours' distances, times 1/5.

Dimensions as in `se_e2_a`, with A = 1.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from zoo.models.deepmd import series
from zoo.models.deepmd.descriptors import SeR
from zoo.models.deepmd.environment import normalised
from zoo.models.deepmd.layout import Layout
from zoo.models.deepmd.networks import Draw, embedding_parameters, network
from zoo.models.deepmd.se_e2_a import net_names

SCALE = 1 / 5


def width(config: SeR) -> int:
    """Length of an atom's descriptor."""
    return config.neuron[-1]


def parameters(config: SeR, num_types: int, draw: Draw) -> Any:
    """Random embedding nets, named as those of se_e2_a."""
    return {
        name: embedding_parameters(draw, 1, config.neuron, config.resnet_dt) for name in net_names(config, num_types)
    }


def descriptor(
    config: SeR, params: Any, statistics: Any, layout: Layout, displacement_NS3: jax.Array, present_NS: jax.Array
) -> jax.Array:
    """The descriptor [N, M] of every atom."""
    rows_NSA, empty_TA = normalised(config, statistics, layout, displacement_NS3, present_NS, radial=True)
    assert isinstance(config.sel, tuple)
    total_NM: Any = 0.0
    for neighbour, section in enumerate(layout.slot_sections):
        spare = config.sel[neighbour] - layout.slots[neighbour]
        found = []
        for centre, part in enumerate(layout.atom_sections):
            net = params[str(neighbour) if config.type_one_side else f"{centre}-{neighbour}"]
            seen_nM = summed(config, net, rows_NSA[part, section])
            found.append(seen_nM + spare * summed(config, net, empty_TA[centre, None, None]))
        total_NM += jnp.concatenate(found)
    return total_NM * (SCALE / sum(config.sel))


def summed(config: SeR, net: Any, rows_nS1: jax.Array) -> jax.Array:
    """Sum over the slots of the embedding: [n, M]."""
    if series.is_series(net):
        return series.moments(net, jnp.ones_like(rows_nS1), rows_nS1[..., 0])[:, 0]
    return jnp.sum(network(net, rows_nS1, config.activation_function), axis=1)
