"""Runs inside an environment with deepmd-kit 3.2.0: makes random models and what deepmd-kit's JAX backend says of a frame.

    python reference.py SPECS.json FOLDER

SPECS holds {name: {"model": the model section of an input.json, "seed", "box", "atoms"}}; coordinates, types and cell are
drawn from the seed. Writes FOLDER/name.dp and FOLDER/name.npz.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from deepmd.dpmodel.model.model import get_model
from deepmd.dpmodel.utils.serialization import save_dp_model
from deepmd.jax.env import jnp
from deepmd.jax.model.base_model import BaseModel


def main(specs: str, folder: str) -> None:
    for name, spec in json.loads(Path(specs).read_text()).items():
        make(spec, Path(folder) / f"{name}.dp", Path(folder) / f"{name}.npz")


def make(spec: dict, model_file: Path, values_file: Path) -> None:
    rng = np.random.default_rng(spec["seed"])
    data = get_model(spec["model"]).serialize()
    randomise(data, rng, len(spec["model"]["type_map"]))
    save_dp_model(str(model_file), {"model": data, "model_def_script": spec["model"], "backend": "dpmodel"})
    model = BaseModel.deserialize(data)
    coord, types, box = frame(rng, len(spec["model"]["type_map"]), spec["box"], spec["atoms"])
    found = {}
    for name, cell in (("periodic", box), ("free", None)):
        out = model(
            jnp.asarray(coord[None]),
            jnp.asarray(types[None]),
            None if cell is None else jnp.asarray(cell.reshape(1, 9)),
            do_atomic_virial=False,
        )
        for key in ("energy", "force", "virial", "atom_energy"):
            if out.get(key) is not None:
                found[f"{name}_{key}"] = np.asarray(out[key])[0]
    np.savez(values_file, coord=coord, types=types, box=box, **found)


def randomise(data: dict, rng: np.random.Generator, num_types: int) -> None:
    """Non-trivial statistics and biases: zeros would hide mistakes."""
    data["@variables"]["out_bias"] = rng.normal(size=np.shape(data["@variables"]["out_bias"]))
    descriptor = data["descriptor"]
    for part in descriptor["list"] if descriptor["type"] == "hybrid" else [descriptor]:
        shape = np.shape(part["@variables"]["davg"])
        mean = np.zeros((num_types, 1, shape[2]))
        if not part.get("set_davg_zero"):
            mean[..., 0] = 0.1 * rng.normal(size=(num_types, 1))
        std = rng.uniform(0.1, 0.4, size=(num_types, 1, shape[2]))
        std[..., 1:] = std[..., 1:2]
        part["@variables"]["davg"] = np.broadcast_to(mean, shape).copy()
        part["@variables"]["dstd"] = np.broadcast_to(std, shape).copy()
    data["fitting"]["@variables"]["bias_atom_e"] = rng.normal(
        size=np.shape(data["fitting"]["@variables"]["bias_atom_e"])
    )


def frame(rng: np.random.Generator, num_types: int, length: float, atoms: int) -> tuple[np.ndarray, ...]:
    """Atoms in a skewed cell, none nearer than 1 A to another (images included)."""
    box = length * (np.eye(3) + 0.2 * np.tril(rng.normal(size=(3, 3)), -1))
    shifts = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3), -1).reshape(-1, 3) @ box
    places: list[np.ndarray] = []
    while len(places) < atoms:
        new = rng.uniform(size=3) @ box
        if all(np.linalg.norm(new + shifts - old, axis=1).min() > 1.0 for old in places):
            places.append(new)
    return np.asarray(places), rng.integers(0, num_types, atoms), box


if __name__ == "__main__":
    main(*sys.argv[1:])
