"""How far the models of an ensemble differ on frames: all of them in one pass, in deepmd-kit's model_devi.out format."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from zoo.data.deepmd.frames import find as find_frames
from zoo.data.deepmd.frames import laid_out
from zoo.data.deepmd.frames import layout as layout_of
from zoo.data.deepmd.system import System
from zoo.errors import UserError
from zoo.models.deepmd.config import Potential, unlike
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.evaluate import limits
from zoo.models.deepmd.layout import Layout
from zoo.models.deepmd.model import Outputs, outputs

HEADING = "max_devi_v min_devi_v avg_devi_v max_devi_f min_devi_f avg_devi_f devi_e"


def stacked(models: Sequence[Model]) -> Model:
    """One model whose arrays have the ensemble as their first dimension.

    Raises:
        UserError: there are fewer than two, or they are not of one make.
    """
    if len(models) < 2:
        raise UserError(f"{len(models)} model given; a deviation needs at least two, such as model=a.dp,b.dp")
    for number, other in enumerate(models[1:], start=2):
        if difference := unlike(models[0].config, other.config):
            raise UserError(f"model 1 and model {number} are not of one make: {difference}")
    join = lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves])
    params = jax.tree.map(join, *[model.params for model in models])
    statistics = jax.tree.map(join, *[model.statistics for model in models])
    return Model(models[0].config, params, statistics)


@functools.lru_cache(maxsize=16)
def compiled(config: Potential, layout: Layout) -> Any:
    """Outputs of all models for one frame."""

    def run(params: Any, statistics: Any, displacement: Any, neighbours: Any, real: Any) -> Outputs:
        one = lambda p, s: outputs(config, p, s, layout, displacement, neighbours, real)
        return jax.vmap(one)(params, statistics)

    return jax.jit(run)


def deviations(ensemble: Model, systems: Sequence[System]) -> np.ndarray:
    """A row per frame with the columns of HEADING; eV/atom for v and e, eV/A for f.

    Args:
        ensemble: what `stacked` gives.
    """
    config = ensemble.config
    frames = find_frames(systems, config.num_types, config.rcut)
    layout = layout_of([frames], config)
    rows = []
    for number in range(len(frames)):
        row = laid_out(frames, number, layout, limits(config), np.dtype(config.fitting_net.precision))
        with versions.enable_x64():
            found = jax.device_get(
                compiled(config, layout)(
                    ensemble.params,
                    ensemble.statistics,
                    row["displacement"],
                    row["neighbours"],
                    jnp.asarray(row["real"]),
                )
            )
        rows.append(frame_deviation(found, row["real"]))
    return np.asarray(rows)


def frame_deviation(found: Outputs, real_N: np.ndarray) -> np.ndarray:
    """The columns of HEADING for one frame; `found` has the ensemble as first dimension. Standard deviations over it."""
    atoms = int(real_N.sum())
    virial_M9 = np.asarray(found.virial).reshape(len(found.energy), 9) / atoms
    virial_9 = virial_M9.std(axis=0)
    force_MN3 = np.asarray(found.force)[:, real_N]
    spread_N = np.sqrt(((force_MN3 - force_MN3.mean(axis=0)) ** 2).sum(axis=-1).mean(axis=0))
    energy = (np.asarray(found.energy) / atoms).std()
    of_virial = [virial_9.max(), virial_9.min(), np.sqrt((virial_9**2).mean())]
    return np.asarray([*of_virial, spread_N.max(), spread_N.min(), spread_N.mean(), energy])


def write(file: Path, steps: Sequence[int], rows: np.ndarray) -> None:
    """model_devi.out: a step and seven deviations a line."""
    heading = "#" + f"{'step':>11s}" + "".join(f"{name:>19s}" for name in HEADING.split())
    lines = [f"{step:12d}" + "".join(f"{value:19.6e}" for value in row) for step, row in zip(steps, rows, strict=True)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join([heading, *lines]) + "\n")
