"""Structures as atom37 arrays, and how they are written: PDB and mmCIF."""

from __future__ import annotations

import dataclasses
import string

import numpy as np

from zoo.errors import UserError
from zoo.proteins.residues import ATOMS, THREE

PDB_CHAINS = string.ascii_uppercase + string.ascii_lowercase + string.digits


@dataclasses.dataclass(frozen=True)
class Structure:
    """One model of one or more chains.

    Attributes:
        aatype: [N] residue types.
        positions: [N, 37, 3] angstrom.
        mask: [N, 37] 1 where there is an atom.
        residue_index: [N] number in its chain, from 1.
        chain: [N] number of the chain, from 0.
        b_factors: [N, 37]; of predictions the pLDDT.
        chain_names: of each chain, where it has one of its own.
    """

    aatype: np.ndarray
    positions: np.ndarray
    mask: np.ndarray
    residue_index: np.ndarray
    chain: np.ndarray
    b_factors: np.ndarray
    chain_names: tuple[str, ...] = ()

    @property
    def num_chains(self) -> int:
        return int(self.chain.max()) + 1 if len(self.chain) else 0

    def letter(self, chain: int) -> str:
        """Name of a chain: its own, or A-Z, a-z, 0-9, then AA, BA, ..."""
        if self.chain_names:
            return self.chain_names[chain]
        return PDB_CHAINS[chain] if chain < len(PDB_CHAINS) else spreadsheet(chain - len(PDB_CHAINS) + 26)


def spreadsheet(number: int) -> str:
    """0 -> A, 25 -> Z, 26 -> AA, 27 -> BA: the way mmCIF files name chains."""
    text = ""
    while number >= 0:
        text += string.ascii_uppercase[number % 26]
        number = number // 26 - 1
    return text


def fits_pdb(structure: Structure) -> bool:
    """Whether a PDB file can hold it: its chains, atoms, residue numbers and coordinates have few columns."""
    there = structure.mask > 0
    return (
        structure.num_chains <= len(PDB_CHAINS)
        and int(there.sum()) + structure.num_chains <= 99_999
        and int(structure.residue_index.max(initial=0)) <= 9999
        and float(np.abs(structure.positions[there]).max(initial=0.0)) < 999
    )


def to_pdb(structure: Structure, remarks: tuple[str, ...] = ()) -> str:
    """The structure as a PDB file.

    Raises:
        UserError: the format cannot hold it: more than 62 chains or 99,999 atoms, or a coordinate beyond its columns.
    """
    if structure.num_chains > len(PDB_CHAINS):
        raise UserError(
            f"{structure.num_chains} chains; a PDB file holds at most {len(PDB_CHAINS)}: read the mmCIF instead"
        )
    lines = [f"REMARK   1 {text}"[:80].ljust(80) for text in remarks] + ["MODEL     1".ljust(80)]
    serial = 0
    for chain in range(structure.num_chains):
        residues = np.flatnonzero(structure.chain == chain)
        name = structure.letter(chain)[:1]
        for residue in residues:
            for atom in np.flatnonzero(structure.mask[residue]):
                serial += 1
                lines.append(pdb_atom(structure, serial, int(residue), int(atom), name))
        if len(residues):
            last = residues[-1]
            serial += 1
            three, number = THREE[structure.aatype[last]], structure.residue_index[last]
            lines.append(f"TER   {serial:>5}      {three:>3} {name}{number:>4}".ljust(80))
    if serial > 99_999:
        raise UserError(f"{serial} atoms; a PDB file holds at most 99,999: read the mmCIF instead")
    return "\n".join([*lines, "ENDMDL".ljust(80), "END".ljust(80)]) + "\n"


def pdb_atom(structure: Structure, serial: int, residue: int, atom: int, chain: str) -> str:
    name = ATOMS[atom]
    x, y, z = structure.positions[residue, atom]
    if max(abs(x), abs(y), abs(z)) >= 9999:
        raise UserError("a coordinate beyond 9999 angstrom, which a PDB file cannot hold")
    label = name if len(name) == 4 else f" {name}"
    return (
        f"ATOM  {serial:>5} {label:<4} {THREE[structure.aatype[residue]]:>3} {chain}{structure.residue_index[residue]:>4}    "
        f"{x:>8.3f}{y:>8.3f}{z:>8.3f}{1.0:>6.2f}{structure.b_factors[residue, atom]:>6.2f}          {name[0]:>2}  "
    )


ATOM_COLUMNS = (
    "group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id label_entity_id label_seq_id "
    "pdbx_PDB_ins_code Cartn_x Cartn_y Cartn_z occupancy B_iso_or_equiv auth_seq_id auth_asym_id pdbx_PDB_model_num"
).split()


def to_mmcif(structure: Structure, name: str, remarks: tuple[str, ...] = ()) -> str:
    """The structure as an mmCIF file; chains of the same sequence are one entity."""
    block = "".join(letter if letter.isalnum() or letter in "_-." else "_" for letter in name) or "model"
    lines = [f"data_{block}", "#", f"_entry.id {block}"]
    lines += [f"# {text}" for text in remarks]
    entities = entity_numbers(structure)
    first = {entity: chain for chain, entity in reversed(list(enumerate(entities)))}
    lines += table("entity", ["id", "type"], [[str(entity), "polymer"] for entity in sorted(first)])
    rows = [[structure.letter(chain), str(entity)] for chain, entity in enumerate(entities)]
    lines += table("struct_asym", ["id", "entity_id"], rows)
    rows = [
        [str(entity), str(structure.residue_index[residue]), THREE[structure.aatype[residue]], "n"]
        for entity in sorted(first)
        for residue in np.flatnonzero(structure.chain == first[entity])
    ]
    lines += table("entity_poly_seq", ["entity_id", "num", "mon_id", "hetero"], rows)
    lines += table("atom_site", ATOM_COLUMNS, atom_rows(structure, entities))
    return "\n".join([*lines, "#"]) + "\n"


def entity_numbers(structure: Structure) -> list[int]:
    """The entity of each chain, from 1, in order of appearance."""
    known: dict[bytes, int] = {}
    sequences = [structure.aatype[structure.chain == chain].tobytes() for chain in range(structure.num_chains)]
    return [known.setdefault(sequence, len(known) + 1) for sequence in sequences]


def atom_rows(structure: Structure, entities: list[int]) -> list[list[str]]:
    rows: list[list[str]] = []
    for residue, atom in zip(*np.nonzero(structure.mask), strict=True):
        chain, number = int(structure.chain[residue]), str(structure.residue_index[residue])
        x, y, z = structure.positions[residue, atom]
        rows.append([
            "ATOM", str(len(rows) + 1), ATOMS[atom][0], ATOMS[atom], ".", THREE[structure.aatype[residue]],
            structure.letter(chain), str(entities[chain]), number, "?", f"{x:.3f}", f"{y:.3f}", f"{z:.3f}", "1.00",
            f"{structure.b_factors[residue, atom]:.2f}", number, structure.letter(chain), "1",
        ])  # fmt: skip
    return rows


def table(category: str, columns: list[str], rows: list[list[str]]) -> list[str]:
    return ["#", "loop_", *(f"_{category}.{column}" for column in columns), *(" ".join(row) for row in rows)]


def residue_confidence(plddt: np.ndarray) -> np.ndarray:
    """pLDDT [N] as B-factors [N, 37]."""
    return np.repeat(plddt[:, None], len(ATOMS), axis=1).astype(np.float32)
