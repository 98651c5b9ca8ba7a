"""How close to the best of its space the plan of every recipe is, on every cluster, and what the hand-written plans would cost.

    python -m tests.benchmarks.gaps [--recipes resnet50 ...] [--clusters dcu32 gpu16 h200x8] [--axes N] [--data DIR] [--out FILE]

A recipe has a process of its own; results are kept in FILE (JSON lines) and what is there is not planned again. Prints per pair the
certified gap, the decimal logarithm of the size of the space, the number of meshes, the seconds of the search among the processor
seconds of the planning as a whole, the predicted step of the plan, what of it runs when, and the step of the best template for the
same schedule. With `--axes 0` the space is that of all meshes, else of those of at most so many axes.
Ends with exit code 1 where a gap is above 1 % or not certified, or a template is better.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CLUSTERS = ("dcu32", "gpu16", "h200x8")
MOST = 0.01


def planned(recipe: str, clusters: list[str], data: str, axes: int) -> list[dict[str, Any]]:
    """All clusters for one recipe, in this process."""
    import flowaware_core as fa
    from flowaware_core.search.strategies import TEMPLATES
    from zoo.clusters import build
    from zoo.config import compose
    from zoo.training.job import load

    config = compose([f"recipe={recipe}", f"cluster={clusters[0]}", *([f"data_dir={data}"] if data else [])])
    task = load(config.recipe, config.data_dir).task()
    found = []
    for name in clusters:
        cluster = build(compose([f"recipe={recipe}", f"cluster={name}"]).cluster)
        begin = time.process_time()
        entry: dict[str, Any] = {"recipe": recipe, "cluster": name, "steps_s": {"auto": None}}
        try:
            plan = fa.plan(task, cluster, beside=tuple(TEMPLATES), axes=axes or None)
        except fa.DoesNotFit as error:
            found.append({**entry, "why": str(error)})
            continue
        entry["steps_s"] = {other.strategy: other.step_s if other.feasible else None for other in plan.alternatives}
        entry["steps_s"]["auto"] = plan.predicted.step_s
        entry |= {
            "operators": plan.operators,
            "gap": plan.gap,
            "digits_of_the_space": plan.searched["digits"],
            "meshes": plan.searched["meshes"],
            "mesh": list(plan.axes.values()),
            "search_s": plan.seconds["search"],
            "processor_s": time.process_time() - begin,
            "schedule": plan.schedule,
            "memory_bytes": plan.predicted.memory["total"],
        }
        found.append(entry)
    return found


def off(entry: dict[str, Any]) -> str:
    """What is wrong with a pair; "" where nothing is."""
    steps = {name: step for name, step in entry["steps_s"].items() if step is not None}
    if not steps:
        return ""  # nothing fits
    if "auto" not in steps or steps["auto"] > min(steps.values()) * (1 + 1e-9):
        return "a template is better"
    return "" if entry["gap"] is not None and entry["gap"] <= MOST else "gap"


def line_of(entry: dict[str, Any]) -> str:
    steps = entry["steps_s"]
    name = f"{entry['recipe']:<14} {entry['cluster']:<7}"
    if steps["auto"] is None:
        return f"{name} does not fit"
    gap, schedule = entry["gap"], entry["schedule"]
    hand = {name: step for name, step in steps.items() if step is not None and name != "auto"}
    best = min(hand, key=lambda one: hand[one]) if hand else ""
    beside = f"best by hand {best} {hand[best] * 1e3:.2f} ms" if hand else "nothing made by hand fits"
    parts = f", {schedule['micro_batches']} micro-batches" if schedule["micro_batches"] > 1 else ""
    again = "".join(f", {kind} keeps {kept}" for kind, kept in schedule["recompute"].items())
    return (
        f"{name} gap {'-' if gap is None else f'{100 * gap:.3f} %':>9}  10^{entry['digits_of_the_space']:<5} "
        f"{entry['meshes']} meshes  {entry['search_s']:5.2f} s of {entry['processor_s']:5.2f} processor seconds  "
        f"step {steps['auto'] * 1e3:.2f} ms{parts}{again}, {beside}  {off(entry).upper() or 'ok'}"
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+")
    parser.add_argument("--clusters", nargs="+", default=list(CLUSTERS))
    parser.add_argument("--axes", type=int, default=3, help="the most axes of a mesh; 0 for all meshes")
    parser.add_argument("--data", default="", help="the data of recipes whose sizes come from them")
    parser.add_argument("--out", type=Path, default=Path("gaps.jsonl"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        print(json.dumps(planned(arguments.one, arguments.clusters, arguments.data, arguments.axes)))
        return 0
    from zoo.config import choices

    entries: list[dict[str, Any]] = []
    if arguments.out.exists():
        entries = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    done = {(entry["recipe"], entry["cluster"]): entry for entry in entries}
    failed = 0
    for recipe in arguments.recipes or choices("recipe"):
        missing = [name for name in arguments.clusters if (recipe, name) not in done]
        if missing:
            command = [sys.executable, "-m", "tests.benchmarks.gaps", "--one", recipe, "--clusters", *missing]
            command += ["--axes", str(arguments.axes)]
            command += ["--data", arguments.data] if arguments.data else []
            run = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=False
            )
            if run.returncode:
                print(f"{recipe:<14} failed", flush=True)
                failed += 1
                continue
            for entry in json.loads(run.stdout.splitlines()[-1]):
                done[entry["recipe"], entry["cluster"]] = entry
                with arguments.out.open("a") as file:
                    file.write(json.dumps(entry) + "\n")
        for name in arguments.clusters:
            entry = done[recipe, name]
            failed += bool(off(entry))
            print(line_of(entry), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
