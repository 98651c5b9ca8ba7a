"""What a step costs more through the engine on one device than under plain `jax.jit`.

    python -m tests.benchmarks.overhead [--programs mlp transformer resnet] [--rounds N] [--json FILE]

Both are compiled from the same function for the same device, and take turns: in every round each makes a step, the order
alternating, so that what disturbs the machine disturbs both. The figure is the median over rounds of the ratio of their times,
less one; it is printed with the quartiles. Ends with exit code 1 where it is above 2 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import flowaware_core as fa

ALLOWED = 0.02
PROGRAMS = ("mlp", "transformer", "resnet")


def device() -> fa.Cluster:
    cpu = fa.Device("cpu", 16 * fa.GIB, {"float32": 5e10}, 1e10)
    return fa.Cluster("one", cpu, (fa.Level("device", 1, 1e10, 1e-6),))


def mlp() -> tuple[fa.Task, Any]:
    """Two layers; a step of a few milliseconds, in which calling it counts."""

    def step(state: Any, batch: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((jnp.tanh(batch @ w["in"]) @ w["out"]) ** 2)

        value, grads = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda w, g: w - 0.1 * g, state, grads), value

    random = np.random.default_rng(0)
    state = {"in": random.standard_normal((256, 1024)) / 16, "out": random.standard_normal((1024, 256)) / 32}
    args = jax.tree.map(np.float32, state), np.float32(random.standard_normal((128, 256)))
    return fa.Task(step, args, carried={0: 0}, batch=(1,), name="mlp"), args


def transformer() -> tuple[fa.Task, Any]:
    """Four layers under a scan, with recomputation."""

    def block(x: Any, w: Any) -> tuple[Any, None]:
        q, k, v = (jnp.einsum("btd,dhc->bthc", x, w[name]) for name in ("q", "k", "v"))
        x = x + jnp.einsum("bthc,hcd->btd", jax.nn.dot_product_attention(q, k, v), w["o"])
        return x + jax.nn.gelu(jax.nn.standardize(x) @ w["up"]) @ w["down"], None

    def step(state: Any, batch: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean(jax.lax.scan(jax.checkpoint(block), batch, w)[0] ** 2)

        value, grads = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda w, g: w - 1e-3 * g, state, grads), value

    random = np.random.default_rng(0)
    shapes = dict.fromkeys("qkv", (4, 128, 4, 32)) | {
        "o": (4, 4, 32, 128),
        "up": (4, 128, 512),
        "down": (4, 512, 128),
    }
    state = {name: np.float32(random.standard_normal(shape) / 24) for name, shape in shapes.items()}
    args = state, np.float32(random.standard_normal((8, 64, 128)))
    return fa.Task(step, args, carried={0: 0}, batch=(1,), name="transformer"), args


def resnet() -> tuple[fa.Task, Any]:
    """Two bottleneck blocks of the zoo's ResNet."""
    from tests.contract.conftest import recipe

    ours = recipe(width=16)
    task = ours.task()
    random = np.random.default_rng(0)
    batch = {
        "image": np.float32(random.standard_normal((16, 16, 16, 3))),
        "label": random.integers(0, 10, 16).astype(np.int32),
    }
    return task, (jax.jit(ours.initial_state)(jax.random.key(0)), batch)


def timed(step: Callable[..., Any], state: Any, batch: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    state, metrics = step(state, batch)
    jax.block_until_ready((state, metrics))
    return time.perf_counter() - begin, state


def measure(task: fa.Task, args: Any, rounds: int) -> dict[str, float]:
    """Milliseconds of a step of each, and the quartiles of their ratio less one."""
    planned = fa.apply(fa.plan(task, device()), task, devices=jax.devices()[:1])
    steps = {"plain": jax.jit(task.step, donate_argnums=(0,)), "engine": planned}
    states = {name: jax.device_put(jax.tree.map(lambda leaf: leaf.copy(), args[0]), jax.devices()[0]) for name in steps}
    states["engine"] = jax.device_put(states["engine"], planned.in_shardings[0])
    batches = {
        "plain": jax.device_put(args[1], jax.devices()[0]),
        "engine": jax.device_put(args[1], planned.in_shardings[1]),
    }
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for count in range(rounds + 3):
        for name in sorted(steps, reverse=count % 2 == 1):
            seconds, states[name] = timed(steps[name], states[name], batches[name])
            if count >= 3:  # the first calls compile and warm up
                spent[name].append(seconds)
    ratios = [one / other - 1 for one, other in zip(spent["engine"], spent["plain"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "plain_ms": 1e3 * statistics.median(spent["plain"]),
        "engine_ms": 1e3 * statistics.median(spent["engine"]),
        "overhead": middle,
        "first_quartile": low,
        "third_quartile": high,
        "rounds": rounds,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=PROGRAMS)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    found = {}
    for name in options.programs:
        found[name] = measure(*globals()[name](), options.rounds)
        print(
            f"{name:<12} plain jit {found[name]['plain_ms']:8.3f} ms   engine {found[name]['engine_ms']:8.3f} ms   "
            f"overhead {100 * found[name]['overhead']:+.2f} %"
            f" (quartiles {100 * found[name]['first_quartile']:+.2f} to {100 * found[name]['third_quartile']:+.2f} %)",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return int(any(one["overhead"] > ALLOWED for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
