"""Frames in extended XYZ, or whatever else ASE reads; frames with the same atoms become one system.

A virial is taken as such; a stress (ASE's sign and unit, eV/A^3, positive under tension) becomes the virial -stress V.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.deepmd.system import System, checked, nothing_known
from zoo.errors import UserError


def read(file: Path, type_map: Sequence[str]) -> list[System]:
    """Reads all frames of a file.

    Raises:
        UserError: ASE cannot read it, or an element is not in the type_map; names file and frame.
    """
    groups: dict[tuple, list[tuple[int, Any]]] = {}
    for number, atoms in enumerate(frames(file)):
        symbols = tuple(atoms.get_chemical_symbols())
        unknown = next((symbol for symbol in symbols if symbol not in type_map), None)
        if unknown is not None:
            raise UserError(
                f"{file}, frame {number}: element {unknown} is not in the model's type_map={list(type_map)}; a new one may list it"
            )
        groups.setdefault((symbols, tuple(map(bool, atoms.pbc))), []).append((number, atoms))
    return [_system(file, members, periodic, type_map) for (_, periodic), members in groups.items()]


def frames(file: Path) -> list[Any]:
    """The file's frames as `ase.Atoms`."""
    try:
        from ase.io import read as ase_read
    except ImportError:
        raise UserError(f"{file}: reading it needs ASE; install it with: pip install ase") from None
    try:
        found = list(ase_read(file, index=":"))
    except FileNotFoundError:
        raise UserError(f"{file} does not exist") from None
    except Exception as error:  # ASE's readers raise whatever their parsing meets
        raise UserError(f"{file}: ASE cannot read it ({type(error).__name__}: {error})") from None
    empty = next((number for number, one in enumerate(found) if not len(one)), None)
    if empty is not None or not found:
        raise UserError(f"{file}, frame {empty or 0}: holds no atoms")
    return found


def atoms(system: System, frame: int, type_map: Sequence[str]) -> Any:
    """A frame as `ase.Atoms`, without the atoms that are not there."""
    from ase import Atoms

    here = system.types[frame] >= 0
    symbols = [type_map[kind] for kind in system.types[frame][here]]
    cell = None if system.cell is None else system.cell[frame]
    return Atoms(symbols, system.coord[frame][here], cell=cell, pbc=system.periodic)


def _system(file: Path, members: list[tuple[int, Any]], periodic: Any, type_map: Sequence[str]) -> System:
    number, atoms = members[0]
    types = np.asarray([type_map.index(symbol) for symbol in atoms.get_chemical_symbols()], np.int32)
    labels, known = nothing_known(len(members), len(atoms))
    for index, (number, frame) in enumerate(members):
        for name, value in _labels(frame, f"{file}, frame {number}").items():
            labels[name][index] = value
            known[name][index] = True
    coord = np.stack([frame.positions for _, frame in members])
    cell = np.stack([np.asarray(frame.cell) for _, frame in members]) if any(periodic) else None
    name = f"{file}[{atoms.get_chemical_formula()}]"
    return checked(System(name, np.tile(types, (len(members), 1)), coord, cell, periodic, labels, known))


def _labels(atoms: Any, place: str) -> dict[str, Any]:
    stated = {**atoms.info, **atoms.arrays, **(atoms.calc.results if atoms.calc is not None else {})}
    found: dict[str, Any] = {}
    if "energy" in stated:
        found["energy"] = float(stated["energy"])
    for name in ("forces", "force"):
        if name in stated:
            found["force"] = np.asarray(stated[name], np.float64)
    if "virial" in stated:
        found["virial"] = np.asarray(stated["virial"], np.float64).reshape(3, 3)
    elif "stress" in stated:
        stress = np.asarray(stated["stress"], np.float64)
        if stress.size == 6:
            xx, yy, zz, yz, xz, xy = stress
            stress = np.asarray([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if stress.size != 9 or not all(atoms.pbc):
            raise UserError(f"{place}: a stress needs 6 or 9 numbers and a cell that is periodic everywhere")
        found["virial"] = -stress.reshape(3, 3) * atoms.get_volume()
    return found
