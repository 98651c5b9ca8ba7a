"""Known structures from PDB and mmCIF files: every protein chain as its sequence with the atoms that were seen."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.proteins.problems import Problem, Unreadable, read_text
from zoo.proteins.residues import ATOM_INDEX, LETTER_INDEX

STRUCTURES = (".cif", ".mmcif", ".pdb", ".ent")


@dataclasses.dataclass(frozen=True)
class KnownChain:
    """One protein chain.

    Attributes:
        name: as the authors call it; `label` as mmCIF numbers it.
        letters: the whole sequence, also what was not seen; X for what is no amino acid.
        positions: [N, 37, 3] angstrom; mask: [N, 37] 1 where an atom was seen.
    """

    name: str
    label: str
    letters: str
    positions: np.ndarray
    mask: np.ndarray


@dataclasses.dataclass(frozen=True)
class Known:
    """A structure file.

    Attributes:
        name: PDB code, or the name of the file.
        chains: its protein chains.
        released: day of the first revision, where the file tells it.
    """

    name: str
    chains: tuple[KnownChain, ...]
    released: datetime.date | None


def read_known(path: Path) -> tuple[Known | None, list[Problem]]:
    """A PDB or mmCIF file, which may be packed; of several models the first.

    Raises:
        UserError: gemmi is not installed.
    """
    gemmi = library()
    try:
        text = read_text(path)
    except Unreadable as error:
        return None, [error.problem]
    try:
        # Both formats are told apart by their text, since files are often named .pdb or .cif wrongly.
        cif = text.lstrip().startswith(("data_", "#"))
        if cif:
            block = gemmi.cif.read_string(text).sole_block()
            structure, released = gemmi.make_structure_from_block(block), first_revision(block)
        else:
            structure, released = gemmi.read_pdb_string(text), None
        structure.setup_entities()
        found = chains_of(gemmi, structure)
        if not cif:  # a PDB file names its chains in one way only
            found = tuple(dataclasses.replace(chain, label=chain.name) for chain in found)
    except (ValueError, RuntimeError, IndexError) as error:
        return None, [Problem(str(path), f"no PDB or mmCIF file ({str(error).splitlines()[0]})")]
    if not found:
        return None, [Problem(str(path), "holds no protein chain")]
    name = structure.name if structure.name and structure.name != "string" else path.name.split(".")[0]
    return Known(name, found, released), []


def library() -> Any:
    try:
        import gemmi
    except ImportError:
        raise UserError("structure files need gemmi, which is not installed: pip install gemmi") from None
    return gemmi


def first_revision(block: Any) -> datetime.date | None:
    days = [str(day) for day in block.find_values("_pdbx_audit_revision_history.revision_date")]
    try:
        return min(datetime.date.fromisoformat(day.strip("'\"")) for day in days)
    except ValueError:
        return None


def chains_of(gemmi: Any, structure: Any) -> tuple[KnownChain, ...]:
    if len(structure) == 0:
        return ()
    found = []
    for chain in structure[0]:
        polymer = chain.get_polymer()
        if len(polymer) == 0 or polymer.check_polymer_type() not in (
            gemmi.PolymerType.PeptideL, gemmi.PolymerType.PeptideD
        ):  # fmt: skip
            continue
        entity = structure.get_entity_of(polymer)
        names = [gemmi.Entity.first_mon(name) for name in entity.full_sequence] if entity else []
        numbered = bool(names) and all(residue.label_seq is not None for residue in polymer)
        residues = list(polymer.first_conformer())
        if not numbered:  # what was seen is all that is known
            names = [residue.name for residue in residues]
        places = [residue.label_seq - 1 for residue in residues] if numbered else range(len(residues))
        positions = np.zeros((len(names), 37, 3), np.float32)
        mask = np.zeros((len(names), 37), np.float32)
        for place, residue in zip(places, residues, strict=True):
            if 0 <= place < len(names):
                positions[place], mask[place] = residue_atoms(residue)
        letters = "".join(one_letter(gemmi, name) for name in names)
        found.append(KnownChain(chain.name, polymer.subchain_id(), letters, positions, mask))
    return tuple(found)


def one_letter(gemmi: Any, name: str) -> str:
    """Modified residues have the letter of what they come from."""
    letter = gemmi.find_tabulated_residue(name).one_letter_code.upper()
    return letter if letter in LETTER_INDEX else "X"


def residue_atoms(residue: Any) -> tuple[np.ndarray, np.ndarray]:
    """Positions [37, 3] and mask [37]; of alternatives the fullest."""
    positions, mask = np.zeros((37, 3), np.float32), np.zeros(37, np.float32)
    fullest: dict[int, float] = {}
    for atom in residue:
        name = "SD" if atom.name.upper() == "SE" and residue.name == "MSE" else atom.name
        slot = ATOM_INDEX.get(name)
        if slot is not None and atom.occ > fullest.get(slot, -1.0):
            positions[slot], mask[slot], fullest[slot] = atom.pos.tolist(), 1.0, atom.occ
    if residue.name == "ARG":
        name_arginine(positions, mask)
    return positions, mask


def name_arginine(positions: np.ndarray, mask: np.ndarray) -> None:
    """NH1 is the one nearer to CD; some files have it the other way round."""
    cd, nh1, nh2 = (ATOM_INDEX[name] for name in ("CD", "NH1", "NH2"))
    if mask[[cd, nh1, nh2]].all():
        far = np.linalg.norm(positions[[nh1, nh2]] - positions[cd], axis=-1)
        if far[0] > far[1]:
            positions[[nh1, nh2]] = positions[[nh2, nh1]]
