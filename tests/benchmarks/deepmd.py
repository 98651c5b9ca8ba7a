"""Deep potentials beside deepmd-kit 3.2 on this machine: speed of training, learning curve, speed of molecular dynamics.

    python -m tests.benchmarks.deepmd speed  --peer PYTHON --data DIR [--steps 40]
    python -m tests.benchmarks.deepmd curve  --peer PYTHON --data DIR [--steps 1000] [--seeds 3] [--paired]
    python -m tests.benchmarks.deepmd motion --peer PYTHON --data DIR [--steps 100]

PYTHON is that of an environment with `deepmd-kit[cpu,jax]==3.2.0`, `ase` and tensorflow-cpu; DIR holds water/data_0 ... data_3. The
programs run one after the other, each with `--threads` threads; beside the seconds on the clock stand those of the processor,
which other work on the machine disturbs less. The last line is JSON.

One seed's error at step 200 differs from another's by 12 %, so that means of a few seeds tell little. `--paired` takes the luck
out: for each seed, ours begins with deepmd-kit's own initial weights and sees its frames in its order.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BACKENDS = ("tf", "jax")
SHOWN = 10
"""Steps between two lines of deepmd-kit where speed counts: with every line it evaluates two batches."""
FRAME = """
import sys, time, numpy as np
from ase import Atoms
place, model, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
box = np.load(f"{place}/set.000/box.npy")[0].reshape(3, 3)
types = np.loadtxt(f"{place}/type.raw", dtype=int)
atoms = Atoms([["O", "H"][k] for k in types], np.load(f"{place}/set.000/coord.npy")[0].reshape(-1, 3), cell=box, pbc=True)
"""
THEIRS = (
    FRAME
    + """
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution
from ase.md.verlet import VelocityVerlet
from ase import units
from deepmd.calculator import DP
atoms.calc = DP(model)
MaxwellBoltzmannDistribution(atoms, temperature_K=300, rng=np.random.default_rng(0))
motion = VelocityVerlet(atoms, 0.5 * units.fs)
motion.run(5)
wall, cpu = time.perf_counter(), time.process_time()
motion.run(steps)
print("RESULT", (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps)
"""
)
OURS = (
    FRAME
    + """
from pathlib import Path
from zoo.md.motion import Motion
from zoo.md.trajectory import Trajectory, sorted_system
from zoo.md.units import ACCELERATION, BOLTZMANN
from zoo.models.deepmd.convert import read
system = sorted_system(read(Path(model)), types, atoms.get_masses(), (True, True, True), 1.0)
speed = np.sqrt(BOLTZMANN * 300 * ACCELERATION / system.mass)
velocity = speed * np.random.default_rng(0).normal(size=atoms.positions.shape)
run = Trajectory(system, Motion(timestep_fs=0.5))
state = run.run(run.begin(atoms.positions[system.order], velocity, box.astype(float), 0), 50)
wall, cpu = time.perf_counter(), time.process_time()
state = run.run(state, steps)
float(state.energy)
print("RESULT", (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps)
"""
)

RECORDED = """
import sys
from deepmd.utils import data_system
drawn = open("frames.txt", "w")
draw = data_system.DeepmdDataSystem.get_batch
def get_batch(self, sys_idx=None):
    batch = draw(self, sys_idx)
    if sys_idx is None:  # the statistics name their system
        print(id(self), float(batch["energy"].reshape(-1)[0]), float(batch["force"].reshape(-1)[0]), file=drawn, flush=True)
    return batch
data_system.DeepmdDataSystem.get_batch = get_batch
from deepmd.main import main
main(sys.argv[1:])
"""
"""deepmd-kit's command line that also writes which frames it draws."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "curve", "motion"))
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-deepmd"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--paired", action="store_true", help="curve: the peer's initial weights and order of frames")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    found = {"speed": speed, "curve": curve, "motion": motion}[given.what](given)
    print(json.dumps({"benchmark": given.what, "threads": given.threads, **found}))
    return 0


def speed(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds from the start to the first step, and per step after it."""
    steps, found = given.steps or 40, {}
    for name in ("ours", *BACKENDS):
        command, folder = training(given, name, steps, 1, 10**6, f"speed-{name}")
        seen, cpu = watched(given, command, folder)
        each = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in itertools.pairwise(seen)]
        found[name] = {
            "first_step_s": seen[0][1],
            "step_s": statistics.median(each),  # an evaluation or a checkpoint between two steps is no step
            "processor_s": cpu,  # of the whole run
        }
        print(f"{name:<6}" + "".join(f"  {key} {value:.3f}" for key, value in found[name].items()), flush=True)
    return found


def curve(given: argparse.Namespace) -> dict[str, Any]:
    """Force error over the whole test split, at step 200 and at the end, ours and that of the TensorFlow backend."""
    steps = given.steps or 1000
    if given.paired:
        return paired(given, steps)
    found: dict[str, Any] = {}
    for name in ("ours", "tf"):
        rows = []
        for seed in range(1, given.seeds + 1):
            command, folder = training(given, name, steps, seed, 200, f"curve-{name}-{seed}")
            watched(given, command, folder)
            rows.append(errors(folder / "lcurve.out"))
        found[name] = {
            str(step): statistics.mean(row[step] for row in rows) for step in sorted(rows[0]) if step in (200, steps)
        }
        print(f"{name:<6}  rmse_f_val in eV/A, mean of {given.seeds}: {found[name]}", flush=True)
    return found


def paired(given: argparse.Namespace, steps: int) -> dict[str, Any]:
    """The same, where each run of ours has the initial weights and the frames of the peer's run of that seed."""
    found: dict[str, Any] = {}
    for seed in range(1, given.seeds + 1):
        begun, folder = ((given.out / f"paired-{what}-{seed}").absolute() for what in ("begun", "tf"))
        dp = str(given.peer.parent / "dp")
        begun.mkdir(parents=True, exist_ok=True)
        tree = json.loads(inputs(given, 1, seed, begun, SHOWN).read_text())
        tree["learning_rate"] |= {"start_lr": 1e-30, "stop_lr": 1e-31}  # leaves the weights of the seed as they are
        tree["training"]["disp_freq"] = 1  # without a line before the end there is no checkpoint
        (begun / "input.json").write_text(json.dumps(tree))
        for words in (
            ["--tf", "train", "input.json", "--skip-neighbor-stat"],
            ["--tf", "freeze", "-o", "init.pb"],
            ["convert-backend", "init.pb", "init.dp"],
        ):
            subprocess.run([dp, *words], cwd=begun, env=environment(given), check=True, capture_output=True)
        (_, *words), _ = training(given, "tf", steps, seed, 200, folder.name)
        watched(given, [str(given.peer), "-c", RECORDED, *words], folder)
        theirs, ours = errors(folder / "lcurve.out"), begun_as(given, begun / "init.dp", folder / "frames.txt", steps)
        for step in ours:
            found.setdefault(str(step), []).append({"ours": ours[step], "tf": theirs[step]})
        print(f"seed {seed}  rmse_f_val in eV/A: ours {ours}  tf { {step: theirs[step] for step in ours} }", flush=True)
    means = {
        step: {name: statistics.mean(row[name] for row in rows) for name in rows[0]} for step, rows in found.items()
    }
    print(f"mean of {given.seeds}: {means}")
    return {"seeds": found, "mean": means}


def begun_as(given: argparse.Namespace, model: Path, frames: Path, steps: int) -> dict[int, float]:
    """Errors of ours from the given initial weights over the frames that the peer drew."""
    import jax
    import numpy as np

    from flowaware_core import versions
    from zoo.config import compose
    from zoo.models.deepmd.convert import read
    from zoo.training.job import load

    words = [f"data_dir={given.data.absolute()}", f"recipe.training.steps={steps}"]
    config = compose(
        ["recipe=dp_water", "cluster=local", *words, f"recipe.optimizer.decay_steps={max(1, steps // 20)}"]
    )
    recipe = load(config.recipe, config.data_dir)
    data, begun, number = recipe.dataset(), read(model), {}
    for n in range(len(data.train)):
        system, frame = data.train.locate(n)
        number[float(system.labels["energy"][frame]), float(system.labels["force"][frame].reshape(-1)[0])] = n
    draws = [line.split() for line in frames.read_text().splitlines()]
    # Draws of the validation come from another set of systems; no frame of water is in both. The very first of the others
    # only tells deepmd-kit's loader the names and types of its arrays.
    order = [number[key] for _, *words in draws if (key := (float(words[0]), float(words[1]))) in number][1:]
    found = {}
    with versions.enable_x64():
        state = jax.jit(recipe.initial_state)(jax.random.key(0))
        state["params"] = jax.tree.map(jax.numpy.asarray, begun.params)
        state["statistics"] = jax.tree.map(jax.numpy.asarray, begun.statistics)
        step, evaluate = jax.jit(recipe.step, donate_argnums=0), jax.jit(recipe.evaluate)
        for k in range(steps + 1):
            if k in (min(200, steps), steps):
                sums = [evaluate(state, batch) for batch in recipe.batches("test", 0, 0, 1)]
                total = {name: sum(float(one[name]) for one in sums) for name in sums[0]}
                found[k] = float(recipe.figures(total)["rmse_f"])
            if k < steps:
                state, _ = step(state, data.rows("train", np.asarray([order[k]])))
    return found


def motion(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds per time step of 192 atoms of water, neighbours included, with the same weights.

    A potential that was trained for a thousand steps keeps water together for no more than about a hundred femtoseconds.
    """
    steps = given.steps or 100
    frozen = (given.out / "model.pb").absolute()
    if not frozen.exists():
        raise SystemExit(f"{frozen} is missing; train dp_water with `dp --tf train`, and `dp --tf freeze -o {frozen}`")
    model, fast, small = (frozen.with_name(name) for name in ("model.dp", "fast.dp", "compressed.pb"))
    dp = str(given.peer.parent / "dp")
    script = str(inputs(given, 1, 1, given.out, 1).absolute())
    compress = [sys.executable, "-m", "zoo.checkpoint", "compress", f"from={model}", f"to={fast}", "min_distance_a=0.7"]
    for target, command in (
        (model, [dp, "convert-backend", str(frozen), str(model)]),
        (fast, compress),
        (small, [dp, "--tf", "compress", "-i", str(frozen), "-o", str(small), "-t", script]),
    ):
        if not target.exists():
            subprocess.run(command, check=True, env=environment(given), cwd=Path.cwd())
    place = str((given.data / "water/data_3").absolute())
    found = {}
    for name, python, script, file in (
        ("ours", sys.executable, OURS, model),
        ("ours compressed", sys.executable, OURS, fast),
        ("tf", str(given.peer), THEIRS, frozen),
        ("tf compressed", str(given.peer), THEIRS, small),
    ):
        words = [python, "-c", script, place, str(file), str(steps)]
        said = subprocess.run(words, check=True, capture_output=True, text=True, env=environment(given)).stdout
        wall, cpu = map(float, said.split("RESULT")[1].split())
        found[name] = {"step_s": wall, "processor_s_per_step": cpu}
        print(f"{name:<16}  step_s {wall:.4f}  processor_s_per_step {cpu:.4f}", flush=True)
    return found


def training(
    given: argparse.Namespace, name: str, steps: int, seed: int, evaluate: int, folder: str
) -> tuple[list[str], Path]:
    """The command of one training, and the folder that it runs in."""
    place = (given.out / folder).absolute()
    place.mkdir(parents=True, exist_ok=True)
    if name == "ours":
        words = [
            "recipe=dp_water",
            "cluster=local",
            "resume=never",
            f"data_dir={given.data.absolute()}",
            f"run_dir={place}",
        ]
        words += [f"seed={seed}", "log_every=1", f"eval_every={evaluate}", f"recipe.training.steps={steps}"]
        words += [f"recipe.optimizer.decay_steps={max(1, steps // 20)}", f"checkpoint_every={steps}"]
        return [sys.executable, "-m", "zoo.train", *words], place
    file = inputs(given, steps, seed, place, SHOWN if evaluate > steps else evaluate)
    return [str(given.peer.parent / "dp"), f"--{name}", "train", str(file), "--skip-neighbor-stat"], place


def inputs(given: argparse.Namespace, steps: int, seed: int, folder: Path, shown: int) -> Path:
    """deepmd-kit's input for the hyper-parameters of dp_water."""
    water = [str((given.data / f"water/data_{number}").absolute()) for number in range(4)]
    descriptor = {"type": "se_e2_a", "sel": [46, 92], "rcut": 6.0, "rcut_smth": 0.5, "neuron": [25, 50, 100]}
    descriptor |= {"axis_neuron": 16, "resnet_dt": False, "type_one_side": True, "precision": "float64", "seed": seed}
    fitting = {"neuron": [240, 240, 240], "resnet_dt": True, "precision": "float64", "seed": seed}
    loss = {"start_pref_e": 0.02, "limit_pref_e": 1, "start_pref_f": 1000, "limit_pref_f": 1}
    tree = {
        "model": {"type_map": ["O", "H"], "descriptor": descriptor, "fitting_net": fitting},
        "learning_rate": {"type": "exp", "start_lr": 1e-3, "stop_lr": 3.51e-8, "decay_steps": max(1, steps // 20)},
        "loss": {"type": "ener", **loss, "start_pref_v": 0, "limit_pref_v": 0},
        "training": {
            "training_data": {"systems": water[:3], "batch_size": 1},
            "validation_data": {"systems": water[3:], "batch_size": 1, "numb_btch": 1 if shown == SHOWN else 80},
            "numb_steps": steps,
            "seed": seed,
            "disp_freq": shown,
            "save_freq": max(steps, 1),
        },
    }
    file = folder / "input.json"
    file.write_text(json.dumps(tree, indent=2))
    return file


def watched(given: argparse.Namespace, command: list[str], folder: Path) -> tuple[list[tuple[int, float]], float]:
    """Runs a training; the steps it told of with the seconds since the start, and the processor's seconds."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    inside = Path.cwd() if "zoo.train" in command else folder
    process = subprocess.Popen(
        command, cwd=inside, env=environment(given), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seen, lines = [], []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        step = re.search(r"(?:^step|Batch)\s+(\d+)", line)
        if step and (not seen or seen[-1][0] != int(step[1])):
            seen.append((int(step[1]), time.perf_counter() - begin))
    if process.wait():
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{''.join(lines[-20:])}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seen, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def errors(file: Path) -> dict[int, float]:
    """rmse_f_val by step."""
    lines = file.read_text().splitlines()
    column = lines[0].lstrip("#").split().index("rmse_f_val")
    return {int(line.split()[0]): float(line.split()[column]) for line in lines if not line.startswith("#")}


def environment(given: argparse.Namespace) -> dict[str, str]:
    count = str(given.threads)
    names = ("OMP_NUM_THREADS", "DP_INTRA_OP_PARALLELISM_THREADS", "TF_NUM_INTRAOP_THREADS")
    return {**os.environ, **dict.fromkeys(names, count), "DP_INTER_OP_PARALLELISM_THREADS": "1", "JAX_PLATFORMS": "cpu"}


if __name__ == "__main__":
    sys.exit(main())
