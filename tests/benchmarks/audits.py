"""Predictions held against compiled programs, for recipes x clusters x strategies at full size.

    python -m tests.benchmarks.audits [--recipes resnet50 ...] [--clusters emulated dcu32] [--strategies auto data ...] [--out FILE]

Every pair is compiled ahead of time in a process of its own with as many virtual CPU devices as the cluster has, which takes
minutes; results are kept in FILE (JSON lines) and a pair that is there is not compiled again. Ends with exit code 1 if an audit
failed.
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

RECIPES = ("resnet50", "resnet152", "resnet230", "resnet302")
CLUSTERS = ("emulated", "dcu32")
STRATEGIES = ("auto", "data", "fsdp", "tensor")


def audited(recipe: str, cluster: str, strategy: str) -> dict[str, object]:
    """Plans, compiles and audits one pair in this process, which must not have started JAX yet."""
    from zoo.clusters import build
    from zoo.config import compose

    overrides = [f"recipe={recipe}", f"cluster={cluster}", f"strategy={strategy}"]
    config = compose(overrides + (["cluster.n=8"] if cluster == "emulated" else []))
    described = build(config.cluster)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={described.num_devices}"
    import flowaware_core as fa
    from recipes.resnet import ResNetRecipe

    task = ResNetRecipe(config.recipe, config.data_dir).task()
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


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--clusters", nargs="+", default=CLUSTERS)
    parser.add_argument("--strategies", nargs="+", default=STRATEGIES)
    parser.add_argument("--out", type=Path, default=Path("audits.jsonl"))
    parser.add_argument("--one", nargs=3, metavar=("RECIPE", "CLUSTER", "STRATEGY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        print(json.dumps(audited(*arguments.one)))
        return 0
    done = {}
    if arguments.out.exists():
        for line in arguments.out.read_text().splitlines():
            entry = json.loads(line)
            done[entry["recipe"], entry["cluster"], entry["strategy"]] = entry
    failed = 0
    for pair in itertools.product(arguments.recipes, arguments.clusters, arguments.strategies):
        if pair not in done:
            command = [sys.executable, "-m", "tests.benchmarks.audits", "--one", *pair]
            environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
            if run.returncode:
                print(*pair, "failed to compile", flush=True)
                failed += 1
                continue
            done[pair] = json.loads(run.stdout.splitlines()[-1])
            with arguments.out.open("a") as file:
                file.write(json.dumps(done[pair]) + "\n")
        failed += not done[pair]["ok"]
        print(line_of(done[pair]), flush=True)
    return 1 if failed else 0


def line_of(entry: dict[str, object]) -> str:
    """One pair in one line: predicted over compiled, per kind and for memory."""
    name = f"{entry['recipe']:<10} {entry['cluster']:<9} {entry['strategy']:<7}"
    if "does_not_fit" in entry:
        return f"{name} does not fit"
    ratios = []
    for kind, sides in entry["collectives"].items():  # type: ignore[attr-defined]
        predicted, compiled = sides["predicted"]["bytes"], sides["compiled"]["bytes"]
        ratios.append(f"{kind} {predicted / 2**20:.2f}/{compiled / 2**20:.2f} MiB")
    memory = entry["memory"]
    ratios.append(f"memory {memory['predicted'] / 2**30:.2f}/{memory['compiled'] / 2**30:.2f} GiB")  # type: ignore[index]
    verdict = "ok" if entry["ok"] else f"FAILED {entry['findings']}"
    return f"{name} {'  '.join(ratios)}  compiled in {entry['compile_s']:.0f} s  {verdict}"


if __name__ == "__main__":
    sys.exit(main())
