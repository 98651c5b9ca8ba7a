"""With the optimizer's state on the hosts, two processes give the numbers of one device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.test_processes import started

BODY = """
import jax.numpy as jnp, optax
import flowaware_core as fa
from tests.contract import staged
schedule = optax.linear_schedule(1e-2, 0.0, 100)
optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(schedule))
training = fa.Training(staged.language, optimizer, splits=True)
make = lambda: training.initial(staged.weights(jax.random.key(0)), jax.random.key(1))
batch = staged.data()
plan = fa.offload(training, jax.eval_shape(make), batch, staged.cluster(), part_bytes=512)
assert len(plan.parts) > 1
step = fa.OffloadedStep(plan)
state, rows = step.initial(make), step.placed(batch)
expected, plain = jax.jit(make)(), jax.jit(training.step(plan.schedule))
for _ in range(3):
    state, found = step(state, rows)
    expected, right = plain(expected, batch)
    assert set(found) == set(right)
    for name, value in right.items():
        np.testing.assert_allclose(found[name].addressable_data(0), value, rtol=1e-9, err_msg=name)
kinds = {leaf.sharding.memory_kind for leaf in jax.tree.leaves(state["opt_state"]) if leaf.size > 1}
compared = 0
for name in ("params", "opt_state", "step"):
    for one, other in zip(jax.tree.leaves(state[name]), jax.tree.leaves(expected[name]), strict=True):
        for shard in one.addressable_shards:
            np.testing.assert_allclose(
                np.asarray(shard.data), np.asarray(other)[shard.index], rtol=1e-7, atol=1e-12, err_msg=name
            )
            compared += 1
print(f"{compared} parts equal, in {kinds}")
processes.leave(0, group)
"""


def test_each_process_keeps_its_part_on_its_host(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    process = started(tmp_path, root, BODY, devices=8)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "parts equal, in {'pinned_host'}" in out, err
