"""The largest stack of transformer layers whose training step is proven to fit, by bisection on depth.

    python -m tests.benchmarks.max_parameters cluster=dcu32 [--nodes 8] [--optimizer sgd adam] [--gradients]

The stack is T5-1.1's decoder alone at the width of its XXL (4096; 64 heads of 64; gated feed-forward of 10240; 32,128 tokens,
the output matrix its own), a scan over layers; one sequence of 512 tokens a card; state, gradients and arithmetic in float32;
nothing on the host. `fa.plan` chooses shardings and schedule; the step is compiled ahead of time for as many virtual devices,
and it fits when XLA's memory analysis says that arguments, results and temporaries lie within what the cluster's YAML calls
usable. Each point is a process of its own. The last line is JSON. `--gradients` runs the loss of two layers for one sequence and
wants a gradient that is not zero for every parameter.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp

import flowaware_core as fa
from zoo.clusters import build
from zoo.config import compose

WIDTH, HEADS, HEAD, HIDDEN, VOCABULARY, LENGTH, BUCKETS = 4096, 64, 64, 10240, 32128, 512, 32
FARTHEST = 128
# Depths that are looked at are multiples of this: loops of a prime number of rounds cannot be grouped.
STEP = 6


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """Plain gradient descent, or Adam, written out: two lines each."""

    adam: bool
    rate: float = 1e-3

    def init(self, params: Any) -> Any:
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)
        return {"mean": zeros(), "square": zeros()} if self.adam else {}

    def update(self, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
        del params
        if not self.adam:
            return jax.tree.map(lambda g: -self.rate * g, gradients), state
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], gradients)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, state["square"], gradients)
        updates = jax.tree.map(lambda m, s: -self.rate * m / (jnp.sqrt(s) + 1e-8), mean, square)
        return updates, {"mean": mean, "square": square}


def shapes(depth: int) -> dict[str, Any]:
    """Parameters; those of layers are stacked."""
    inner = HEADS * HEAD
    layers = {
        "norm_attention": (WIDTH,),
        "query": (WIDTH, inner),
        "key": (WIDTH, inner),
        "value": (WIDTH, inner),
        "out": (inner, WIDTH),
        "norm_forward": (WIDTH,),
        "gate": (WIDTH, HIDDEN),
        "up": (WIDTH, HIDDEN),
        "down": (HIDDEN, WIDTH),
    }
    rest = {"embedding": (VOCABULARY, WIDTH), "bias": (BUCKETS, HEADS), "norm": (WIDTH,), "head": (WIDTH, VOCABULARY)}
    tree = {**rest, "layers": {name: (depth, *shape) for name, shape in layers.items()}}
    leaf = lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    return jax.tree.map(leaf, tree, is_leaf=lambda value: isinstance(value, tuple))


def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def distances() -> jax.Array:
    """[L, L] bucket of the distance from a query back to a key: exact up to half of the buckets, then logarithmic."""
    far = jnp.maximum(jnp.arange(LENGTH)[:, None] - jnp.arange(LENGTH)[None, :], 0)
    exact = BUCKETS // 2
    log = jnp.log(jnp.maximum(far, 1) / exact) / jnp.log(FARTHEST / exact) * (BUCKETS - exact)
    return jnp.where(far < exact, far, jnp.minimum(exact + log.astype(jnp.int32), BUCKETS - 1))


def layer(x: jax.Array, w: Any, bias: jax.Array) -> jax.Array:
    """One layer on [B, L, WIDTH]; `bias` [HEADS, L, L] hides what comes later too."""
    h = normed(x, w["norm_attention"])
    heads = lambda name: (h @ w[name]).reshape(*h.shape[:2], HEADS, HEAD)
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("query"), heads("key")) + bias
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), heads("value"))
    x = x + mixed.reshape(*h.shape[:2], HEADS * HEAD) @ w["out"]
    h = normed(x, w["norm_forward"])
    return x + (jax.nn.gelu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]


def loss(params: Any, extra: None, batch: Any, key: jax.Array) -> fa.Outcome:
    del extra, key
    known = jax.nn.one_hot(distances(), BUCKETS)
    later = jnp.arange(LENGTH)[:, None] < jnp.arange(LENGTH)[None, :]
    bias = jnp.where(later, -1e9, jnp.einsum("qkn,nh->hqk", known, params["bias"]))
    x = params["embedding"][batch["tokens"]]
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w, bias), None), x, params["layers"])
    logits = normed(x, params["norm"]) @ params["head"]
    chosen = batch["next"][..., None] == jnp.arange(VOCABULARY)
    losses = jax.nn.logsumexp(logits, -1) - jnp.sum(jnp.where(chosen, logits, 0), -1)
    return fa.Outcome({"tokens": fa.Mean(jnp.sum(losses), jnp.float32(losses.size))})


def task(depth: int, rows: int, adam: bool) -> fa.Task:
    training = fa.Training(loss, Optimizer(adam), splits=True)
    params = shapes(depth)
    state = jax.eval_shape(lambda params: training.initial(params, jax.random.key(0)), params)
    words = jax.ShapeDtypeStruct((rows, LENGTH), jnp.int32)
    return training.task(state, {"tokens": words, "next": words}, f"stack of {depth}")


def parameters(depth: int) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(shapes(depth)))


def cluster_of(name: str, nodes: int | None, usable: float | None = None) -> fa.Cluster:
    found = build(compose([f"cluster={name}", "recipe=t5_small"]).cluster)
    if usable is not None:
        found = dataclasses.replace(found, device=dataclasses.replace(found.device, usable_fraction=usable))
    outer = found.levels[0]
    return (
        found
        if nodes is None
        else dataclasses.replace(found, levels=(dataclasses.replace(outer, size=nodes), *found.levels[1:]))
    )


def point(cluster: fa.Cluster, adam: bool, depth: int, strategy: str) -> dict[str, Any]:
    """Plans, compiles and audits one depth in this process, which must not have started JAX's backend yet.

    Where the compiler needs more than was predicted and more than there is, what it needed more is taken off the limit of the
    next plan; and after that the plan is the one that people write by hand.
    """
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={cluster.num_devices}"
    prepared, usable = fa.Prepared(task(depth, cluster.num_devices, adam)), cluster.device.usable_bytes
    found: dict[str, Any] = {"depth": depth, "parameters": parameters(depth), "fits": False}
    limits = [(strategy, usable)]
    for wanted, limit in limits:
        made = audited(prepared, lowered(cluster, limit), wanted)
        if "memory_gib" in made:
            held = made["memory_gib"]
            made["fits"] = held["compiled"] * fa.GIB <= usable
            if not made["fits"] and len(limits) == 1:
                excess = int((held["compiled"] - made["predicted_target_gib"]) * fa.GIB)
                limits += [(strategy, usable - excess), ("fsdp_tensor", usable)]
        elif len(limits) == 1:
            limits.append(("fsdp_tensor", usable))
        if made["fits"] or "memory_gib" not in found:
            found.update(made)
        if made["fits"]:
            break
    return found


def lowered(cluster: fa.Cluster, usable: int) -> fa.Cluster:
    """The cluster with so many bytes usable on each device."""
    memory = -(-usable // cluster.device.usable_fraction)
    return dataclasses.replace(cluster, device=dataclasses.replace(cluster.device, memory_bytes=int(memory)))


def audited(prepared: fa.Prepared, cluster: fa.Cluster, strategy: str) -> dict[str, Any]:
    """One plan, and what the compiler says of it."""
    begin = time.perf_counter()
    try:
        plan = fa.plan(prepared, cluster, strategy=strategy)
    except fa.DoesNotFit as error:
        return {"fits": False, "predicted": str(error)}
    planned = time.perf_counter()
    step = fa.apply(plan, prepared.task)
    audit = fa.audit(step.compile(optimise=False), plan, step)
    assert audit.memory["compiled"] is not None, "the CPU's compiler says what it needs"
    return {
        "strategy": strategy,
        "plan": f"{plan.strategy}; {dict(plan.schedule)}",
        "memory_gib": {side: round((size or 0) / fa.GIB, 3) for side, size in audit.memory.items()},
        "predicted_target_gib": round(plan.predicted.memory["total"] / fa.GIB, 3),
        "collectives": audit.to_json()["collectives"],
        "step_s": plan.predicted.step_s,
        "findings": list(audit.findings),
        "plan_s": round(planned - begin, 1),
        "compile_s": round(time.perf_counter() - planned, 1),
    }


def apart(arguments: argparse.Namespace, nodes: int | None, optimizer: str, depth: int) -> dict[str, Any]:
    """`point` in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.max_parameters", f"cluster={arguments.cluster}", "--strategy"]
    command += [
        arguments.strategy,
        *(["--usable", str(arguments.usable)] if arguments.usable else []),
        "--one",
        optimizer,
        str(depth),
        *(["--nodes", str(nodes)] if nodes else []),
    ]
    run = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=True
    )
    found = json.loads(run.stdout.splitlines()[-1])
    print(f"{optimizer} {nodes or 'all'} nodes", json.dumps(found), flush=True)
    return found


def largest(arguments: argparse.Namespace, nodes: int | None, optimizer: str) -> dict[str, Any]:
    """The deepest stack that fits. Memory grows with depth in a straight line, so that line says where to look next."""
    cluster = cluster_of(arguments.cluster, nodes, arguments.usable)
    usable = cluster.device.usable_bytes / fa.GIB
    low, high, best, points = 0, None, None, []
    step = arguments.step
    depth = max(step, (arguments.depth or likely(cluster, optimizer == "adam")) // step * step)
    while depth > low and (high is None or depth < high):
        found = apart(arguments, nodes, optimizer, depth)
        if "memory_gib" in found:
            points.append((depth, found["memory_gib"]["compiled"]))
        low, best = (depth, found) if found["fits"] else (low, best)
        high = high if found["fits"] else depth
        if high is not None and high - low <= step:
            break
        depth = following(points, usable, low // step, high and high // step, step) * step
    assert best is not None, "not even the shallowest stack fits"
    return {"optimizer": optimizer, "nodes": nodes, **best}


def likely(cluster: fa.Cluster, adam: bool) -> int:
    """A depth at which state and gradients take nine tenths of the memory."""
    held = 4 * (4 if adam else 2)
    count = 0.9 * cluster.device.usable_bytes * cluster.num_devices / held
    return int((count - parameters(0)) / (parameters(1) - parameters(0)))


def following(points: list[tuple[int, float]], usable: float, low: int, high: int | None, step: int) -> int:
    """Where the line through the last points meets what is usable, inside what is still open; in multiples of `step`."""
    if len(points) > 1 and points[-1][0] != points[-2][0] and points[-1][1] > points[-2][1]:
        slope = (points[-1][1] - points[-2][1]) / (points[-1][0] - points[-2][0])
    else:
        slope = points[-1][1] / points[-1][0] if points else 1.0
    guess = int(points[-1][0] + (usable - points[-1][1]) / slope) // step if points else (low + (high or 2 * low)) // 2
    return max(low + 1, min(guess, high - 1 if high is not None else guess))


def gradients() -> dict[str, Any]:
    """Whether every parameter of two layers has a gradient that is not zero."""
    keys = iter(jax.random.split(jax.random.key(0), 64))
    draw = lambda leaf: 0.02 * jax.random.normal(next(keys), leaf.shape) + (leaf.ndim == 1)
    params = jax.tree.map(draw, shapes(2))
    tokens = jax.random.randint(next(keys), (1, LENGTH + 1), 0, VOCABULARY)
    batch = {"tokens": tokens[:, :-1], "next": tokens[:, 1:]}
    found = jax.jit(jax.grad(lambda params: loss(params, None, batch, next(keys)).terms["tokens"].value))(params)
    zero = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(found)
        if not jnp.any(leaf != 0)
    ]
    return {"parameters_without_gradient": zero}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cluster", nargs="?", default="cluster=dcu32", type=lambda word: word.removeprefix("cluster="))
    parser.add_argument("--nodes", nargs="+", type=int, help="instead of the cluster's own number of outermost members")
    parser.add_argument("--optimizer", nargs="+", default=["sgd", "adam"], choices=["sgd", "adam"])
    parser.add_argument("--strategy", default="auto", choices=fa.STRATEGIES)
    parser.add_argument("--depth", type=int, help="where to begin")
    parser.add_argument("--step", type=int, default=STEP, help="depths are multiples of this")
    parser.add_argument("--usable", type=float, help="part of a card's memory that counts, in place of the YAML's")
    parser.add_argument("--gradients", action="store_true", help="the check of gradients alone")
    parser.add_argument("--one", nargs=2, metavar=("OPTIMIZER", "DEPTH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    nodes = arguments.nodes or [None]
    if arguments.gradients:
        found = gradients()
        print(json.dumps(found))
        return 1 if found["parameters_without_gradient"] else 0
    if arguments.one:
        optimizer, depth = arguments.one
        cluster = cluster_of(arguments.cluster, nodes[0], arguments.usable)
        found = point(cluster, optimizer == "adam", int(depth), arguments.strategy)
        print(json.dumps(found))
        return 0
    print(json.dumps([largest(arguments, n, optimizer) for optimizer in arguments.optimizer for n in nodes]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
