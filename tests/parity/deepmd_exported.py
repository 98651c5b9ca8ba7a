"""Runs inside an environment with deepmd-kit 3.2.0: what it, and LAMMPS, say of models that were written here.

    python deepmd_exported.py MODEL.dp FRAME.npz OUT.npz KIND

FRAME holds coord [N, 3], types [N], box [3, 3]. KIND is "jax" (the model as it is), "pb" (converted for TensorFlow) or
"lammps" (the converted model in LAMMPS, energy alone).
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np


def main(model: str, frame: str, out: str, kind: str) -> None:
    with np.load(frame) as stored:
        coord, types, box = (stored[name] for name in ("coord", "types", "box"))
    found = {"jax": by_jax, "pb": by_tensorflow, "lammps": by_lammps}[kind](Path(model), coord, types, box)
    np.savez(out, **found)


def by_jax(model: Path, coord: np.ndarray, types: np.ndarray, box: np.ndarray) -> dict:
    from deepmd.dpmodel.utils.serialization import load_dp_model
    from deepmd.jax.env import jnp
    from deepmd.jax.model.base_model import BaseModel

    loaded = BaseModel.deserialize(load_dp_model(str(model))["model"])
    out = loaded(
        jnp.asarray(coord[None]), jnp.asarray(types[None]), jnp.asarray(box.reshape(1, 9)), do_atomic_virial=False
    )
    return {name: np.asarray(out[name])[0] for name in ("energy", "force", "virial")}


def converted(model: Path) -> Path:
    target = model.with_suffix(".pb")
    if not target.exists():
        dp = Path(sys.executable).parent / "dp"
        subprocess.run([str(dp), "convert-backend", str(model), str(target)], check=True)
    return target


def by_tensorflow(model: Path, coord: np.ndarray, types: np.ndarray, box: np.ndarray) -> dict:
    from deepmd.infer import DeepPot

    energy, force, virial = DeepPot(str(converted(model))).eval(coord[None], box.reshape(1, 9), types)[:3]
    return {"energy": energy[0], "force": force[0], "virial": virial[0]}


def by_lammps(model: Path, coord: np.ndarray, types: np.ndarray, box: np.ndarray) -> dict:
    """The box must have its first vector along x and its second in the plane of x and y."""
    folder = model.parent
    assert not np.triu(box, 1).any()
    (xx, _, _), (xy, yy, _), (xz, yz, zz) = box
    fractional = coord @ np.linalg.inv(box)
    places = (fractional - np.floor(fractional)) @ box
    lines = ["frame", "", f"{len(types)} atoms", f"{types.max() + 1} atom types", ""]
    lines += [
        f"0 {xx:.16g} xlo xhi",
        f"0 {yy:.16g} ylo yhi",
        f"0 {zz:.16g} zlo zhi",
        f"{xy:.16g} {xz:.16g} {yz:.16g} xy xz yz",
    ]
    lines += ["", "Masses", "", *(f"{kind + 1} 1.0" for kind in range(types.max() + 1)), "", "Atoms # atomic", ""]
    lines += [
        f"{n + 1} {k + 1} {x:.16g} {y:.16g} {z:.16g}"
        for n, (k, (x, y, z)) in enumerate(zip(types, places, strict=True))
    ]
    (folder / "frame.lmp").write_text("\n".join(lines) + "\n")
    commands = ["units metal", "boundary p p p", "atom_style atomic", "box tilt large", "read_data frame.lmp"]
    commands += [f"pair_style deepmd {converted(model).name}", "pair_coeff * *", "thermo_style custom step pe"]
    commands += ["thermo_modify format float %.14g", "run 0"]
    (folder / "in.lammps").write_text("\n".join(commands) + "\n")
    lmp = Path(sys.executable).parent / "lmp"
    said = subprocess.run([str(lmp), "-in", "in.lammps"], cwd=folder, check=True, capture_output=True, text=True).stdout
    value = re.search(r"Step\s+PotEng\s*\n\s*0\s+(\S+)", said)
    assert value, said[-3000:]
    return {"energy": np.asarray([float(value[1])])}


if __name__ == "__main__":
    main(*sys.argv[1:])
