"""Deep potentials: energy, forces and virial of a frame of atoms from a descriptor and a fitting net.

A frame comes as displacements from atoms to neighbours, laid out as `Layout` says; so the same functions serve free,
periodic and mixed boundaries. Energies in eV, forces in eV/A, virials in eV (minus the derivative of the energy by
strain). Dimensions: N atoms, S neighbour slots, D descriptor length.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zoo.models.deepmd import fitting, se_atten, se_e2_a, se_e2_r, short_range
from zoo.models.deepmd.config import Potential
from zoo.models.deepmd.descriptors import Descriptor, Hybrid, parts
from zoo.models.deepmd.environment import lengths, near, placed
from zoo.models.deepmd.layout import Layout, excluded

MODULES: dict[str, Any] = {"se_e2_a": se_e2_a, "se_e2_r": se_e2_r, "se_atten": se_atten}

Params = Any
Statistics = Any


class Outputs(NamedTuple):
    """What a potential says of a frame.

    Attributes:
        energy: () of the whole frame. All are JAX arrays, or numpy arrays once they are on the host.
        force: [N, 3].
        virial: [3, 3].
        atom_energy: [N]; 0 for atoms that are not there.
    """

    energy: Any
    force: Any
    virial: Any
    atom_energy: Any


def dtype_of(config: Potential) -> Any:
    """The dtype of the parameters; 64-bit types must be switched on for float64."""
    return jnp.dtype(config.fitting_net.precision)


def initial_parameters(config: Potential, key: jax.Array) -> Params:
    """Random {"descriptor": {"0": ...}, "fitting": {...}}; pure, for jit. One entry per part of a hybrid."""
    dtype, used = dtype_of(config), 0

    def build(numbers: jax.Array | None) -> Params:
        nonlocal used
        used = 0

        def draw(shape: tuple[int, ...]) -> jax.Array:
            nonlocal used
            start, used = used, used + math.prod(shape)
            return jnp.zeros(shape, dtype) if numbers is None else numbers[start:used].reshape(shape)

        described = {
            str(index): MODULES[part.type].parameters(part, config.num_types, draw)
            for index, part in enumerate(parts(config.descriptor))
        }
        fitted = fitting.parameters(config, descriptor_width(config.descriptor), draw)
        return {"descriptor": described, "fitting": fitted}

    jax.eval_shape(lambda: build(None))  # counts
    # All are drawn at once: to compile a draw takes longer than to draw.
    return build(jax.random.normal(key, (used,), dtype))


def initial_statistics(config: Potential) -> Statistics:
    """The constants of a model that has seen no data: mean 0 and deviation 1 of the rows, energy bias 0."""
    dtype = dtype_of(config)
    count = config.num_types
    described = {}
    for index, part in enumerate(parts(config.descriptor)):
        components = 1 if part.type == "se_e2_r" else 4
        shape = (count, components)
        described[str(index)] = {"davg": jnp.zeros(shape, dtype), "dstd": jnp.ones(shape, dtype)}
    wide = jnp.result_type(float)
    found = {"descriptor": described, "bias": jnp.zeros(count, wide)}
    if config.short_range is not None:
        found["short_range"] = short_range.constants(config.short_range, count, wide)
    return found


def descriptor_width(descriptor: Descriptor) -> int:
    return sum(MODULES[part.type].width(part) for part in parts(descriptor))


def parameter_count(config: Potential) -> int:
    """Number of trained numbers."""
    shapes = jax.eval_shape(lambda: initial_parameters(config, jax.random.key(0)))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))


def describe(
    config: Potential, params: Params, statistics: Statistics, layout: Layout, displacement_NS3: Any, present_NS: Any
) -> jax.Array:
    """The descriptor [N, D] of every atom."""
    if config.pair_exclude_types:
        present_NS = present_NS & ~excluded(config.pair_exclude_types, layout)
    found, hybrid = [], isinstance(config.descriptor, Hybrid)
    for index, part in enumerate(parts(config.descriptor)):
        one = (params["descriptor"][str(index)], statistics["descriptor"][str(index)])
        seen_NS = nearest_of(part, layout, displacement_NS3, present_NS) if hybrid else present_NS
        found.append(MODULES[part.type].descriptor(part, *one, layout, displacement_NS3, seen_NS))
    return found[0] if len(found) == 1 else jnp.concatenate(found, axis=-1)


def nearest_of(part: Any, layout: Layout, displacement_NS3: jax.Array, present_NS: jax.Array) -> jax.Array:
    """Which slots [N, S] one part of a hybrid looks at: the nearest `sel`, where there are more.

    A descriptor on its own needs none of this: its neighbours are counted when they are put into slots.
    """
    square_NS = jnp.where(present_NS, jnp.sum(displacement_NS3**2, axis=-1), jnp.inf)

    def nearest(section: slice, most: int) -> jax.Array:
        if section.stop - section.start <= most:
            return present_NS[:, section]
        ranks = jnp.argsort(jnp.argsort(square_NS[:, section], axis=1), axis=1)
        return present_NS[:, section] & (ranks < most)

    if isinstance(part.sel, int):
        return nearest(slice(0, layout.num_slots), part.sel)
    return jnp.concatenate([nearest(*one) for one in zip(layout.slot_sections, part.sel, strict=True)], axis=1)


def atom_energies(
    config: Potential, params: Params, statistics: Statistics, layout: Layout, displacement_NS3: Any, present_NS: Any
) -> jax.Array:
    """Energy [N] of every atom, also of those that only fill up the layout."""
    described = describe(config, params, statistics, layout, displacement_NS3.astype(dtype_of(config)), present_NS)
    if config.short_range is None:
        return fitting.energies(config, params["fitting"], statistics["bias"], layout, described)
    constants = statistics["short_range"]
    net_N = fitting.energies(config, params["fitting"], constants["inside"], layout, described)
    if config.pair_exclude_types:
        present_NS = present_NS & ~excluded(config.pair_exclude_types, layout)
    near_NS = near(displacement_NS3, present_NS, config.rcut)
    distance_NS = lengths(placed(displacement_NS3, present_NS, config.rcut)).astype(net_N.dtype)
    found = short_range.mixed(config.short_range, constants["splines"], layout, distance_NS, near_NS, net_N)
    return found + fitting.counted(config, layout) * statistics["bias"].astype(found.dtype)[layout.types]


def outputs(
    config: Potential,
    params: Params,
    statistics: Statistics,
    layout: Layout,
    displacement_NS3: jax.Array,
    neighbours_NS: jax.Array,
    real_N: jax.Array,
) -> Outputs:
    """Energy, forces and virial of one frame.

    Args:
        displacement_NS3: from each atom to its neighbours, in angstrom.
        neighbours_NS: number of each neighbour among the N atoms; -1 where a slot is empty.
        real_N: whether an atom is there.
    """

    def total(displacement: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = atom_energies(config, params, statistics, layout, displacement, neighbours_NS >= 0)
        found = jnp.where(real_N, found, 0.0)
        return jnp.sum(found), found

    (energy, each), slope_NS3 = jax.value_and_grad(total, has_aux=True)(displacement_NS3)
    return Outputs(energy, forces(slope_NS3, neighbours_NS), virial(slope_NS3, displacement_NS3), each)


def forces(slope_NS3: jax.Array, neighbours_NS: jax.Array) -> jax.Array:
    """Forces [N, 3] from the derivative of the energy by each displacement: what pulls here pushes there."""
    count = slope_NS3.shape[0]
    # Empty slots have slope 0, so where they are counted does not matter.
    pushed = jnp.zeros((count, 3), slope_NS3.dtype).at[neighbours_NS.reshape(-1) % count].add(slope_NS3.reshape(-1, 3))
    return jnp.sum(slope_NS3, axis=1) - pushed


def virial(slope_NS3: jax.Array, displacement_NS3: jax.Array) -> jax.Array:
    """Minus the derivative of the energy by strain, [3, 3]."""
    return -jnp.einsum("nsa,nsb->ab", displacement_NS3, slope_NS3)


def displacements(coord_N3: jax.Array, box_33: jax.Array, neighbours_NS: jax.Array, image_NS3: jax.Array) -> jax.Array:
    """From each atom to its neighbours, [N, S, 3].

    Args:
        coord_N3: positions in angstrom.
        box_33: cell vectors as rows.
        neighbours_NS: number of each neighbour, -1 where there is none.
        image_NS3: which periodic image of it, in whole cells.
    """
    there = coord_N3[neighbours_NS] + image_NS3.astype(coord_N3.dtype) @ box_33
    return there - coord_N3[:, None]


def sorted_by_type(types: np.ndarray, num_types: int) -> tuple[np.ndarray, tuple[int, ...]]:
    """The order [N] that sorts atoms by type and keeps it within a type, and how many of each type there are."""
    order = np.argsort(types, kind="stable")
    counts = np.bincount(types, minlength=num_types)
    return order, tuple(int(count) for count in counts)
