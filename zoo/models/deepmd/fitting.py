"""From descriptors to energies of atoms: one net per type, or one for all types that knows them by their embedding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zoo.models.deepmd.config import Potential
from zoo.models.deepmd.layout import Layout
from zoo.models.deepmd.networks import Draw, fitting_network, fitting_parameters


def parameters(config: Potential, width: int, draw: Draw) -> Any:
    """Random nets {"T": net} for descriptors of length `width`; the one net of mixed types is called "0"."""
    fit = config.fitting_net
    count = 1 if config.mixed_types else config.num_types
    return {str(index): fitting_parameters(draw, width, fit.neuron, fit.resnet_dt) for index in range(count)}


def energies(config: Potential, params: Any, bias_T: jax.Array, layout: Layout, descriptor_ND: jax.Array) -> jax.Array:
    """Energy [N] in eV of every atom, float64 where JAX has it."""
    act = config.fitting_net.activation_function

    # Of types with a given energy of the isolated atom, what the net gives for an empty environment is taken off.
    given = [value is not None for value in config.fitting_net.atom_ener] or [False] * config.num_types
    vacuum_N = np.asarray(given, float)[layout.types]

    def net(name: str, inside_nD: jax.Array, part: slice = slice(None)) -> jax.Array:
        out = fitting_network(params[name], inside_nD, act)[:, 0]
        if vacuum_N[part].any():
            empty = fitting_network(params[name], jnp.zeros_like(inside_nD[:1]), act)[:, 0]
            out = out - empty * vacuum_N[part].astype(out.dtype)
        return out

    if config.mixed_types:
        found = net("0", descriptor_ND)
    else:
        found = jnp.concatenate(
            [net(str(kind), descriptor_ND[part], part) for kind, part in enumerate(layout.atom_sections)]
        )
    wide = jnp.result_type(float)  # float64 with 64-bit types switched on
    return (found.astype(wide) + bias_T.astype(wide)[layout.types]) * counted(config, layout)


def counted(config: Potential, layout: Layout) -> np.ndarray:
    """1 for atoms of types that have an energy, 0 for the others, [N]."""
    found = np.asarray([float(kind not in config.atom_exclude_types) for kind in range(config.num_types)])
    return found[layout.types]
