"""Short-range repulsion: where atoms come nearer than any training frame shows, a table of pair energies takes over.

E_i = (1 - w_i) E_i(net) + w_i E_i(table), with w 1 where the nearest neighbour is nearer than sw_rmin, 0 beyond sw_rmax, and a
polynomial of fifth degree between; "nearest" is a soft minimum of the distances. The table is a file as deepmd-kit's `use_srtab`
takes it, or, for `use_srtab: zbl`, the screened repulsion of nuclei.

References: H. Wang et al., Appl. Phys. Lett. 114, 244101 (2019) (interpolation); J. F. Ziegler, J. P. Biersack, U. Littmark, The
Stopping and Range of Ions in Solids, 1985 (ZBL). Dimensions: N atoms, S slots, T types, P intervals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import CubicSpline

from zoo.errors import UserError
from zoo.models.deepmd.layout import Layout

ZBL = "zbl"
COULOMB_EV_A = 14.399645478425668
"""e^2 / (4 pi epsilon_0)."""
BOHR_A = 0.529177210903
SCREENING = ((0.18175, 3.19980), (0.50986, 0.94229), (0.28022, 0.40290), (0.02817, 0.20162))
STEP_A = 0.005


@dataclasses.dataclass(frozen=True)
class ShortRange:
    """The table and where it takes over; lengths in angstrom.

    Attributes:
        file: of the table, or "zbl".
        sw_rmin, sw_rmax: all table below, all net above.
        smin_alpha: how soft the minimum of the distances is.
        first, step, points: the grid of the table; 0 until it is read.
    """

    file: str
    sw_rmin: float
    sw_rmax: float
    smin_alpha: float = 0.1
    first: float = 0.0
    step: float = 0.0
    points: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.sw_rmin < self.sw_rmax:
            raise ValueError(f"sw_rmin={self.sw_rmin}, sw_rmax={self.sw_rmax}; give 0 <= sw_rmin < sw_rmax")
        if self.smin_alpha <= 0:
            raise ValueError(f"smin_alpha={self.smin_alpha}; it must be above 0")


def table(config: ShortRange, type_map: Sequence[str], rcut: float) -> np.ndarray:
    """Rows of distance and energy in eV of each pair of types (0-0, 0-1, ..., 1-1, ...), float64 [P + 1, 1 + T (T + 1) / 2].

    Raises:
        UserError: the file is missing or no such table, or an element has no atomic number.
    """
    rows = screened(type_map, rcut) if config.file == ZBL else stated(Path(config.file), len(type_map))
    step = rows[1, 0] - rows[0, 0]
    last = int(np.ceil(rcut / step - rows[0, 0] / step))
    if last >= len(rows):
        if np.any(rows[-1, 1:]):
            raise UserError(
                f"use_srtab={config.file} ends at {rows[-1, 0]} A, before rcut={rcut}, with energies other than 0; "
                "continue the table to rcut"
            )
        more = np.zeros((last + 1 - len(rows), rows.shape[1]))
        more[:, 0] = rows[-1, 0] + step * np.arange(1, len(more) + 1)
        rows = np.concatenate([rows, more])
    return rows


def stated(file: Path, num_types: int) -> np.ndarray:
    """The table of a file."""
    try:
        rows = np.loadtxt(file, dtype=np.float64, ndmin=2)
    except OSError:
        raise UserError(f"use_srtab={file} does not exist; give a table of pair energies, or zbl") from None
    except ValueError as error:
        raise UserError(f"use_srtab={file} is no table of numbers: {error}") from None
    columns = 1 + num_types * (num_types + 1) // 2
    if rows.shape[1] != columns or len(rows) < 4:
        raise UserError(
            f"use_srtab={file} has {rows.shape[1]} columns and {len(rows)} rows; {num_types} types need {columns} columns "
            "(distance, then a pair each) and at least 4 rows"
        )
    steps = np.diff(rows[:, 0])
    if steps.min() <= 0 or np.ptp(steps) > 1e-6 * steps.mean() + 1e-9:
        raise UserError(f"use_srtab={file}: distances must go up in equal steps")
    return rows


def screened(type_map: Sequence[str], rcut: float) -> np.ndarray:
    """The ZBL repulsion of each pair, brought to 0 over the last tenth before rcut."""
    from ase.data import atomic_numbers

    unknown = next((name for name in type_map if name not in atomic_numbers), None)
    if unknown is not None:
        raise UserError(f"use_srtab=zbl needs chemical symbols in type_map; {unknown} is none")
    charge = [atomic_numbers[name] for name in type_map]
    distance = STEP_A * np.arange(1, int(np.ceil(rcut / STEP_A)) + 2)
    u = np.clip((distance - 0.9 * rcut) / (0.1 * rcut), 0, 1)
    fade = u**3 * (-6 * u**2 + 15 * u - 10) + 1
    columns = [distance]
    for a in range(len(charge)):
        for b in range(a, len(charge)):
            length = 0.8854 * BOHR_A / (charge[a] ** 0.23 + charge[b] ** 0.23)
            screen = sum(share * np.exp(-rate * distance / length) for share, rate in SCREENING)
            columns.append(COULOMB_EV_A * charge[a] * charge[b] / distance * screen * fade)
    return np.stack(columns, axis=1)


def splines(rows: np.ndarray, num_types: int) -> np.ndarray:
    """Cubic splines through a table, level at both ends: [T, T, P, 4], from the third power of the place in an interval down."""
    step = rows[1, 0] - rows[0, 0]
    found = np.zeros((num_types, num_types, len(rows) - 1, 4))
    column = 1
    for a in range(num_types):
        for b in range(a, num_types):
            coefficients = CubicSpline(rows[:, 0], rows[:, column], bc_type="clamped").c  # [4, P]
            found[a, b] = found[b, a] = (coefficients * step ** np.arange(3, -1, -1)[:, None]).T
            column += 1
    return found


def rows(config: ShortRange, splines_TTP4: np.ndarray) -> np.ndarray:
    """The table that splines go through."""
    splines = np.asarray(splines_TTP4)
    upper = np.triu_indices(len(splines))
    values = np.concatenate([splines[upper][:, :, 3], splines[upper][:, -1:].sum(axis=-1)], axis=1)
    distance = config.first + config.step * np.arange(config.points + 1)
    return np.concatenate([distance[:, None], values.T], axis=1)


def mixed(
    config: ShortRange,
    splines_TTP4: jax.Array,
    layout: Layout,
    distance_NS: jax.Array,
    near_NS: jax.Array,
    net_N: jax.Array,
) -> jax.Array:
    """Energies [N] of atoms from those of the net and the table.

    Args:
        distance_NS: in angstrom; anything above 0 where there is no neighbour.
        near_NS: which slots hold a neighbour within the cutoff.
        net_N: what the net gives.
    """
    weight_N = share(config, distance_NS, near_NS).astype(net_N.dtype)
    pairs_NS = jnp.where(near_NS, pair_energies(config, splines_TTP4, layout, distance_NS), 0.0)
    return (1 - weight_N) * net_N + weight_N * 0.5 * jnp.sum(pairs_NS, axis=1).astype(net_N.dtype)


def share(config: ShortRange, distance_NS: jax.Array, near_NS: jax.Array) -> jax.Array:
    """The part [N] of the table."""
    # Relative to the nearest one, so that no sum underflows; the factor cancels.
    nearest_N1 = jnp.min(jnp.where(near_NS, distance_NS, jnp.inf), axis=1, keepdims=True, initial=jnp.inf)
    alone_N1 = ~jnp.isfinite(nearest_N1)
    nearest_N1 = jax.lax.stop_gradient(jnp.where(alone_N1, 0.0, nearest_N1))
    power_NS = jnp.where(near_NS, jnp.exp((nearest_N1 - distance_NS) / config.smin_alpha), 0.0)
    total_N = jnp.sum(power_NS, axis=1)
    safe_N = jnp.where(alone_N1[:, 0], 1.0, total_N)
    least_N = jnp.sum(distance_NS * power_NS, axis=1) / safe_N
    u_N = jnp.clip((least_N - config.sw_rmin) / (config.sw_rmax - config.sw_rmin), 0.0, 1.0)
    return jnp.where(alone_N1[:, 0], 0.0, u_N**3 * (-6 * u_N**2 + 15 * u_N - 10) + 1)


def pair_energies(config: ShortRange, splines_TTP4: jax.Array, layout: Layout, distance_NS: jax.Array) -> jax.Array:
    """The table at each distance [N, S]; 0 beyond its end."""
    count = splines_TTP4.shape[0]
    place_NS = (distance_NS - config.first) / config.step
    interval_NS = jnp.clip(jnp.floor(jax.lax.stop_gradient(place_NS)), 0, config.points - 1).astype(jnp.int32)
    pair_NS = (layout.types[:, None] * count + layout.slot_types[None]) * config.points
    chosen_NS4 = splines_TTP4.reshape(-1, 4)[pair_NS + interval_NS]
    u_NS = place_NS - interval_NS
    found_NS = chosen_NS4[..., 3]
    for power in (1, 2, 3):
        found_NS = found_NS + chosen_NS4[..., 3 - power] * u_NS**power
    return jnp.where(place_NS < config.points, found_NS, 0.0)


def settled(config: ShortRange, rows: np.ndarray) -> ShortRange:
    """With the grid of its table."""
    step = float(rows[1, 0] - rows[0, 0])
    return dataclasses.replace(config, first=float(rows[0, 0]), step=step, points=len(rows) - 1)


def constants(config: ShortRange, num_types: int, dtype: Any) -> dict[str, jax.Array]:
    """The shapes of what a model with such a table keeps beside its parameters."""
    return {
        "splines": jnp.zeros((num_types, num_types, config.points, 4), dtype),
        "inside": jnp.zeros(num_types, dtype),
    }
