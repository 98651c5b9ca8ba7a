"""What an atom sees: the switch function and the rows (s, s x/r, s y/r, s z/r) of its neighbours.

Dimensions: N atoms, S neighbour slots, A = 4 components of a row (1 for radial descriptors), T types.
A slot without a neighbour, or with one beyond the cutoff, has a row of zeros.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from zoo.models.deepmd.layout import Layout, excluded


def switch(displacement_NS3: jax.Array, present_NS: jax.Array, rcut_smth: float, rcut: float) -> jax.Array:
    """The switch [N, S] of every slot; 0 where there is no neighbour."""
    return fade(lengths(placed(displacement_NS3, present_NS, rcut)), rcut_smth, rcut)


def fade(distance: jax.Array, rcut_smth: float, rcut: float) -> jax.Array:
    """1 below rcut_smth, 0 from rcut on, a polynomial of fifth degree with two smooth derivatives in between."""
    u = jnp.clip((distance - rcut_smth) / (rcut - rcut_smth), 0.0, 1.0)
    return u**3 * (-6 * u**2 + 15 * u - 10) + 1


def placed(displacement_NS3: jax.Array, present_NS: jax.Array, rcut: float) -> jax.Array:
    """Displacements with a place beyond the cutoff where there is no neighbour: all is 0 there, derivatives included."""
    far = jnp.asarray([2 * rcut, 0.0, 0.0], displacement_NS3.dtype)
    return jnp.where(present_NS[..., None], displacement_NS3, far)


def lengths(displacement_NS3: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(displacement_NS3**2, axis=-1))


def normalised(
    config: Any,
    statistics: Any,
    layout: Layout,
    displacement_NS3: jax.Array,
    present_NS: jax.Array,
    radial: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Rows less their mean over their deviation, [N, S, A], and the row of a slot without a neighbour, [T, A].

    Neighbours of a type that the descriptor excludes have a row of zeros; slots without a neighbour do not.
    """
    rows_NSA = rows(displacement_NS3, present_NS, config.rcut_smth, config.rcut, config.env_protection, radial)
    mean_TA, std_TA = statistics["davg"], statistics["dstd"]
    rows_NSA = (rows_NSA - mean_TA[layout.types][:, None]) / std_TA[layout.types][:, None]
    if config.exclude_types:
        hidden = excluded(config.exclude_types, layout) & near(displacement_NS3, present_NS, config.rcut)
        rows_NSA = jnp.where(hidden[..., None], 0.0, rows_NSA)
    return rows_NSA, -mean_TA / std_TA


def near(displacement_NS3: jax.Array, present_NS: jax.Array, rcut: float) -> jax.Array:
    """Which slots [N, S] hold a neighbour within the cutoff."""
    return present_NS & (jnp.sum(displacement_NS3**2, axis=-1) < rcut**2)


def rows(
    displacement_NS3: jax.Array, present_NS: jax.Array, rcut_smth: float, rcut: float, protection: float, radial: bool
) -> jax.Array:
    """Environment rows [N, S, A].

    Args:
        displacement_NS3: from each atom to its neighbours; anything finite where there is none.
        present_NS: whether a slot has a neighbour.
        radial: only the first component.
    """
    vector = placed(displacement_NS3, present_NS, rcut)
    distance = lengths(vector)
    inverse = 1 / (distance + protection)
    first = (fade(distance, rcut_smth, rcut) * inverse)[..., None]
    if radial:
        return first
    return jnp.concatenate([first, first * inverse[..., None] * vector], axis=-1)
