"""`python -m zoo.simulate model=FILE structure=FILE steps=N`: molecular dynamics, or relaxation, with a trained potential.

model=FILE          a .dp or .yaml model; or recipe=NAME, whose run_dir holds model.dp
structure=FILE      atoms, in any format that ASE reads, or the folder of a system in deepmd-kit's layout; the last frame
steps=N             time steps; a simulation that was stopped goes on to N
ensemble=nve        nve, nvt (Langevin), nose_hoover, npt (Langevin and a rescaled cell), relax (minimum of the energy)
timestep_fs=0.5  temperature_k=300  pressure_bar=1  thermostat_fs=100  barostat_fs=1000
output=DIR          thermo.log, trajectory.xyz, final.xyz, state.npz (simulation)
every=100           steps between two lines of thermo.log and two frames of the trajectory
skin_a=1.0          how much further than the cutoff neighbours are looked for
max_force=0.01      relax ends where no force is larger, in eV/A
seed=0  resume=true
cluster=NAME        split atoms and neighbours over the devices of a cluster, such as cluster=emulated cluster.n=8
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

import flowaware_core as fa
from zoo.config import compose
from zoo.errors import DONE, Stopped, UserError, exit_code
from zoo.md import cells
from zoo.md.motion import CHAIN, Motion, State
from zoo.md.trajectory import System, Trajectory, sorted_system
from zoo.md.units import ACCELERATION, BAR, BOLTZMANN
from zoo.models.deepmd import convert
from zoo.runtime import devices, processes
from zoo.runtime.signals import StopSignals
from zoo.training.run_folder import check_place
from zoo.words import own

TEXTS = ("model", "structure", "output")
COLUMNS = ("step", "time_ps", "potential_ev", "kinetic_ev", "total_ev", "temperature_k", "pressure_bar", "volume_a3")


@dataclasses.dataclass(frozen=True)
class Options:
    """The command's options; see the module."""

    structure: str = ""
    model: str = ""
    steps: int = 1000
    ensemble: Literal["nve", "nvt", "nose_hoover", "npt", "relax"] = "nve"
    timestep_fs: float = 0.5
    temperature_k: float = 300.0
    pressure_bar: float = 1.0
    thermostat_fs: float = 100.0
    barostat_fs: float = 1000.0
    output: str = "simulation"
    every: int = 100
    skin_a: float = 1.0
    max_force: float = 0.01
    seed: int = 0
    resume: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        for name in ("timestep_fs", "thermostat_fs", "barostat_fs", "skin_a", "max_force"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}; it must be above 0")
        if self.temperature_k < 0:
            raise ValueError(f"temperature_k={self.temperature_k}; it must be at least 0")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed}; it must be at least 0")
        if not self.output:
            raise ValueError("output= is empty; name a folder")

    @property
    def motion(self) -> Motion:
        names = [field.name for field in dataclasses.fields(Motion)]
        return Motion(**{name: getattr(self, name) for name in names if hasattr(self, name)})


def main(argv: list[str]) -> int:
    """Simulates; the module says what it reads and writes.

    Raises:
        UserError: an option is wrong, or model or structure are missing or make no sense.
        Stopped: a signal came; the state is saved.
    """
    if argv[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return DONE
    options, rest = own(Options, argv, TEXTS)
    if options.model and (named := next((word for word in rest if word.startswith("recipe=")), None)):
        raise UserError(f"model={options.model} and {named} both name a model; leave one of them out")
    if options.model and (unknown := [word for word in rest if not word.startswith("cluster")]):
        names = ", ".join(field.name for field in dataclasses.fields(Options))
        raise UserError(f"{unknown[0]!r} is not an option; allowed are {names} and cluster")
    cluster = split_over(rest)
    file = Path(options.model) if options.model else trained(rest)
    if not options.structure:
        raise UserError("structure= is missing; name a file with atoms, such as structure=water.xyz")
    check_place(Path(options.output), option="output")
    model = convert.read(file)
    atoms = read_atoms(options.structure, model)
    if options.ensemble == "npt" and not all(atoms.pbc):
        raise UserError(f"{options.structure}: ensemble=npt needs a cell that is periodic everywhere; take nvt")
    with StopSignals() as stop:
        simulate(options, model, atoms, stop.wanted, cluster)
    return DONE


def split_over(words: list[str]) -> fa.Cluster | None:
    """The cluster that the words name, where it has more than one device; sets up what stands for it here."""
    if not any(word.startswith("cluster=") for word in words):
        return None
    named = words if any(word.startswith("recipe=") for word in words) else [*words, "recipe=dp"]
    machine = devices.settle(compose(named).cluster, processes.here())
    print(machine.sentence, flush=True)
    return machine.cluster if machine.cluster.num_devices > 1 else None


def trained(words: list[str]) -> Path:
    """The model that a training left in its run folder."""
    if not any(word.startswith("recipe=") for word in words):
        raise UserError("model= is missing; name a .dp or .yaml model, or the recipe of a training with recipe=NAME")
    whole = words if any(word.startswith("cluster=") for word in words) else [*words, "cluster=local"]
    return compose(whole).run_dir / "model.dp"


def read_atoms(file: str, model: convert.Model) -> Any:
    """The last frame of a file or a system as `ase.Atoms`, checked against the model."""
    from zoo.data.deepmd.systems import structure
    from zoo.md.calculator import numbers_of

    atoms = structure(file, model.config.type_map)
    try:
        numbers_of(model, atoms.get_chemical_symbols())
        if any(atoms.pbc):
            cells.completed(np.asarray(atoms.cell), periodicity(atoms))
    except ValueError as error:
        raise UserError(f"{file}: {error}") from None
    return atoms


def periodicity(atoms: Any) -> cells.Periodic:
    a, b, c = map(bool, atoms.pbc)
    return a, b, c


def simulate(
    options: Options, model: convert.Model, atoms: Any, stopped: Any, cluster: fa.Cluster | None = None
) -> None:
    """From the structure, or from where an earlier call stopped, to the last step."""
    from zoo.md.calculator import numbers_of

    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    periodic = periodicity(atoms)
    types = numbers_of(model, atoms.get_chemical_symbols())
    system = sorted_system(model, types, atoms.get_masses(), periodic, options.skin_a)
    trajectory = Trajectory(system, options.motion, cluster)
    saved, asked = folder / "state.npz", decided(options, model, atoms)
    try:
        if options.resume and saved.exists():
            number, state = load(saved, len(atoms), asked)
            print(f"goes on after step {number} of {saved}", flush=True)
        else:
            number, state = 0, trajectory.begin(*beginning(options, system, atoms), options.seed)
            for name in ("thermo.log", "trajectory.xyz"):
                (folder / name).unlink(missing_ok=True)
        log = Log(folder, system, atoms, options)
        if not number:
            log.write(0, state)
        number, state = advance(options, trajectory, log, number, state, saved, asked, stopped)
    except ValueError as error:
        raise UserError(f"{options.structure}: {error}") from None
    except FloatingPointError as error:
        raise UserError(f"{options.structure}: {error}; a smaller timestep_fs or a better model may help") from None
    log.final(number, state)
    largest = float(np.abs(np.asarray(state.force)).max())
    if options.ensemble == "relax" and largest >= options.max_force:
        print(
            f"not at rest: the largest force is {largest:.4f} eV/A and max_force={options.max_force}; more steps go on from here"
        )
    if trajectory.plan is not None:
        (folder / "plan.txt").write_text(fa.describe(trajectory.plan) + "\n")
    print(f"written {folder / 'final.xyz'}; neighbours were found {trajectory.rebuilds} times", flush=True)


def advance(
    options: Options, trajectory: Trajectory, log: Log, number: int, state: State, saved: Path, asked: str, stopped: Any
) -> tuple[int, State]:
    """Stretches of `every` steps with a line, a frame and a saved state after each."""
    while number < options.steps:
        if options.ensemble == "relax" and np.abs(np.asarray(state.force)).max() < options.max_force:
            print(f"relaxed after {number} steps", flush=True)
            break
        count = min(options.every - number % options.every, options.steps - number)
        begin = time.perf_counter()
        state = trajectory.run(state, count)
        number += count
        log.write(number, state, count / (time.perf_counter() - begin))
        save(saved, number, state, asked)
        if stopped() and number < options.steps:
            raise Stopped(f"step {number} of {options.steps} is saved in {saved}; the same command goes on from there")
    return number, state


def beginning(options: Options, system: System, atoms: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, velocities and cell in the sorted order; velocities of the file, or drawn where it has none."""
    coord = atoms.positions[system.order]
    cell = cells.completed(np.asarray(atoms.cell), system.periodic)
    if options.ensemble == "relax":
        return coord, np.zeros_like(coord), cell
    if not (system.mass > 0).all():
        raise ValueError("an atom has no mass; give all masses above 0, or leave them to the elements")
    given = atoms.get_velocities()
    if given is not None and not np.isfinite(given).all():
        atom = int(np.flatnonzero(~np.isfinite(given).all(axis=1))[0])
        raise ValueError(f"the velocity of atom {atom} is not finite: {given[atom].tolist()}")
    if given is not None and np.any(given):
        from ase.units import fs

        return coord, given[system.order] * fs, cell
    rng = np.random.default_rng(options.seed)
    spread = np.sqrt(BOLTZMANN * options.temperature_k * ACCELERATION / system.mass)
    velocity = spread * rng.normal(size=coord.shape)
    return coord, velocity - (system.mass * velocity).sum(axis=0) / system.mass.sum(), cell


class Log:
    """thermo.log and trajectory.xyz, a line and a frame at a time."""

    def __init__(self, folder: Path, system: System, atoms: Any, options: Options) -> None:
        self.folder, self.system, self.atoms, self.options = folder, system, atoms, options
        self._back = np.argsort(system.order)

    def write(self, number: int, state: State, steps_per_s: float | None = None) -> None:
        file = self.folder / "thermo.log"
        if not file.exists():
            file.write_text("# " + " ".join(COLUMNS) + "\n")
        values = self.values(number, state)
        with file.open("a") as stream:
            stream.write(f"{number:10d} " + " ".join(f"{value:17.9e}" for value in values) + "\n")
        self.frame(state).write(self.folder / "trajectory.xyz", format="extxyz", append=True)
        speed = f", {steps_per_s:.1f} steps/s" if steps_per_s is not None else ""
        print(f"step {number}: {values[1]:.4f} eV, {values[4]:.1f} K, {values[5]:.1f} bar{speed}", flush=True)

    def values(self, number: int, state: State) -> list[float]:
        """The columns after the step."""
        velocity, mass = np.asarray(state.velocity), self.system.mass
        kinetic = float(0.5 * np.sum(mass * velocity**2) / ACCELERATION)
        free = 3 * len(mass) - (3 if self.options.ensemble in ("nve", "nose_hoover") else 0)
        whole = all(self.system.periodic)
        volume = cells.volume(np.asarray(state.cell)) if whole else float("nan")
        pressure = (2 * kinetic + float(np.trace(np.asarray(state.virial)))) / (3 * volume) / BAR
        potential, hot = float(state.energy), 2 * kinetic / (max(free, 1) * BOLTZMANN)
        if self.options.ensemble == "relax":
            kinetic, hot = 0.0, 0.0
        elapsed = number * self.options.timestep_fs * 1e-3
        return [elapsed, potential, kinetic, potential + kinetic, hot, pressure, volume]

    def frame(self, state: State) -> Any:
        """The atoms as they are now, in the order of the structure."""
        from ase.calculators.singlepoint import SinglePointCalculator
        from ase.units import fs

        atoms = self.atoms.copy()
        if any(self.system.periodic):
            atoms.set_cell(
                np.where(np.asarray(self.system.periodic)[:, None], np.asarray(state.cell), np.asarray(atoms.cell))
            )
        atoms.positions = np.asarray(state.coord)[self._back]
        atoms.set_velocities(np.asarray(state.velocity)[self._back] / fs)
        atoms.calc = SinglePointCalculator(
            atoms, energy=float(state.energy), forces=np.asarray(state.force)[self._back]
        )
        return atoms

    def final(self, number: int, state: State) -> None:
        del number
        self.frame(state).write(self.folder / "final.xyz", format="extxyz")


def decided(options: Options, model: convert.Model, atoms: Any) -> str:
    """What a trajectory depends on beside where it begins, as JSON; steps may grow and lines may come at other intervals."""
    free = ("structure", "model", "output", "steps", "every", "resume", "skin_a", "max_force")
    values = {name: value for name, value in dataclasses.asdict(options).items() if name not in free}
    digest = hashlib.sha256(repr(model.config).encode())
    for leaf in jax.tree.leaves((model.params, model.statistics)):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    begun = hashlib.sha256(repr((atoms.get_chemical_symbols(), atoms.pbc.tolist())).encode())
    for array in (atoms.positions, np.asarray(atoms.cell)):
        begun.update(np.ascontiguousarray(array).tobytes())
    digests = {"model": digest.hexdigest()[:16], "structure": begun.hexdigest()[:16]}
    return json.dumps({**values, **digests, "compressed": model.compressed})


def save(file: Path, number: int, state: State, decided: str) -> None:
    """The whole state, in one move."""
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in state._asdict().items()}
    part = file.with_name(f".{file.name}")
    with part.open("wb") as stream:
        np.savez(stream, **arrays, number=np.asarray(number), decided=np.asarray(decided))
    part.replace(file)


def load(file: Path, count: int, decided: str) -> tuple[int, State]:
    """Raises UserError where the file is of other atoms or options, or damaged."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in State._fields}
            number = int(stored["number"])
            before, now = json.loads(str(stored["decided"])), json.loads(decided)
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{file} is damaged ({error}); start afresh with resume=false") from None
    if arrays["coord"].shape != (count, 3) or arrays["chain"].shape != (2, CHAIN):
        raise UserError(f"{file} is of {len(arrays['coord'])} atoms and the structure has {count}; give another output")
    changed = [
        f"{name} was {before.get(name)} and is {value}" for name, value in now.items() if before.get(name) != value
    ]
    if changed:
        raise UserError(f"{file} is of another simulation: {'; '.join(changed)}; give another output, or resume=false")
    return number, State(**arrays)


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
