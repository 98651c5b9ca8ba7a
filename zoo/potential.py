"""What a potential says of a crystal, and what frames ask of a potential.

    python -m zoo.potential neighbor-stat data=SYSTEM,... rcut=6 [type_map=O,H] [mixed_type=true]
        the smallest distance between atoms, and the most neighbours: what `sel` must hold
    python -m zoo.potential relax   model=FILE structure=FILE [output=relaxed.xyz]
        atoms and cell at rest
    python -m zoo.potential eos     model=FILE structure=FILE [strain=0.06] [points=9] [output=eos.csv]
        energy over volume, its lowest point and the bulk modulus
    python -m zoo.potential elastic model=FILE structure=FILE [strain=0.005]
        elastic constants and moduli
    max_force=0.001  where a relaxation ends, in eV/A; steps=1000 are the most that the first one takes
    relax_cell=true  eos and elastic bring the cell to rest first

model is a .dp, .yaml or .pt file; structure any file that ASE reads.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import DONE, UserError, exit_code
from zoo.training.run_folder import check_place
from zoo.words import own

COMMANDS = ("neighbor-stat", "relax", "eos", "elastic")
TEXTS = ("model", "structure", "output", "data", "type_map")


@dataclasses.dataclass(frozen=True)
class Options:
    """The command's options; see the module."""

    model: str = ""
    structure: str = ""
    output: str = ""
    data: str = ""
    rcut: float = 6.0
    type_map: str = ""
    mixed_type: bool = False
    strain: float | None = None
    points: int = 9
    max_force: float = 0.001
    steps: int = 1000
    relax_cell: bool = True

    def __post_init__(self) -> None:
        if self.points < 5:
            raise ValueError(f"points={self.points}; an equation of state needs at least 5")
        for name in ("rcut", "max_force", "steps"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}; it must be above 0")
        if self.strain is not None and not 0 < self.strain < 0.3:
            raise ValueError(f"strain={self.strain}; it must lie between 0 and 0.3")


def main(argv: Sequence[str]) -> int:
    """Runs one subcommand.

    Raises:
        UserError: a word is unknown, or a file is missing or makes no sense.
    """
    command = argv[0] if argv else ""
    if command in ("-h", "--help"):
        print(__doc__)
        return DONE
    if command not in COMMANDS:
        raise UserError(f"{command or 'nothing'!r} is no subcommand; choose one of {', '.join(COMMANDS)}")
    options, rest = own(Options, argv[1:], TEXTS)
    if rest:
        names = ", ".join(field.name for field in dataclasses.fields(Options))
        raise UserError(f"{rest[0]!r} is not an option; allowed are {names}")
    if command == "neighbor-stat":
        return neighbours(options)
    check_output(command, Path(options.output))
    atoms = prepared(options, cell=command == "relax" or options.relax_cell)
    {"relax": relax, "eos": eos, "elastic": elastic}[command](options, atoms)
    return DONE


def check_output(command: str, output: Path) -> None:
    """Raises UserError where what is found could not be written, before it is looked for."""
    if output == Path():
        return
    if output.is_dir():
        raise UserError(f"output={output} is a folder; name a file")
    check_place(output.parent, option="output")
    if command == "relax":
        from ase.io.formats import filetype, ioformats  # here, as only relax writes in ASE's formats

        kind = ioformats.get(filetype(str(output), read=False, guess=False))
        if kind is None or not kind.can_write:
            raise UserError(f"output={output}: ASE writes no format of this ending; take .xyz or .cif")


def neighbours(options: Options) -> int:
    """Prints the smallest distance and, per type, the most neighbours within rcut."""
    from zoo.data.deepmd import frames, systems

    if not options.data:
        raise UserError("data= is missing; name folders or files of frames, such as data=water/data_0,water/data_1")
    places = options.data.split(",")
    type_map = options.type_map.split(",") if options.type_map else systems.elements(places)
    found = frames.find(systems.read(places, type_map), len(type_map), options.rcut)
    print(f"{len(found)} frames of {len(found.systems)} systems; within {options.rcut} A")
    print(f"min_nbor_dist: {found.nearest:.6f}")
    if options.mixed_type:
        print(f"max_nbor_size: {found.most_together}")
    else:
        print(f"type_map: {' '.join(type_map)}\nmax_nbor_size: {list(found.most)}")
    return DONE


def prepared(options: Options, cell: bool) -> Any:
    """The structure with its potential, at rest."""
    from zoo.md.calculator import DeepPotential
    from zoo.md.properties import relaxed
    from zoo.models.deepmd import convert
    from zoo.simulate import read_atoms

    for name in ("model", "structure"):
        if not getattr(options, name):
            raise UserError(f"{name}=FILE is missing")
    model = convert.read(Path(options.model))
    atoms = read_atoms(options.structure, model)
    if not all(atoms.pbc):
        raise UserError(f"{options.structure}: the cell must be periodic everywhere")
    atoms.calc = DeepPotential(model)
    try:
        return relaxed(atoms, options.max_force, cell, options.steps)
    except ValueError as error:
        raise UserError(f"{options.structure}: {error}") from None


def relax(options: Options, atoms: Any) -> None:
    output = Path(options.output or "relaxed.xyz")
    output.parent.mkdir(parents=True, exist_ok=True)
    atoms.write(output)
    lengths = ", ".join(f"{value:.5f}" for value in atoms.cell.cellpar())
    print(f"{atoms.get_potential_energy():.6f} eV; cell {lengths} (A, degrees); written {output}")


def eos(options: Options, atoms: Any) -> None:
    from zoo.md.properties import equation_of_state

    found = equation_of_state(atoms, options.strain or 0.06, options.points, options.max_force)
    output = Path(options.output or "eos.csv")
    output.parent.mkdir(parents=True, exist_ok=True)
    rows = np.stack([found.volume, found.energy], axis=1)
    np.savetxt(output, rows, delimiter=",", header="volume_a3,energy_ev", comments="", fmt="%.9f")
    print(
        f"lowest energy {found.best_energy:.6f} eV at {found.best_volume:.4f} A^3, bulk modulus {found.bulk_modulus:.2f} GPa"
    )
    print(f"written {output}")


def elastic(options: Options, atoms: Any) -> None:
    from zoo.md.properties import elastic_constants

    found = elastic_constants(atoms, options.strain or 0.005, options.max_force)
    print("stiffness in GPa, Voigt's order xx yy zz yz xz xy")
    for row in found.stiffness:
        print(" ".join(f"{value:9.2f}" for value in row))
    print(f"bulk modulus {found.bulk_modulus:.2f} GPa, shear modulus {found.shear_modulus:.2f} GPa (Hill)")


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
