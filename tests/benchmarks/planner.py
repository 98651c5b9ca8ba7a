"""How long planning takes, how close to the best it is, and what hand-written plans would cost, side by side.

    python -m tests.benchmarks.planner [CASE ...] [--strategies data fsdp ...] [--axes N] [--out FILE]

A case is RECIPE:CLUSTER of the zoo, or `unrolled` or `scanned`: a training step of a decoder of 8 billion parameters in 32 layers
(the sizes of Llama 3 8B) on 8 nodes of 8 cards. Each case runs in a process of its own. A table comes first, then an object
per case. Seconds are of this machine; steps and memory are predictions of the cost model.

FlowAware's paper needs 38.5 / 58.2 / 85.5 s to search ResNet-152 / -230 / -302, Alpa 127.7 / 199.3 / 264.1 s (Zeng et al., 2025);
meta-pytorch/autoparallel needs 46.8 s for Llama 3 8B on 64 devices (its README).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CASES = ("resnet152:dcu32", "resnet230:dcu32", "resnet302:dcu32", "unrolled", "scanned")


def measured(case: str, strategies: list[str], axes: int) -> dict[str, Any]:
    """One case in this process."""
    import flowaware_core as fa
    from flowaware_core.program import Program
    from flowaware_core.search.strategies import Planner

    task, cluster = decoder(case == "scanned") if ":" not in case else zoo(case)
    begin, cpu = time.perf_counter(), _cpu_s()
    program = Program.of(task)
    middle, cpu_middle = time.perf_counter(), _cpu_s()
    planner = Planner(program.graph, program.structure, cluster, axes=axes)
    result = planner.plan("auto")
    end, cpu_end = time.perf_counter(), _cpu_s()
    best = result.best
    rows = {"auto": _row(best)} | {name: _row(planner.plan(name).best) for name in strategies if name != "auto"}
    assert set(rows) <= set(fa.STRATEGIES)
    return {
        "case": case,
        "operators": program.graph.num_operators,
        "nodes": planner.outline.count,
        "different_nodes": len(planner.outline.repeats.nodes),
        "seconds": {
            "capture": program.capture_s,
            "analyse": program.analyse_s,
            "search": end - middle,
            "total": end - begin,
            "search_cpu": cpu_end - cpu_middle,
            "total_cpu": cpu_end - cpu,
        },
        "again": again(task, cluster, axes),
        "gap": result.gap,
        "meshes": result.meshes,
        "digits_of_the_space": round(result.digits),
        "mesh": dict(zip(best.mesh.names, best.mesh.sizes, strict=True)),
        "strategies": rows,
    }


def again(task: Any, cluster: Any, axes: int) -> dict[str, Any]:
    """Seconds of planning once more where the cluster has lost half of its outermost members, with what is known of the task; none
    where it does not fit there.
    """
    import flowaware_core as fa

    outermost = cluster.levels[0]
    if outermost.size < 3:
        return {}
    smaller = dataclasses.replace(
        cluster, levels=(dataclasses.replace(outermost, size=outermost.size // 2), *cluster.levels[1:])
    )
    prepared = fa.Prepared(task)
    fa.plan(prepared, cluster, beside=(), axes=axes)
    begin, cpu = time.perf_counter(), _cpu_s()
    try:
        fa.plan(prepared, smaller, beside=(), axes=axes)
    except fa.DoesNotFit:
        return {}
    return {"total": time.perf_counter() - begin, "total_cpu": _cpu_s() - cpu}


def _cpu_s() -> float:
    """Seconds of processor time of this process: what wall-clock time would be on an idle core."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _row(candidate: Any) -> dict[str, Any]:
    found = candidate.estimate
    return {"step_s": found.step_s, "peak_bytes_per_device": found.usage.total, "fits": candidate.fits}


def zoo(case: str) -> tuple[Any, Any]:
    """The task of a recipe and the cluster it shall run on."""
    from zoo.clusters import build
    from zoo.config import compose
    from zoo.training.job import load

    recipe, cluster = case.split(":")
    config = compose([f"recipe={recipe}", f"cluster={cluster}"])
    return load(config.recipe, config.data_dir).task(), build(config.cluster)


LAYERS, WIDTH, HEADS, KEY_HEADS, INNER, WORDS = 32, 4096, 32, 8, 14336, 128256
BATCH, LENGTH = 64, 2048


def decoder(scanned: bool) -> tuple[Any, Any]:
    """A step of Adam on a decoder, and 64 cards."""
    import jax
    import jax.numpy as jnp
    import optax

    import flowaware_core as fa

    size = WIDTH // HEADS
    shapes = {
        "query": (WIDTH, HEADS, size),
        "key": (WIDTH, KEY_HEADS, size),
        "value": (WIDTH, KEY_HEADS, size),
        "out": (HEADS, size, WIDTH),
        "gate": (WIDTH, INNER),
        "up": (WIDTH, INNER),
        "down": (INNER, WIDTH),
        "norm": (2, WIDTH),
    }

    def normed(x: Any, scale: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale

    def layer(x: Any, w: Any) -> Any:
        y = normed(x, w["norm"][0])
        q, k, v = (jnp.einsum("bld,dhe->blhe", y, w[name]) for name in ("query", "key", "value"))
        q = q.reshape(*q.shape[:2], KEY_HEADS, HEADS // KEY_HEADS, size)
        scores = jnp.einsum("bqhge,bkhe->bhgqk", q, k) / size**0.5
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e30)
        mixed = jnp.einsum("bhgqk,bkhe->bqhge", jax.nn.softmax(scores, axis=-1), v)
        x = x + jnp.einsum("blhe,hed->bld", mixed.reshape(*x.shape[:2], HEADS, size), w["out"])
        y = normed(x, w["norm"][1])
        return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"]

    def loss(params: Any, batch: Any) -> Any:
        x = params["words"][batch["tokens"]]
        if scanned:
            x = jax.lax.scan(lambda h, w: (layer(h, w), None), x, params["layers"])[0]
        else:
            for w in params["layers"]:
                x = layer(x, w)
        logits = jax.nn.log_softmax(normed(x, params["last"]) @ params["head"])
        return -jnp.mean(jnp.take_along_axis(logits, batch["next"][..., None], axis=-1))

    optimizer = optax.adam(1e-4)

    def step(state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state["params"], batch)
        updates, opt = optimizer.update(grads, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, value

    def abstract(shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    one = {name: abstract((LAYERS, *shape) if scanned else shape) for name, shape in shapes.items()}
    layers = one if scanned else [dict(one) for _ in range(LAYERS)]
    ends = {"words": abstract((WORDS, WIDTH)), "last": abstract((WIDTH,)), "head": abstract((WIDTH, WORDS))}
    params = {**ends, "layers": layers}
    state = {"params": params, "opt": jax.eval_shape(optimizer.init, params)}
    batch = {"tokens": abstract((BATCH, LENGTH), "int32"), "next": abstract((BATCH, LENGTH), "int32")}
    card = fa.Device("card", 140 * fa.GIB, {"float32": 4.94e14}, 4.8e12)
    levels = (fa.Level("node", 8, 5e10, 5e-6), fa.Level("card", 8, 4.5e11, 3e-6))
    return fa.Task(step, (state, batch), carried={0: 0}, batch=(1,), name="decoder"), fa.Cluster(
        "cards64", card, levels
    )


def table(entries: list[dict[str, Any]]) -> str:
    """All cases, a line each, and below them what each strategy's step would take."""
    lines = [
        f"{'case':<18} {'search s':>9} {'total s':>8} {'search cpu s':>13} {'gap':>9} {'space':>9} {'nodes':>12}  mesh"
    ]
    for entry in entries:
        spent, gap = entry["seconds"], entry["gap"]
        nodes = f"{entry['different_nodes']} of {entry['nodes']}"
        lines.append(
            f"{entry['case']:<18} {spent['search']:>9.2f} {spent['total']:>8.2f} {spent['search_cpu']:>13.2f}"
            f" {'-' if gap is None else f'{gap:.2e}':>9} {'10^' + str(entry['digits_of_the_space']):>9} {nodes:>12}"
            f"  {' x '.join(f'{name} {size}' for name, size in entry['mesh'].items())}"
        )
    for entry in entries:
        lines.append(f"\n{entry['case']}: predicted step and memory of a device")
        for name, row in entry["strategies"].items():
            fits = "" if row["fits"] else "  does not fit"
            lines.append(
                f"  {name:<12} {row['step_s'] * 1e3:>10.2f} ms {row['peak_bytes_per_device'] / 2**30:>8.2f} GiB{fits}"
            )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--strategies", nargs="*", default=["data", "fsdp", "tensor"])
    parser.add_argument("--axes", type=int, default=3, help="the most axes of a mesh")
    parser.add_argument("--out", type=Path, help="a file for the JSON objects, beside the standard output")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.one:
        print(json.dumps(measured(arguments.one, arguments.strategies, arguments.axes)))
        return 0
    entries = []
    for case in arguments.cases:
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.planner",
            "--one",
            case,
            "--axes",
            str(arguments.axes),
            "--strategies",
            *arguments.strategies,
        ]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
        entries.append(json.loads(run.stdout.splitlines()[-1]))
    text = "\n".join(json.dumps(entry) for entry in entries)
    print(table(entries), text, sep="\n\n")
    if arguments.out:
        arguments.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
