"""Amino acids and their atoms as small tables.

A residue type is an index into `LETTERS` (20 amino acids, then X); an alignment adds the gap, 21. Atoms come in two layouts:
atom37 has one slot for every atom name that occurs anywhere, atom14 the slots that a residue of one type needs.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from zoo.proteins.ideal import IDEAL_ATOMS

LETTERS = "ARNDCQEGHILKMFPSTWYVX"
THREE = "ALA ARG ASN ASP CYS GLN GLU GLY HIS ILE LEU LYS MET PHE PRO SER THR TRP TYR VAL UNK".split()
UNKNOWN = 20
GAP = 21
MASKED = 22  # what the network sees where an alignment was masked

ATOMS = (
    "N CA C CB O CG CG1 CG2 OG OG1 SG CD CD1 CD2 ND1 ND2 OD1 OD2 SD CE CE1 CE2 CE3 NE NE1 NE2 OE1 OE2 CH2 NH1 NH2 OH CZ CZ2 "
    "CZ3 NZ OXT"
).split()
ATOM_INDEX = {name: index for index, name in enumerate(ATOMS)}
LETTER_INDEX = {letter: index for index, letter in enumerate(LETTERS)}

# The order of HH-suite, in which raw alignment features are written; rare letters stand for what they most resemble.
ALIGNMENT_LETTERS = "ACDEFGHIKLMNPQRSTVWYX-"
ALIGNMENT_INDEX = {letter: index for index, letter in enumerate(ALIGNMENT_LETTERS)} | {
    "B": 2, "J": 20, "O": 20, "U": 1, "Z": 3,
}  # fmt: skip
ALIGNMENT_TO_TYPE = np.array([(LETTERS + "-").index(letter) for letter in ALIGNMENT_LETTERS], np.int32)

# The atoms along the side chain: chi k turns about the bond between atoms k+1 and k+2 of the path (k from 0).
CHI_PATHS = {
    "ARG": "N CA CB CG CD NE CZ", "ASN": "N CA CB CG OD1", "ASP": "N CA CB CG OD1", "CYS": "N CA CB SG",
    "GLN": "N CA CB CG CD OE1", "GLU": "N CA CB CG CD OE1", "HIS": "N CA CB CG ND1", "ILE": "N CA CB CG1 CD1",
    "LEU": "N CA CB CG CD1", "LYS": "N CA CB CG CD CE NZ", "MET": "N CA CB CG SD CE", "PHE": "N CA CB CG CD1",
    "PRO": "N CA CB CG CD", "SER": "N CA CB OG", "THR": "N CA CB OG1", "TRP": "N CA CB CG CD1", "TYR": "N CA CB CG CD1",
    "VAL": "N CA CB CG1",
}  # fmt: skip
# Half a turn of this chi gives the same molecule with two atom names exchanged.
SYMMETRIC_CHI = {"ASP": 1, "GLU": 2, "PHE": 1, "TYR": 1}


@dataclasses.dataclass(frozen=True)
class Tables:
    """Per residue type (21, the last X).

    Attributes:
        atom14_to_37: [21, 14] slot of atom37, 0 where there is no atom.
        atom37_to_14: [21, 37] slot of atom14, 0 where there is no atom.
        atom14_mask, atom37_mask: [21, 14], [21, 37] 1 where the residue has the atom.
        atom14_group: [21, 14] rigid group that carries the atom.
        atom14_position: [21, 14, 3] place in the frame of that group, angstrom.
        group_frame: [21, 8, 4, 4] group to its parent: the backbone, or for chi2-chi4 the chi before it, at angle 0.
        chi_atoms: [21, 4, 4] slots of atom37 that span a chi; 0 where there is none.
        chi_mask, chi_symmetric: [21, 4] whether the chi exists; whether half a turn of it only exchanges names.
    """

    atom14_to_37: np.ndarray
    atom37_to_14: np.ndarray
    atom14_mask: np.ndarray
    atom37_mask: np.ndarray
    atom14_group: np.ndarray
    atom14_position: np.ndarray
    group_frame: np.ndarray
    chi_atoms: np.ndarray
    chi_mask: np.ndarray
    chi_symmetric: np.ndarray


@functools.cache
def tables() -> Tables:
    """All tables, made once from the list of ideal atoms."""
    atoms = ideal_atoms()
    names = tuple(tuple((list(atoms.get(three, {})) + [""] * 14)[:14]) for three in THREE)
    to_37 = np.array([[ATOM_INDEX[name] if name else 0 for name in row] for row in names], np.int32)
    to_14 = np.array([[row.index(name) if name in row else 0 for name in ATOMS] for row in names], np.int32)
    mask_37 = np.array([[float(name in row) for name in ATOMS] for row in names], np.float32)
    group = np.zeros((21, 14), np.int32)
    position = np.zeros((21, 14, 3), np.float32)
    for kind, three in enumerate(THREE[:20]):
        for slot, (number, place) in enumerate(atoms[three].values()):
            group[kind, slot], position[kind, slot] = number, place
    chi_atoms, chi_mask, chi_symmetric = chis()
    return Tables(
        atom14_to_37=to_37,
        atom37_to_14=to_14,
        atom14_mask=np.array([[float(bool(name)) for name in row] for row in names], np.float32),
        atom37_mask=mask_37,
        atom14_group=group,
        atom14_position=position,
        group_frame=np.stack([group_frames(atoms.get(three), three) for three in THREE]).astype(np.float32),
        chi_atoms=chi_atoms,
        chi_mask=chi_mask,
        chi_symmetric=chi_symmetric,
    )


@functools.cache
def ideal_atoms() -> dict[str, dict[str, tuple[int, np.ndarray]]]:
    """{residue: {atom: (group, place)}} in the order of atom14."""
    result: dict[str, dict[str, tuple[int, np.ndarray]]] = {}
    for line in IDEAL_ATOMS.strip().splitlines():
        three, atom, group, *place = line.split()
        result.setdefault(three, {})[atom] = (int(group), np.array(place, np.float64))
    return result


def chis() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    atoms = np.zeros((21, 4, 4), np.int32)
    mask = np.zeros((21, 4), np.float32)
    symmetric = np.zeros((21, 4), np.float32)
    for kind, three in enumerate(THREE):
        path = CHI_PATHS.get(three, "").split()
        for chi in range(max(len(path) - 3, 0)):
            atoms[kind, chi] = [ATOM_INDEX[name] for name in path[chi : chi + 4]]
            mask[kind, chi] = 1
        if three in SYMMETRIC_CHI:
            symmetric[kind, SYMMETRIC_CHI[three]] = 1
    return atoms, mask, symmetric


def group_frames(atoms: dict[str, tuple[int, np.ndarray]] | None, three: str) -> np.ndarray:
    """Frames [8, 4, 4] of one residue: backbone, pre-omega (both the identity), phi, psi, chi1-chi4."""
    frames = np.tile(np.eye(4), (8, 1, 1))
    if atoms is None:
        return np.zeros((8, 4, 4))
    at = {name: place for name, (_, place) in atoms.items()}
    frames[2] = frame(at["N"] - at["CA"], np.array([1.0, 0, 0]), at["N"])
    frames[3] = frame(at["C"] - at["CA"], at["CA"] - at["N"], at["C"])
    path = CHI_PATHS.get(three, "").split()
    for chi in range(4):
        if chi >= len(path) - 3:
            frames[4 + chi] = 0
        elif chi == 0:
            frames[4] = frame(at[path[2]] - at[path[1]], at[path[0]] - at[path[1]], at[path[2]])
        else:
            end = at[path[chi + 2]]
            frames[4 + chi] = frame(end, np.array([-1.0, 0, 0]), end)
    return frames


def frame(x: np.ndarray, y: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """[4, 4] whose x axis is along `x` and whose y axis is in the half plane of `y`."""
    x = x / np.linalg.norm(x)
    y = y - x * (y @ x)
    y = y / np.linalg.norm(y)
    result = np.eye(4)
    result[:3] = np.stack([x, y, np.cross(x, y), origin], axis=1)
    return result
