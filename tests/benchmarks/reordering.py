"""How far float32 losses drift from plain JAX: through the engine, and in plain JAX itself with the rows of a batch permuted.

    python -m tests.benchmarks.reordering [--steps 5]

A batch-norm network amplifies the order of sums: the second column shows how much of the drift is that alone.
"""

from __future__ import annotations

import argparse
import os
import sys


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    steps = parser.parse_args(argv).steps
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    import jax
    import numpy as np

    import flowaware_core as fa
    from tests.contract.conftest import SLOW, recipe

    ours = recipe()
    random = np.random.default_rng(0)
    data = [
        {
            "image": random.normal(size=(16, 16, 16, 3)).astype(np.float32),
            "label": random.integers(0, 10, 16).astype(np.int32),
        }
        for _ in range(steps)
    ]
    orders = [random.permutation(16) for _ in data]
    permuted = [{name: leaf[order] for name, leaf in batch.items()} for batch, order in zip(data, orders, strict=True)]

    def losses(step, state, batches, sharding=None):
        found = []
        for batch in batches:
            state, metrics = step(state, batch if sharding is None else jax.device_put(batch, sharding))
            found.append(float(metrics["loss"]))
        return np.array(found)

    def born(sharding=None):
        return jax.jit(ours.initial_state, out_shardings=sharding)(jax.random.key(0))

    plain = losses(jax.jit(ours.step), born(), data)
    columns = {"rows permuted": losses(jax.jit(ours.step), born(), permuted)}
    cluster = fa.Cluster("nested", SLOW, (fa.Level("node", 2, 1e9, 5e-6, shared=True), fa.Level("card", 4, 1e10, 1e-6)))
    for strategy in fa.STRATEGIES:
        task = ours.task()
        step = fa.apply(fa.plan(task, cluster, strategy=strategy), task)
        columns[strategy] = losses(step.compile(optimise=False), born(step.in_shardings[0]), data, step.in_shardings[1])
    print(f"{'step':<5}{'plain JAX':>12}" + "".join(f"{name:>16}" for name in columns) + "   (relative differences)")
    for index, loss in enumerate(plain):
        drifts = "".join(f"{abs(found[index] - loss) / abs(loss):>16.1e}" for found in columns.values())
        print(f"{index + 1:<5}{loss:>12.6f}{drifts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
