"""Systems in deepmd-kit's layout: folders of npy files, or the same inside an HDF5 file (FILE.hdf5#/group).

type.raw            a type per atom; type_map.raw names the types; an empty file nopbc: no cell
set.NNN/coord.npy   [F, 3 N]; box.npy [F, 9]; energy.npy [F] or [F, 1]; force.npy [F, 3 N]; virial.npy [F, 9]
set.NNN/real_atom_types.npy [F, N]: a type per atom and frame (mixed type); -1 for an atom that is not there
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from zoo.data.deepmd.system import System, checked, nothing_known, types_of
from zoo.errors import UserError
from zoo.md.cells import EVERYWHERE, NOWHERE


class Source(Protocol):
    """The files of one system, in a folder or in an HDF5 group."""

    name: str

    def sets(self) -> list[str]: ...

    def array(self, name: str) -> np.ndarray | None: ...

    def words(self, name: str) -> list[str] | None: ...

    def has(self, name: str) -> bool: ...


class Folder:
    """A system's folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, str(path)

    def sets(self) -> list[str]:
        return sorted(part.name for part in self.path.glob("set.*") if part.is_dir())

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def words(self, name: str) -> list[str] | None:
        try:
            return (self.path / name).read_text().split() if self.has(name) else None
        except UnicodeDecodeError:
            raise UserError(
                f"{self.path / name} is no text file; expected words with spaces or lines between"
            ) from None

    def array(self, name: str) -> np.ndarray | None:
        file = self.path / f"{name}.npy"
        if not file.is_file():
            return None
        try:
            found = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            why: object = error
            if "allow_pickle" in str(error):
                numpy_own = file.read_bytes()[:6] == b"\x93NUMPY"
                why = (
                    "it holds Python objects, which are never read"
                    if numpy_own
                    else "it has not the header of an npy file"
                )
            raise UserError(f"{file} is not an npy file of numbers, or is damaged: {why}") from None
        if not isinstance(found, np.ndarray):
            raise UserError(f"{file} is an npz archive of several arrays; expected an npy file of one")
        return found


class Group:
    """A system inside an HDF5 file."""

    def __init__(self, group: Any, name: str) -> None:
        self.group, self.name = group, name

    def sets(self) -> list[str]:
        return sorted(name for name in self.group if name.startswith("set."))

    def has(self, name: str) -> bool:
        return name in self.group

    def words(self, name: str) -> list[str] | None:
        if not self.has(name):
            return None
        values = np.atleast_1d(self.group[name][()])
        return [value.decode() if isinstance(value, bytes) else str(value) for value in values.tolist()]

    def array(self, name: str) -> np.ndarray | None:
        name = f"{name}.npy"
        return np.asarray(self.group[name][()]) if name in self.group else None


def read(place: str, type_map: Sequence[str]) -> System:
    """Reads one system: a folder, or FILE.hdf5#/group.

    Raises:
        UserError: something is missing, has a wrong shape, or is not finite; names file and frame.
    """
    with source(place) as opened:
        return checked(system(opened, tuple(type_map)))


def type_names(place: str) -> list[str]:
    """The names of a system's types; empty where it does not name them."""
    with source(place) as opened:
        return opened.words("type_map.raw") or []


@contextlib.contextmanager
def source(place: str) -> Iterator[Source]:
    path, sharp, inside = place.partition("#")
    if not sharp:
        yield Folder(Path(path))
        return
    import h5py  # here, so that importing this module stays cheap

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise UserError(f"{path} is not an HDF5 file, or is damaged: {error}") from None
    with file:
        if inside not in file:
            raise UserError(f"{place}: there is no group {inside} in {path}; it has {', '.join(file) or 'none'}")
        yield Group(file[inside], place)


def system(files: Source, type_map: Sequence[str]) -> System:
    """The system that the files make up, not yet checked for numbers that are not finite."""
    words = files.words("type.raw")
    if words is None:
        raise UserError(
            f"{files.name} has no type.raw, so it is no system; give a folder that has one, or one above such"
        )
    try:
        kinds = np.asarray([int(word) for word in words])
    except ValueError:
        raise UserError(f"{files.name}/type.raw must hold whole numbers, one per atom") from None
    if not files.sets():
        raise UserError(
            f"{files.name} has no folder set.*; raw files are turned into such by deepmd-kit's raw_to_set.sh"
        )
    parts = [_set(files, name, len(kinds)) for name in files.sets()]
    names = files.words("type_map.raw") or []
    mixed = [part["types"] is not None for part in parts]
    if any(mixed) and not all(mixed):
        raise UserError(f"{files.name}: some set.* have real_atom_types.npy and others do not; all or none must")
    count = [len(part["coord"]) for part in parts]
    if (kinds < 0).any() and not all(mixed):
        raise UserError(
            f"{files.name}/type.raw has type {kinds.min()}; atoms that are not there are for real_atom_types.npy alone"
        )
    stated = np.concatenate([part["types"] for part in parts]) if all(mixed) else np.tile(kinds, (sum(count), 1))
    types = types_of(names, stated, type_map, files.name)
    free = files.has("nopbc")
    cell = None if free else np.concatenate([_box(files, name, part) for name, part in zip(files.sets(), parts)])
    labels, known = nothing_known(sum(count), len(kinds))
    for name in labels:
        start = 0
        for part in parts:
            stretch = slice(start, start := start + len(part["coord"]))
            if part[name] is not None:
                labels[name][stretch] = part[name].reshape(labels[name][stretch].shape)
                known[name][stretch] = True
    coord = np.concatenate([part["coord"] for part in parts]).reshape(sum(count), len(kinds), 3)
    sets = tuple(zip(files.sets(), count, strict=True)) if len(parts) > 1 else ()
    return System(files.name, types, coord, cell, NOWHERE if free else EVERYWHERE, labels, known, sets)


def _set(files: Source, name: str, atoms: int) -> dict[str, Any]:
    """The arrays of one set.*, each [F, ...]; None where a file is missing."""
    coord = _rows(files, f"{name}/coord", 3 * atoms, None)
    if coord is None:
        raise UserError(f"{files.name}/{name}/coord.npy is missing")
    frames = len(coord)
    widths = {"box": 9, "energy": 1, "force": 3 * atoms, "virial": 9}
    found: dict[str, Any] = {key: _rows(files, f"{name}/{key}", width, frames) for key, width in widths.items()}
    types = _rows(files, f"{name}/real_atom_types", atoms, frames)
    if types is not None and (types != np.rint(types)).any():
        frame = int(np.flatnonzero((types != np.rint(types)).any(axis=1))[0])
        raise UserError(f"{files.name}/{name}/real_atom_types.npy, frame {frame}: types must be whole numbers")
    return {**found, "coord": coord, "types": None if types is None else types.astype(np.int64)}


def _rows(files: Source, name: str, width: int, frames: int | None) -> np.ndarray | None:
    values = files.array(name)
    if values is None:
        return None
    if values.dtype.kind not in "fiu":
        raise UserError(f"{files.name}/{name}.npy holds {values.dtype}; expected numbers")
    number = values.size // width if width else 0
    shape_fits = values.size == number * width and (values.ndim < 2 or len(values) in (number, 1))
    if not shape_fits or (frames is not None and number != frames):
        count = "frames" if frames is None else frames
        wanted = f"[{count}] or [{count}, 1]" if width == 1 else f"[{count}, {width}]"
        raise UserError(f"{files.name}/{name}.npy has the shape {list(values.shape)}; expected {wanted}")
    return values.reshape(number, width).astype(np.float64)


def _box(files: Source, name: str, part: dict[str, Any]) -> np.ndarray:
    if part["box"] is None:
        raise UserError(f"{files.name}/{name}/box.npy is missing; a system without a cell has an empty file `nopbc`")
    return part["box"].reshape(-1, 3, 3)
