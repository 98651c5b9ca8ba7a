"""Structures as files: columns, chains and what a format cannot hold."""

from __future__ import annotations

import numpy as np
import pytest

from zoo.errors import UserError
from zoo.proteins.residues import tables
from zoo.proteins.structures import Structure, spreadsheet, to_mmcif, to_pdb


def peptide(num_chains: int, length: int = 3) -> Structure:
    kinds = np.tile([0, 7, 17], num_chains)  # ALA GLY TRP
    count = num_chains * length
    positions = np.random.default_rng(0).normal(0, 10, (count, 37, 3))
    return Structure(
        kinds, positions, tables().atom37_mask[kinds], np.tile(np.arange(1, length + 1), num_chains),
        np.repeat(np.arange(num_chains), length), np.full((count, 37), 87.5),
    )  # fmt: skip


def test_pdb_columns_and_order_of_chains() -> None:
    structure = peptide(2)
    lines = to_pdb(structure, ("a remark",)).splitlines()
    atoms = [line for line in lines if line.startswith("ATOM")]
    assert all(len(line) == 80 for line in lines)
    assert len(atoms) == structure.mask.sum()
    assert [line[21] for line in lines if line.startswith("TER")] == ["A", "B"]
    assert atoms[0][12:26] == " N   ALA A   1"
    np.testing.assert_allclose(
        [float(atoms[0][30 + 8 * i : 38 + 8 * i]) for i in range(3)], structure.positions[0, 0], atol=1e-3
    )
    assert float(atoms[0][60:66]) == 87.5 and atoms[0][76:78].strip() == "N"
    assert "a remark" in lines[0]


def test_more_chains_than_a_pdb_file_can_name_go_to_mmcif() -> None:
    structure = peptide(63)
    with pytest.raises(UserError, match="63 chains; a PDB file holds at most 62"):
        to_pdb(structure)
    text = to_mmcif(structure, "big one")
    rows = [line.split() for line in text.splitlines() if line.startswith("ATOM")]
    assert len(rows) == structure.mask.sum()
    assert len({row[6] for row in rows}) == 63
    assert {row[7] for row in rows} == {"1"}  # all of one sequence
    assert text.startswith("data_big_one\n")


def test_residues_of_unknown_type_have_no_atoms() -> None:
    kinds = np.array([20, 0])
    structure = Structure(
        kinds, np.zeros((2, 37, 3)), tables().atom37_mask[kinds], np.array([1, 2]), np.zeros(2, int), np.zeros((2, 37))
    )
    assert "UNK" not in to_pdb(structure)


def test_chain_names() -> None:
    assert [spreadsheet(number) for number in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "BA", "AB"]
