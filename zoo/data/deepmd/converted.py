"""Frames in the formats that dpdata reads, named FORMAT::PATH, such as vasp/outcar::run/OUTCAR.

dpdata's virials have deepmd-kit's sign, its units are those used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.deepmd.system import System, checked, nothing_known, types_of
from zoo.errors import UserError
from zoo.md.cells import EVERYWHERE, NOWHERE

MARK = "::"


def read(place: str, type_map: Sequence[str], base: Path = Path()) -> System:
    """Reads all frames of FORMAT::PATH.

    Raises:
        UserError: dpdata is missing, does not know the format or cannot read the file, or an element is not in the type_map.
    """
    kind, _, path = place.partition(MARK)
    try:
        import dpdata
        from dpdata.format import Format
    except ImportError:
        raise UserError(f"{place}: reading it needs dpdata; install it with: pip install dpdata") from None
    known = Format.get_formats()
    if kind not in known:
        raise UserError(f"{place}: dpdata knows no format {kind!r}; it knows {', '.join(sorted(known))}")
    file = base / path
    if not file.exists():
        raise UserError(f"{file} does not exist; give FORMAT::PATH, such as vasp/outcar::OUTCAR")
    try:
        data = dpdata.LabeledSystem(str(file), fmt=kind).data
    except Exception as error:  # its readers raise whatever their parsing meets
        raise UserError(f"{file}: dpdata cannot read it as {kind} ({type(error).__name__}: {error})") from None
    return checked(system(data, type_map, place))


def system(data: dict[str, Any], type_map: Sequence[str], name: str) -> System:
    """The data of a `dpdata.LabeledSystem` as a system."""
    coord = np.asarray(data["coords"], np.float64)
    frames, atoms = coord.shape[:2]
    types = types_of(list(data["atom_names"]), np.asarray(data["atom_types"]), type_map, name)
    labels, known = nothing_known(frames, atoms)
    for ours, theirs in (("energy", "energies"), ("force", "forces"), ("virial", "virials")):
        if theirs in data:
            labels[ours] = np.asarray(data[theirs], np.float64).reshape(labels[ours].shape)
            known[ours][:] = True
    free = bool(data.get("nopbc", False))
    cell = None if free else np.asarray(data["cells"], np.float64).reshape(frames, 3, 3)
    return System(name, np.tile(types, (frames, 1)), coord, cell, NOWHERE if free else EVERYWHERE, labels, known)
