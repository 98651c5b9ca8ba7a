"""From the places that a configuration names to systems in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.data.deepmd import converted, extxyz, npy
from zoo.data.deepmd.system import System
from zoo.errors import UserError

HDF5 = (".hdf5", ".h5")


def read(places: Sequence[str], type_map: Sequence[str], base: Path = Path()) -> list[System]:
    """Reads all systems at all places.

    Args:
        places: folders of deepmd-kit's layout or above such; FILE.hdf5#/group or FILE.hdf5; files that ASE reads; FORMAT::FILE
            for what dpdata reads.
        type_map: the model's names of types.
        base: what relative places are relative to.

    Raises:
        UserError: a place is missing, holds no system, or one that makes no sense.
    """
    found: list[System] = []
    for place in places:
        if converted.MARK in place:
            found.append(converted.read(place, type_map, base))
            continue
        path = base / place.partition("#")[0]
        if not path.exists():
            raise UserError(
                f"{path} does not exist; give a folder with type.raw and set.*, an HDF5 file, or a file for ASE"
            )
        if path.is_dir():
            found += [npy.read(str(folder), type_map) for folder in _folders(path)]
        elif path.suffix in HDF5:
            found += [npy.read(f"{path}#{group}", type_map) for group in _groups(path, place)]
        else:
            found += extxyz.read(path, type_map)
    if not any(len(system) for system in found):
        named = ", ".join(str(base / place) for place in places) or "no system at all"
        raise UserError(f"no frames in {named}; a system has at least one row in set.000/coord.npy")
    return found


def structure(place: str, type_map: Sequence[str]) -> Any:
    """The last frame at a place as `ase.Atoms`: a file that ASE reads as it is there, or a system of deepmd-kit's.

    Raises:
        UserError: as `read`.
    """
    path = Path(place.partition("#")[0])
    if not path.is_dir() and path.suffix not in HDF5:
        return extxyz.frames(path)[-1]
    return extxyz.atoms(read([place], type_map)[-1], -1, type_map)


def elements(places: Sequence[str], base: Path = Path()) -> list[str]:
    """The names of the types at all places, in the order in which they are first named.

    Raises:
        UserError: a place is missing, or does not name its types.
    """
    found: list[str] = []
    for place in places:
        path = base / place.partition("#")[0]
        if not path.exists():
            raise UserError(
                f"{path} does not exist; give a folder with type.raw and set.*, an HDF5 file, or a file for ASE"
            )
        if path.is_dir():
            names = [name for folder in _folders(path) for name in npy.type_names(str(folder))]
        elif path.suffix in HDF5:
            names = [name for group in _groups(path, place) for name in npy.type_names(f"{path}#{group}")]
        else:
            names = [symbol for atoms in extxyz.frames(path) for symbol in atoms.get_chemical_symbols()]
        if not names:
            raise UserError(f"{place} has no type_map.raw; name the types with type_map=O,H")
        found += [name for name in dict.fromkeys(names) if name not in found]
    return found


def _folders(path: Path) -> list[Path]:
    if (path / "type.raw").exists():
        return [path]
    inside = sorted(file.parent for file in path.rglob("type.raw"))
    if not inside:
        raise UserError(f"{path} has no type.raw, nor has any folder below it; give the folder of a system")
    return inside


def _groups(path: Path, place: str) -> list[str]:
    if "#" in place:
        return [place.partition("#")[2]]
    import h5py

    found: list[str] = []
    try:
        with h5py.File(path, "r") as file:
            if "type.raw" in file:
                return ["/"]
            file.visit(lambda name: found.append(f"/{Path(name).parent}") if name.endswith("type.raw") else None)
    except OSError as error:
        raise UserError(f"{path} is not an HDF5 file, or is damaged: {error}") from None
    if not found:
        raise UserError(f"{path} holds no system: no group has type.raw")
    return sorted(found)
