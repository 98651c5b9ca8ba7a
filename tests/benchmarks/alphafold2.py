"""AlphaFold2 beside the original (google-deepmind/alphafold, commit c77e5d2) on this machine: compilation, inference, memory.

    python -m tests.benchmarks.alphafold2 network --peer PYTHON --original DIR [--residues 64 128] [--blocks 4 48] [--runs 5]
    python -m tests.benchmarks.alphafold2 set     --peer PYTHON --original DIR --data PROTEINS [--blocks 2] [--minutes 9]

PYTHON and DIR are as tests/parity/alphafold2_reference.py wants them. Both sides have the same jax, the same drawn parameters'
shapes and features of the same sizes; each is a process of its own. In `network` they run in turns, so that what else happens on
the machine meets both. `set` folds twelve proteins of PROTEINS (fasta/NAME.fasta and msa/NAME) with `zoo.predict`, twice, and
times the original's network on the same sizes: each protein in a program of its own, and sorted with programs padded by ten
residues, as ColabFold does; ours also reads alignments and writes results. What was measured is kept in OUT/set.json; once
`--minutes` have passed nothing new is begun, and the same command goes on later. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROWS, FURTHER = 64, 128
MODEL = "model_1_ptm"

# Each side defines `lowered()`, which gives the lowered program and its arguments.
OURS = """
from zoo.models.alphafold2.config import changed, preset
from zoo.models.alphafold2.convert import draw
from zoo.models.alphafold2.model import AlphaFold2
def lowered():
    model = AlphaFold2(changed(preset(name), changes))
    shapes = model.feature_shapes(residues, rows, further)
    filled = {key: fill(key, shape.shape, shape.dtype) for key, shape in shapes.items()}
    args = draw(model.parameter_shapes(), 0), filled, model.first_previous(residues)
    began()
    return jax.jit(model.iterate).lower(*args), args
"""
THEIRS = """
from tests.parity.alphafold2_reference import configured, monomer_batch, restore_clip, transformed
restore_clip()
def lowered():
    network = transformed(configured(name, changes | {"model.num_recycle": 0}))
    batch = {key: np.stack([fill(key, x.shape[1:], x.dtype)]) for key, x in monomer_batch(residues, rows, further).items()}
    key = jax.random.PRNGKey(0)
    shapes = jax.eval_shape(network.init, key, batch)
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(0, max(x.shape[:-1] or (1,)) ** -0.5, x.shape).astype(x.dtype), shapes)
    began()
    return jax.jit(network.apply).lower(params, key, batch), (params, key, batch)
"""
# One program after another, each for so many proteins.
EACH = """
for residues, proteins in sizes:
    program, args = lowered()
    compiled = program.compile()
    for _ in range(proteins):
        jax.block_until_ready(compiled(*args))
    say(seconds=time.perf_counter() - marks[-1][0])
"""
FOLD = """
import json, sys, time
import jax, jax.monitoring
misses = []
jax.monitoring.register_event_listener(lambda name, **_: misses.append(name) if name.endswith("cache_misses") else None)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
from zoo.errors import exit_code
from zoo.predict import main
begun = time.perf_counter()
code = exit_code(main)(json.loads(sys.argv[1]))
print("RESULT", json.dumps({"code": code, "seconds": time.perf_counter() - begun, "compiled": len(misses)}), flush=True)
"""
PROTEINS = (
    "5awl_A", "1l2y_A", "1gcn_A", "4ot59", "2q2k_A", "ofquery", "5ahw_A", "T1078", "1a00_A", "102m_A", "6kwc_A", "7zzx_B",
)  # fmt: skip
PADDING = 10  # residues
SIDE = """
import json, os, resource, sys, time
import jax, numpy as np
name, changes, residues, rows, further = json.loads(sys.argv[1])
def fill(key, shape, dtype):
    rng = np.random.default_rng(len(shape))
    if "mask" in key or "exists" in key:
        return np.ones(shape, dtype)
    return (rng.integers(0, 3, shape) if np.issubdtype(dtype, np.integer) else rng.uniform(0, 1, shape)).astype(dtype)
def clock():
    return np.array([time.perf_counter(), time.process_time()])
marks = []
def began():
    marks.append(clock())
def say(**facts):
    print("RESULT", json.dumps(facts), flush=True)
"""
LOOP = """
program, args = lowered()
marks.append(clock())
compiled = program.compile()
marks.append(clock())
memory = compiled.memory_analysis()
say(lower_s=list(marks[1] - marks[0]), compile_s=list(marks[2] - marks[1]), program_bytes=memory.temp_size_in_bytes)
args = jax.device_put(args)
jax.block_until_ready(compiled(*args))
say(peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
for line in sys.stdin:
    before = clock()
    jax.block_until_ready(compiled(*args))
    say(run_s=list(clock() - before))
"""


class Side:
    """One implementation in a process of its own, which computes when it is told to."""

    def __init__(self, python: Path, source: str, path: list[Path], case: list[Any], loop: str = LOOP) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(map(str, path))}
        self._process = subprocess.Popen(
            [str(python), "-c", SIDE + source + loop, json.dumps(case)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.facts = self.answer()

    def answer(self) -> dict[str, Any]:
        """What the process says next."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("RESULT"):
                return json.loads(line.removeprefix("RESULT"))
        raise SystemExit("one side ended before its result; its message is above")

    def run(self) -> list[float]:
        """Seconds on the clock and of the processor of one more pass."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return self.answer()["run_s"]

    def stop(self) -> None:
        """Whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def network(given: argparse.Namespace) -> dict[str, Any]:
    """Lowering, compilation, a pass without recycling, and peak memory, in float32."""
    found: dict[str, Any] = {}
    for residues in given.residues:
        for blocks in given.blocks:
            found[f"{residues} residues, {blocks} blocks"] = compared(given, residues, blocks)
    return found


def compared(given: argparse.Namespace, residues: int, blocks: int) -> dict[str, Any]:
    changes = {"model.embeddings_and_evoformer.evoformer_num_block": blocks}
    case = [MODEL, changes, residues, ROWS, FURTHER]
    sides = {
        "ours": Side(Path(sys.executable), OURS, [ROOT], case),
        "original": Side(given.peer, THEIRS, [given.original, ROOT], case),
    }
    for side in sides.values():
        side.facts |= side.answer()
    runs: dict[str, list[list[float]]] = {name: [] for name in sides}
    for _ in range(given.runs):
        for name, side in sides.items():
            runs[name].append(side.run())
    rows = {}
    print(f"{residues} residues, {blocks} blocks: seconds on the clock (of the processor)")
    for name, side in sides.items():
        side.close()
        wall, cpu = zip(*runs[name], strict=True)
        row = side.facts | {"run_s": [statistics.median(wall), statistics.median(cpu)]}
        rows[name] = row
        times = "  ".join(
            f"{what} {row[what][0]:6.2f} ({row[what][1]:6.2f})" for what in ("lower_s", "compile_s", "run_s")
        )
        sizes = "  ".join(f"{what} {row[what] / 2**20:.0f} MiB" for what in ("program_bytes", "peak_bytes"))
        print(f"  {name:<9} {times}  {sizes}", flush=True)
    return rows


def folded(given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of a whole set: ours from files to files, twice; the original's network alone, by two policies."""
    out, until = given.out.absolute(), time.monotonic() + 60 * given.minutes
    kept = out / "set.json"
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if "ours" not in found:
        shutil.rmtree(out, ignore_errors=True)
        found["ours"] = ours_twice(given, out)
        kept.write_text(json.dumps(found))
    lengths = sorted(len(sequence(given.data / f"fasta/{name}.fasta")) for name in PROTEINS)
    policies = {"protein by protein": [(length, 1) for length in lengths], "padded by ten": padded(lengths)}
    for policy, sizes in policies.items():
        seconds = found.setdefault(policy, [])
        if len(seconds) < len(sizes) and time.monotonic() < until:
            case = [MODEL, shallow(given.blocks[0]), 0, ROWS, FURTHER]
            program = f"{THEIRS}\nsizes = {sizes[len(seconds) :]}"
            side = Side(given.peer, program, [given.original, ROOT], case, EACH)
            answer = side.facts
            while True:
                seconds.append(answer["seconds"])
                kept.write_text(json.dumps(found))
                if len(seconds) == len(sizes) or time.monotonic() > until:
                    break
                answer = side.answer()
            side.stop()
        done = "" if len(seconds) == len(sizes) else " so far; the same command goes on"
        print(f"original, {policy}: {sum(seconds):.1f} s, {len(seconds)} of {len(sizes)} programs{done}", flush=True)
    return found


def sequence(path: Path) -> str:
    return "".join(line for line in path.read_text().split() if not line.startswith(">"))


def shallow(blocks: int) -> dict[str, int]:
    section = "model.embeddings_and_evoformer"
    return {f"{section}.evoformer_num_block": blocks, f"{section}.extra_msa_stack_num_block": blocks}


def ours_twice(given: argparse.Namespace, out: Path) -> dict[str, Any]:
    """From an empty cache of programs, and again with the same cache."""
    (out / "in").mkdir(parents=True)
    for name in PROTEINS:
        shutil.copy(given.data / f"fasta/{name}.fasta", out / "in")
    words = [
        "recipe=alphafold2",
        f"input={out / 'in'}",
        f"models={MODEL}",
        "params=random",
        "recycles=0",
        "plots=false",
    ]
    words += [f"alignments={(given.data / 'msa').absolute()}", f"max_clusters={ROWS}", f"max_further={FURTHER}"]
    words += [f"recipe.model.config.{path}={value}" for path, value in shallow(given.blocks[0]).items()]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": str(out / "programs")}
    found = {}
    for run in ("first", "second"):
        command = [sys.executable, "-c", FOLD, json.dumps([*words, f"output={out / run}"])]
        said = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found[run] = json.loads(said.split("RESULT")[1])
        found[run]["plan"] = next(line for line in said.splitlines() if "of the arithmetic on padding" in line)
        print(f"ours, {run} time: {found[run]}", flush=True)
    return found


def padded(lengths: list[int]) -> list[tuple[int, int]]:
    """(residues, proteins) of each program: a new one where a protein is longer than the program before."""
    sizes: list[tuple[int, int]] = []
    for length in lengths:
        if not sizes or length > sizes[-1][0]:
            sizes.append((length + PADDING, 0))
        sizes[-1] = (sizes[-1][0], sizes[-1][1] + 1)
    return sizes


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("network", "set"))
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--original", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark-alphafold2"))
    parser.add_argument("--residues", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 48])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args(argv)
    found = {"network": network, "set": folded}[given.what](given)
    print(json.dumps({"benchmark": given.what, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
