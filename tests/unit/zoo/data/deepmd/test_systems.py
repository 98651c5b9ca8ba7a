"""Systems from every format, and the sentence for each thing that can be wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zoo.data.deepmd import systems
from zoo.errors import UserError
from zoo.md.cells import NOWHERE

FRAMES, ATOMS = 3, 4


def write(folder: Path, sets: int = 1, **changes: Any) -> Path:
    """A system O H H O in a cubic cell, three frames a set, with some files changed or, with None, left out."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"type.raw": "0\n1\n1\n0\n", "type_map.raw": "O\nH\n"}
    texts |= {name: text for name, text in changes.items() if "." in name}
    for name, text in texts.items():
        if text is not None:
            (folder / name).write_text(text)
    for number in range(sets):
        inside = folder / f"set.{number:03d}"
        inside.mkdir()
        arrays = {
            "coord": rng.normal(size=(FRAMES, 3 * ATOMS)).astype(np.float32),
            "box": np.tile(9 * np.eye(3).reshape(-1), (FRAMES, 1)),
            "energy": rng.normal(size=(FRAMES, 1)),
            "force": rng.normal(size=(FRAMES, 3 * ATOMS)),
        }
        arrays |= {name: values for name, values in changes.items() if "." not in name}
        for name, values in arrays.items():
            if values is not None:
                np.save(inside / f"{name}.npy", values)
    return folder


def test_several_sets_follow_each_other_and_missing_labels_are_marked(tmp_path: Path) -> None:
    folder = write(tmp_path / "water", sets=2)
    np.save(folder / "set.001/virial.npy", np.ones((FRAMES, 9)))
    (folder / "set.001/force.npy").unlink()
    (system,) = systems.read(["water"], ["O", "H"], tmp_path)
    assert len(system) == 6 and system.num_atoms == ATOMS
    assert system.known["energy"].all()
    assert system.known["force"].tolist() == [True] * 3 + [False] * 3
    assert system.known["virial"].tolist() == [False] * 3 + [True] * 3
    np.testing.assert_array_equal(system.coord[0], np.load(folder / "set.000/coord.npy")[0].reshape(ATOMS, 3))


def test_types_follow_the_model_whatever_the_order_of_the_data(tmp_path: Path) -> None:
    write(tmp_path / "a", **{"type_map.raw": "H O\n", "type.raw": "1 0 0 1"})
    write(tmp_path / "b", **{"type_map.raw": None})
    for system in systems.read(["a", "b"], ["O", "C", "H"], tmp_path)[:1]:
        assert system.types[0].tolist() == [0, 2, 2, 0]
    assert systems.read(["b"], ["O", "H"], tmp_path)[0].types[0].tolist() == [0, 1, 1, 0]


def test_one_frame_may_come_without_its_dimension(tmp_path: Path) -> None:
    one = {"coord": np.zeros(12), "box": 9 * np.eye(3).reshape(-1), "energy": np.asarray(1.5), "force": np.zeros(12)}
    write(tmp_path / "a", **one)
    (system,) = systems.read(["a"], ["O", "H"], tmp_path)
    assert len(system) == 1 and system.labels["energy"].tolist() == [1.5]


def test_mixed_types_differ_between_frames_and_may_be_virtual(tmp_path: Path) -> None:
    types = np.asarray([[0, 1, 1, -1], [1, 1, 1, 0], [0, 0, 0, 0]])
    write(tmp_path / "a", real_atom_types=types, **{"type.raw": "0 0 0 0"})
    (system,) = systems.read(["a"], ["H", "O"], tmp_path)
    assert system.types.tolist() == [[1, 0, 0, -1], [0, 0, 0, 1], [1, 1, 1, 1]]


def test_without_a_cell(tmp_path: Path) -> None:
    write(tmp_path / "a", box=None, nopbc=None, **{"type_map.raw": "O H"})
    (tmp_path / "a/nopbc").touch()
    (system,) = systems.read(["a"], ["O", "H"], tmp_path)
    assert system.cell is None and system.periodic == NOWHERE


def test_a_folder_of_systems_and_hdf5(tmp_path: Path) -> None:
    import h5py

    write(tmp_path / "all/a")
    folder = write(tmp_path / "all/b")
    assert len(systems.read(["all"], ["O", "H"], tmp_path)) == 2
    with h5py.File(tmp_path / "all.hdf5", "w") as file:
        group = file.create_group("one/b")
        group["type.raw"] = np.asarray([0, 1, 1, 0])
        group["type_map.raw"] = np.asarray([b"O", b"H"])
        for name in ("coord", "box", "energy", "force"):
            group[f"set.000/{name}.npy"] = np.load(folder / f"set.000/{name}.npy")
    (plain,) = systems.read(["all/b"], ["O", "H"], tmp_path)
    for place in ("all.hdf5", "all.hdf5#/one/b"):
        (system,) = systems.read([place], ["O", "H"], tmp_path)
        np.testing.assert_array_equal(system.coord, plain.coord)
        np.testing.assert_array_equal(system.labels["force"], plain.labels["force"])
    with pytest.raises(UserError, match="no group /two"):
        systems.read(["all.hdf5#/two"], ["O", "H"], tmp_path)


def test_the_last_frame_as_a_structure(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    (system,) = systems.read([str(folder)], ["H", "O"])
    atoms = systems.structure(str(folder), ["H", "O"])
    assert atoms.get_chemical_symbols() == [["H", "O"][kind] for kind in system.types[-1]] and atoms.pbc.all()
    np.testing.assert_array_equal(atoms.positions, system.coord[-1])
    np.testing.assert_array_equal(np.asarray(atoms.cell), system.cell[-1])
    (tmp_path / "two.xyz").write_text("1\n\nH 0 0 0\n1\n\nO 0 0 1\n")
    assert systems.structure(str(tmp_path / "two.xyz"), ["O"]).get_chemical_symbols() == ["O"]
    with pytest.raises(UserError, match="none.xyz does not exist"):
        systems.structure(str(tmp_path / "none.xyz"), ["O"])


def test_extended_xyz(tmp_path: Path) -> None:
    text = (
        '2\nLattice="4 0 0 0 4 0 0 0 4" Properties=species:S:1:pos:R:3:forces:R:3 energy=-1.5 '
        'virial="1 2 3 2 4 5 3 5 6" pbc="T T T"\nO 0 0 0 0.1 0 0\nH 1 0 0 -0.1 0 0\n'
        '1\nProperties=species:S:1:pos:R:3 energy=2.0 pbc="F F F"\nH 0 0 0\n'
    )
    (tmp_path / "a.xyz").write_text(text)
    water, atom = systems.read(["a.xyz"], ["H", "O"], tmp_path)
    assert water.types.tolist() == [[1, 0]] and water.labels["energy"].tolist() == [-1.5]
    assert water.labels["virial"][0, 0].tolist() == [1, 2, 3] and water.labels["force"][0, 1, 0] == -0.1
    assert atom.cell is None and not atom.known["force"].any() and atom.known["energy"].all()
    with pytest.raises(UserError, match=r"a.xyz, frame 0: element O is not in the model's type_map"):
        systems.read(["a.xyz"], ["H"], tmp_path)


FLAT = np.tile(np.asarray([[1.0, 0, 0, 2, 0, 0, 0, 0, 1]]), (FRAMES, 1))
HOLE = np.full((FRAMES, 12), 0.5)
HOLE[1, 4] = np.nan


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"type.raw": None}, "has no type.raw"),
        ({"type.raw": "0 1 x"}, "a/type.raw must hold whole numbers"),
        ({"type.raw": "0 1 2 0"}, r"type 2 is none of the 2 types"),
        ({"type_map.raw": "O Xe"}, r"element Xe is not in the model's type_map=\['O', 'H'\]"),
        ({"coord": None}, "a/set.000/coord.npy is missing"),
        ({"coord": np.zeros((FRAMES, 11))}, r"coord.npy has the shape \[3, 11\]; expected \[frames, 12\]"),
        ({"coord": np.asarray(["a"])}, "coord.npy holds <U1; expected numbers"),
        ({"energy": np.zeros(2)}, r"energy.npy has the shape \[2\]; expected \[3\] or \[3, 1\]"),
        ({"force": HOLE}, "a, frame 1: force holds numbers that are not finite"),
        ({"coord": HOLE}, "a, frame 1: coord holds numbers that are not finite"),
        ({"box": None}, "box.npy is missing; a system without a cell has an empty file `nopbc`"),
        ({"type.raw": "0 1 1 -1"}, "type.raw has type -1; atoms that are not there are for real_atom_types.npy alone"),
        ({"type_map.raw": "O O"}, "type_map.raw names an element twice: O, O"),
        (
            {"real_atom_types": np.full((FRAMES, ATOMS), 0.5)},
            "real_atom_types.npy, frame 0: types must be whole numbers",
        ),
        ({"box": FLAT}, "a, frame 0: the cell's vectors lie in one plane"),
        ({"box": np.zeros((FRAMES, 9))}, "a, frame 0: the cell has no vector"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_frame(tmp_path: Path, changes: dict, text: str) -> None:
    write(tmp_path / "a", **changes)
    with pytest.raises(UserError, match=text):
        systems.read(["a"], ["O", "H"], tmp_path)


def test_missing_places_and_sets(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        systems.read(["nowhere"], ["O"], tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match="a has no type.raw, nor has any folder below it"):
        systems.read(["a"], ["O"], tmp_path)
    (tmp_path / "a/type.raw").write_text("0")
    with pytest.raises(UserError, match=r"has no folder set.\*"):
        systems.read(["a"], ["O"], tmp_path)
    (tmp_path / "b.hdf5").write_bytes(b"x")
    with pytest.raises(UserError, match="not an HDF5 file"):
        systems.read(["b.hdf5"], ["O"], tmp_path)


def test_the_reference_data_reads(reference_data: Path) -> None:
    base = reference_data / "deepmd"
    places = ["water/data_1", "water_mixed_type", "water_mixed_type_twin", "GeTe", "nopbc/C4H3O1"]
    found = systems.read(places, ["O", "H", "Ge", "Te", "C"], base)
    assert [len(system) for system in found] == [160, 4, 4, 36, 15]
    np.testing.assert_array_equal(np.sort(found[1].types), np.sort(found[2].types))


def test_what_dpdata_reads(tmp_path: Path) -> None:
    pytest.importorskip("dpdata")
    write(tmp_path / "a", virial=np.tile(np.arange(9.0), (FRAMES, 1)))
    (ours,) = systems.read(["a"], ["H", "O"], tmp_path)
    (theirs,) = systems.read(["deepmd/npy::a"], ["H", "O"], tmp_path)
    # dpdata sorts nothing here, and rounds to its own precision.
    np.testing.assert_array_equal(theirs.types, ours.types)
    np.testing.assert_allclose(theirs.coord, ours.coord, rtol=1e-6)
    np.testing.assert_allclose(theirs.cell, ours.cell, rtol=1e-6)
    for name, values in ours.labels.items():
        np.testing.assert_allclose(theirs.labels[name], values, rtol=1e-6)
        assert theirs.known[name].all() and ours.known[name].all()
    with pytest.raises(UserError, match="dpdata knows no format 'vasp/outkar'"):
        systems.read(["vasp/outkar::a"], ["H", "O"], tmp_path)
    with pytest.raises(UserError, match="nothing does not exist"):
        systems.read(["vasp/outcar::nothing"], ["H", "O"], tmp_path)
    (tmp_path / "OUTCAR").write_text("no such thing")
    with pytest.raises(UserError, match="dpdata cannot read it as vasp/outcar|no frames"):
        systems.read(["vasp/outcar::OUTCAR"], ["H", "O"], tmp_path)


def test_a_frame_of_a_later_set_is_named_with_it(tmp_path: Path) -> None:
    write(tmp_path / "a", sets=2)
    np.save(tmp_path / "a/set.001/energy.npy", np.asarray([0.0, np.nan, 0.0]))
    with pytest.raises(UserError, match=r"a, frame 4 \(frame 1 of set.001\): energy holds numbers that are not finite"):
        systems.read([str(tmp_path / "a")], ["O", "H"])


def test_files_that_are_something_else_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a")
    with (tmp_path / "a/set.000/force.npy").open("wb") as file:
        np.savez(file, force=np.zeros(3))
    with pytest.raises(UserError, match="force.npy is an npz archive of several arrays"):
        systems.read([str(tmp_path / "a")], ["O", "H"])
    write(tmp_path / "b")
    (tmp_path / "b/type_map.raw").write_bytes(b"\xff\xfe\x00O")
    with pytest.raises(UserError, match="type_map.raw is no text file"):
        systems.read([str(tmp_path / "b")], ["O", "H"])
    (tmp_path / "zero.xyz").write_text("0\n\n")
    with pytest.raises(UserError, match="zero.xyz, frame 0: holds no atoms"):
        systems.read([str(tmp_path / "zero.xyz")], ["O", "H"])
