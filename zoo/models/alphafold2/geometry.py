"""Frames, torsion angles and atoms of residues.

A frame maps points of its own system to another: x -> rotation @ x + translation. Sums are written out instead of matrix products:
these need all the digits of float32 on every device.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zoo.proteins.residues import tables


class Frame(NamedTuple):
    """rotation [..., 3, 3] and translation [..., 3]."""

    rotation: jax.Array
    translation: jax.Array

    def apply(self, points: jax.Array) -> jax.Array:
        return rotate(self.rotation, points) + self.translation

    def apply_inverse(self, points: jax.Array) -> jax.Array:
        return rotate(jnp.swapaxes(self.rotation, -1, -2), points - self.translation)

    def compose(self, inner: Frame) -> Frame:
        """The frame that applies `inner` first."""
        rotation = jnp.sum(self.rotation[..., :, :, None] * inner.rotation[..., None, :, :], axis=-2)
        return Frame(rotation, self.apply(inner.translation))

    def expand(self, dims: int) -> Frame:
        """With `dims` dimensions of size 1 after those of the batch."""
        where = tuple(range(self.translation.ndim - 1, self.translation.ndim - 1 + dims))
        return Frame(jnp.expand_dims(self.rotation, where), jnp.expand_dims(self.translation, where))

    def scaled(self, factor: float) -> Frame:
        return Frame(self.rotation, self.translation * factor)

    def at(self, *where: slice | int) -> Frame:
        return Frame(self.rotation[where], self.translation[where])


def rotate(rotation: jax.Array, points: jax.Array) -> jax.Array:
    return jnp.sum(rotation * points[..., None, :], axis=-1)


def quaternion_rotation(quaternion: jax.Array) -> jax.Array:
    """[..., 4] of unit length (real part first) -> [..., 3, 3]."""
    w, x, y, z = jnp.moveaxis(quaternion, -1, 0)
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def quaternion_update(quaternion: jax.Array, vector: jax.Array) -> jax.Array:
    """q * (1 + bi + cj + dk) for vector (b, c, d): algorithm 23, scaled back to unit length."""
    w, axis = quaternion[..., :1], quaternion[..., 1:]
    real = w - jnp.sum(axis * vector, axis=-1, keepdims=True)
    result = jnp.concatenate([real, axis + w * vector + jnp.cross(axis, vector)], axis=-1)
    return result / jnp.linalg.norm(result, axis=-1, keepdims=True)


def two_vectors(x: jax.Array, y: jax.Array, clipped: bool) -> jax.Array:
    """Rotation [..., 3, 3] whose first axis is along `x` and whose second is in the half plane of `y` (algorithm 21).

    Args:
        x, y: [..., 3].
        clipped: how a length near 0 is kept from dividing: bounded below by 1e-6, or 1e-8 added to its square.
    """

    def unit(vector: jax.Array) -> jax.Array:
        square = jnp.sum(jnp.square(vector), axis=-1, keepdims=True)
        return vector / jnp.sqrt(jnp.maximum(square, 1e-12) if clipped else square + 1e-8)

    first = unit(x)
    second = unit(y - first * jnp.sum(first * y, axis=-1, keepdims=True))
    return jnp.stack([first, second, jnp.cross(first, second)], axis=-1)


def backbone_frame(positions: jax.Array) -> Frame:
    """From atom37 positions [..., 37, 3]: CA at the origin, C on x, N in the upper half of the xy plane."""
    n, ca, c = (positions[..., atom, :] for atom in range(3))
    return Frame(two_vectors(c - ca, n - ca, clipped=True), ca)


def dihedral(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> jax.Array:
    """Torsion angle in radians of four points [..., 3] about the axis from b to c."""
    axis = c - b
    before, after = jnp.cross(b - a, axis), jnp.cross(axis, d - c)
    sine = jnp.sum(jnp.cross(before, after) * axis, axis=-1)
    length = jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(axis), axis=-1), 1e-12))
    return jnp.arctan2(sine, length * jnp.sum(before * after, axis=-1))


def chi_atoms(aatype: jax.Array, positions: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positions [..., 4 chis, 4 atoms, 3] of the atoms that span the chis, and which chis [..., 4] are there."""
    table = tables()
    slots = jnp.asarray(table.chi_atoms)[aatype]
    flat = slots.reshape(*slots.shape[:-2], 16)
    points = jnp.take_along_axis(positions, flat[..., None], axis=-2).reshape(*slots.shape, 3)
    present = jnp.take_along_axis(mask, flat, axis=-1).reshape(slots.shape)
    return points, jnp.asarray(table.chi_mask)[aatype] * jnp.prod(present, axis=-1)


def chi_angles(aatype: jax.Array, positions: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The four chi angles [..., N, 4] of residues, and which of them are there; from atom37 positions and mask."""
    points, present = chi_atoms(aatype, positions, mask)
    return dihedral(*(points[..., atom, :] for atom in range(4))), present


def torsions(aatype: jax.Array, positions: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The seven torsions of each residue: pre-omega, phi, psi, chi1-chi4.

    Args:
        aatype: [..., N] types; whatever is above 20 counts as unknown.
        positions: [..., N, 37, 3].
        mask: [..., N, 37].

    Returns:
        sine and cosine [..., N, 7, 2]; the same with symmetric chis turned by half a turn; which ones are there [..., N, 7].
    """
    aatype = jnp.minimum(aatype, 20)
    before = shifted(positions)
    seen, seen_before = mask, shifted(mask)
    n, ca, c, o = (positions[..., atom, :] for atom in (0, 1, 2, 4))
    backbone = jnp.stack(
        [
            jnp.stack([before[..., 1, :], before[..., 2, :], n, ca], axis=-2),
            jnp.stack([before[..., 2, :], n, ca, c], axis=-2),
            jnp.stack([n, ca, c, o], axis=-2),
        ],
        axis=-3,
    )
    three = jnp.prod(seen[..., :3], axis=-1)
    backbone_mask = jnp.stack(
        [
            jnp.prod(seen_before[..., 1:3], axis=-1) * jnp.prod(seen[..., :2], axis=-1),
            seen_before[..., 2] * three,
            three * seen[..., 4],
        ],
        axis=-1,
    )
    chi_points, chi_mask = chi_atoms(aatype, positions, mask)
    points = jnp.concatenate([backbone, chi_points], axis=-3)
    angles = sine_and_cosine(points) * jnp.array([1.0, 1, -1, 1, 1, 1, 1])[:, None]  # psi is measured to the oxygen
    turned = 1 - 2 * jnp.asarray(tables().chi_symmetric)[aatype]
    turned = jnp.concatenate([jnp.ones((*aatype.shape, 3)), turned], axis=-1)
    return angles, angles * turned[..., None], jnp.concatenate([backbone_mask, chi_mask], axis=-1)


def sine_and_cosine(points: jax.Array) -> jax.Array:
    """[..., 4, 3] -> [..., 2]: where the fourth point stands around the axis from the second to the third."""
    first, second, third, fourth = (points[..., atom, :] for atom in range(4))
    frame = Frame(two_vectors(third - second, first - third, clipped=False), third)
    local = frame.apply_inverse(fourth)
    pair = jnp.stack([local[..., 2], local[..., 1]], axis=-1)
    return pair / jnp.sqrt(jnp.sum(jnp.square(pair), axis=-1, keepdims=True) + 1e-8)


def shifted(x: jax.Array) -> jax.Array:
    """Along the residues of [..., N, 37(, 3)]: the values of the residue before, 0 for the first."""
    dim = x.ndim - (3 if x.shape[-1] == 3 else 2)
    zero = jnp.zeros_like(jax.lax.slice_in_dim(x, 0, 1, axis=dim))
    return jnp.concatenate([zero, jax.lax.slice_in_dim(x, 0, x.shape[dim] - 1, axis=dim)], axis=dim)


def atoms_from_torsions(aatype: jax.Array, backbone: Frame, angles: jax.Array) -> jax.Array:
    """Algorithm 24: atom14 positions [N, 14, 3] from backbone frames (angstrom) and torsions [N, 7, (sine, cosine)]."""
    table = tables()
    default = jnp.asarray(table.group_frame)[aatype]
    sine = jnp.concatenate([jnp.zeros_like(angles[:, :1, 0]), angles[..., 0]], axis=1)
    cosine = jnp.concatenate([jnp.ones_like(angles[:, :1, 1]), angles[..., 1]], axis=1)
    groups = Frame(default[..., :3, :3], default[..., :3, 3]).compose(turn_about_x(sine, cosine))
    chis = [groups.at(slice(None), 4)]
    for chi in (5, 6, 7):  # each further chi stands on the one before
        chis.append(chis[-1].compose(groups.at(slice(None), chi)))
    to_backbone = Frame(
        jnp.concatenate([groups.rotation[:, :4], jnp.stack([chi.rotation for chi in chis], axis=1)], axis=1),
        jnp.concatenate([groups.translation[:, :4], jnp.stack([chi.translation for chi in chis], axis=1)], axis=1),
    )
    frames = backbone.expand(1).compose(to_backbone)
    group = jnp.asarray(table.atom14_group)[aatype]
    of_atoms = Frame(
        jnp.take_along_axis(frames.rotation, group[:, :, None, None], axis=1),
        jnp.take_along_axis(frames.translation, group[:, :, None], axis=1),
    )
    positions = of_atoms.apply(jnp.asarray(table.atom14_position)[aatype])
    return positions * jnp.asarray(table.atom14_mask)[aatype][..., None]


def turn_about_x(sine: jax.Array, cosine: jax.Array) -> Frame:
    """Algorithm 25."""
    zero, one = jnp.zeros_like(sine), jnp.ones_like(sine)
    rows = [[one, zero, zero], [zero, cosine, -sine], [zero, sine, cosine]]
    rotation = jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
    return Frame(rotation, jnp.zeros((*sine.shape, 3), sine.dtype))


def atom37_from_atom14(aatype: jax.Array, positions: jax.Array, seq_mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positions [N, 37, 3], 0 where there is no atom, and their mask [N, 37]."""
    table = tables()
    mask = jnp.asarray(table.atom37_mask)[aatype] * seq_mask[:, None]
    slots = jnp.asarray(table.atom37_to_14)[aatype]
    return jnp.take_along_axis(positions, slots[..., None], axis=1) * mask[..., None], mask


def pseudo_beta(aatype: jax.Array, positions: jax.Array) -> jax.Array:
    """CB, or CA of glycine: [..., N, 3] from [..., N, 37, 3]."""
    glycine = (aatype == 7)[..., None]
    return jnp.where(glycine, positions[..., 1, :], positions[..., 3, :])


def pseudo_beta_mask(aatype: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(aatype == 7, mask[..., 1], mask[..., 3])


def distance_bins(positions: jax.Array, min_bin: float, max_bin: float, num_bins: int) -> jax.Array:
    """One-hot distances [N, N, bins] between points [N, 3]; the last bin has no upper end."""
    lower = np.square(np.linspace(min_bin, max_bin, num_bins, dtype=np.float32))
    upper = np.append(lower[1:], np.float32(1e8))
    square = jnp.sum(jnp.square(positions[:, None] - positions[None]), axis=-1, keepdims=True)
    return ((square > lower) & (square < upper)).astype(jnp.float32)
