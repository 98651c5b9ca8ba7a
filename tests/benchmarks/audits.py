"""Predictions held against compiled programs, for recipes x clusters x strategies at full size.

    python -m tests.benchmarks.audits [--recipes resnet50 ...] [--clusters emulated dcu32] [--strategies auto data ...]
        [--data DIR] [--out FILE]

Without options: the chosen plan of every recipe on both clusters, and three runners-up of four pairs. Every pair is compiled ahead
of time in a process of its own with as many virtual CPU devices as the cluster has, which takes minutes; results are kept in FILE
(JSON lines) and a pair that is there is not compiled again. A pair is held to what is promised, which is stricter than what lets a
run's audit pass: bytes within 5 % of what was compiled for each kind, memory within 10 %. Ends with exit code 1 if one is off.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

CLUSTERS = ("emulated", "dcu32")
# What "auto" was preferred to, of which at least one is not data-parallel.
RUNNERS_UP = ("fsdp", "tensor", "spatial")
NAMED = (("resnet50", "emulated"), ("resnet152", "dcu32"), ("bert_tiny", "dcu32"), ("t5_small", "emulated"))
BYTES_TOLERANCE, BYTES_FLOOR = 0.05, 64 * 1024
MEMORY_TOLERANCE, MEMORY_FLOOR = 0.10, 8 * 2**20


def audited(recipe: str, cluster: str, strategy: str, data: str) -> dict[str, object]:
    """Plans, compiles and audits one pair in this process, which must not have started JAX yet."""
    from zoo.clusters import build
    from zoo.config import compose

    overrides = [f"recipe={recipe}", f"cluster={cluster}", f"strategy={strategy}"]
    overrides += [f"data_dir={data}"] if data else []
    config = compose(overrides + (["cluster.n=8"] if cluster == "emulated" else []))
    described = build(config.cluster)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={described.num_devices}"
    import flowaware_core as fa
    from zoo.training.job import load

    task = load(config.recipe, config.data_dir).task()
    begin = time.perf_counter()
    try:
        plan = fa.plan(task, described, strategy=strategy)
    except fa.DoesNotFit as error:
        return {"recipe": recipe, "cluster": cluster, "strategy": strategy, "ok": True, "does_not_fit": str(error)}
    planned = time.perf_counter()
    step = fa.apply(plan, task)
    audit = fa.audit(step.compile(optimise=False), plan, step)
    return {
        "recipe": recipe,
        "cluster": cluster,
        "strategy": strategy,
        "plan_s": planned - begin,
        "compile_s": time.perf_counter() - planned,
        **audit.to_json(),
    }


def verdict(entry: dict[str, object]) -> list[str]:
    """What is further off than promised; a kind that nobody planned may move a hundredth of all bytes."""
    if "does_not_fit" in entry:
        return []
    kinds: dict[str, dict[str, dict[str, int]]] = entry["collectives"]  # type: ignore[assignment]
    total = sum(sides["compiled"]["bytes"] for sides in kinds.values())
    off = []
    for kind, sides in kinds.items():
        predicted, compiled = sides["predicted"]["bytes"], sides["compiled"]["bytes"]
        allowed = BYTES_TOLERANCE * compiled if predicted else 0.01 * total
        if abs(predicted - compiled) > max(allowed, BYTES_FLOOR):
            off.append(kind)
    memory: dict[str, int] = entry["memory"]  # type: ignore[assignment]
    if abs(memory["predicted"] - memory["compiled"]) > max(MEMORY_TOLERANCE * memory["compiled"], MEMORY_FLOOR):
        off.append("memory")
    return off


def pairs(arguments: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(recipe, cluster, strategy) of everything that was asked for."""
    from zoo.config import choices

    names = arguments.recipes or choices("recipe")
    found = list(itertools.product(names, arguments.clusters, arguments.strategies or ["auto"]))
    if not (arguments.recipes or arguments.strategies):
        found += [(*pair, other) for pair in NAMED for other in RUNNERS_UP]
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+")
    parser.add_argument("--clusters", nargs="+", default=CLUSTERS)
    parser.add_argument("--strategies", nargs="+")
    parser.add_argument("--data", default="", help="the data of recipes whose sizes come from them")
    parser.add_argument("--out", type=Path, default=Path("audits.jsonl"))
    parser.add_argument("--seconds", type=float, default=1800, help="the most that one pair may take")
    parser.add_argument("--one", nargs=3, metavar=("RECIPE", "CLUSTER", "STRATEGY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        print(json.dumps(audited(*arguments.one, arguments.data)))
        return 0
    done = {}
    if arguments.out.exists():
        for line in arguments.out.read_text().splitlines():
            entry = json.loads(line)
            done[entry["recipe"], entry["cluster"], entry["strategy"]] = entry
    failed = 0
    for pair in pairs(arguments):
        if pair not in done:
            entry = compiled(pair, arguments)
            if entry is None:
                print(*pair, "failed to compile", flush=True)
                failed += 1
                continue
            done[pair] = entry
            with arguments.out.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        failed += bool(verdict(done[pair]))
        print(line_of(done[pair]), flush=True)
    return 1 if failed else 0


def compiled(pair: tuple[str, str, str], arguments: argparse.Namespace) -> dict[str, object] | None:
    """The audit of a pair, made in a process of its own; None where that failed."""
    command = [sys.executable, "-m", "tests.benchmarks.audits", "--data", arguments.data, "--one", *pair]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    try:
        run = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env=environment, check=False, timeout=arguments.seconds
        )
    except subprocess.TimeoutExpired:
        return None
    return None if run.returncode else json.loads(run.stdout.splitlines()[-1])


def line_of(entry: dict[str, object]) -> str:
    """One pair in one line: predicted over compiled, per kind and for memory."""
    name = f"{entry['recipe']:<14} {entry['cluster']:<8} {entry['strategy']:<7}"
    if "does_not_fit" in entry:
        return f"{name} does not fit"
    ratios = []
    for kind, sides in entry["collectives"].items():  # type: ignore[attr-defined]
        predicted, compiled = sides["predicted"]["bytes"], sides["compiled"]["bytes"]
        ratios.append(f"{kind} {predicted / 2**20:.2f}/{compiled / 2**20:.2f} MiB")
    memory = entry["memory"]
    ratios.append(f"memory {memory['predicted'] / 2**20:.1f}/{memory['compiled'] / 2**20:.1f} MiB")  # type: ignore[index]
    off = verdict(entry)
    return f"{name} {'  '.join(ratios)}  compiled in {entry['compile_s']:.0f} s  {'OFF: ' + ', '.join(off) if off else 'ok'}"


if __name__ == "__main__":
    sys.exit(main())
