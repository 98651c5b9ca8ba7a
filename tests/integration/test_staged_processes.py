"""Stages in processes of their own give the numbers of the same micro-batches on one device."""

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
training, extra = {training}
make = lambda: training.initial(staged.weights(jax.random.key(0)), jax.random.key(1), extra)
batch = staged.data()
plan = fa.pipeline(training, jax.eval_shape(make), batch, {where}, micro_batches=4, groups={groups})
assert {groups} in (None, list(plan.groups)) and len(plan.stages) == len({groups} or "ab")
step = fa.PipelinedStep(plan)
state, rows = step.initial(make), step.placed(batch)
assert {groups} or any(not hasattr(leaf, "addressable_shards") for leaf in jax.tree.leaves(state))
expected, plain = jax.jit(make)(), jax.jit(training.step(fa.Schedule(4)))
for _ in range(3):
    state, found = step(state, rows)
    expected, right = plain(expected, batch)
    assert set(found) == set(right)
    for name, value in right.items():
        np.testing.assert_allclose(found[name].addressable_data(0), value, rtol=1e-9, err_msg=name)
compared = 0
for name in ("params", "opt_state", "step", *([training.extra] if training.extra else [])):
    for one, other in zip(jax.tree.leaves(state[name]), jax.tree.leaves(expected[name]), strict=True):
        for shard in getattr(one, "addressable_shards", ()):
            np.testing.assert_allclose(shard.data, np.asarray(other)[shard.index], rtol=1e-7, atol=1e-12, err_msg=name)
            compared += 1
print(f"{{compared}} parts equal")
processes.leave(0, group)
"""
KINDS = {
    "tied weights, dropout, a norm over all": "fa.Training(staged.language, optimizer, splits=True), None",
    "batch statistics": (
        "fa.Training(staged.normalised, optax.sgd(1e-3), splits=True, extra='statistics'), "
        "{f'layer{i}': jnp.zeros(staged.WIDTH) for i in range(staged.LAYERS)}"
    ),
}


@pytest.mark.parametrize(
    "kind", ["tied weights, dropout, a norm over all", pytest.param("batch statistics", marks=pytest.mark.slow)]
)
def test_two_processes_hold_a_stage_each(
    kind: str, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    body = BODY.format(training=KINDS[kind], where="staged.cluster()", groups=None)
    process = started(tmp_path, root, body, devices=8)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "parts equal" in out, err  # the lines of process 0 alone are shown


@pytest.mark.parametrize(
    ("where", "groups"),
    [
        ("staged.cluster()", [4, 2, 2]),  # two stages in one process
        ("fa.Cluster('row', staged.cluster().device, (fa.Level('card', 8, 1e12, 1e-9),))", [5, 3]),  # one in both
    ],
)
def test_unequal_stages_in_two_processes(
    where: str, groups: list[int], tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    kind = KINDS["tied weights, dropout, a norm over all"]
    process = started(tmp_path, root, BODY.format(training=kind, where=where, groups=groups), devices=8)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and "parts equal" in out, err


RESNET = """
import dataclasses, jax.numpy as jnp
import flowaware_core as fa
from tests.contract.staged import cluster
from tests.integration import test_staged_resnet as staged
ours = staged.small(jnp.float64)
how, batch = staged.training(ours), staged.drawn(jnp.float64)
make = lambda: staged.begin(ours, how, jnp.float64)
plan = fa.pipeline(how, jax.eval_shape(make), batch, staged.SPREAD, micro_batches=2)
step = fa.PipelinedStep(plan)
state, found = step(step.initial(make), step.placed(batch))
begun = jax.jit(make)()
expected, right = jax.jit(how.step(fa.Schedule(2)))(begun, batch)
apart = abs(float(found["loss"].addressable_data(0)) / float(right["loss"]) - 1)
pairs = list(zip(*(jax.tree.leaves(tree["params"]) for tree in (begun, state, expected)), strict=True))
largest = max(float(np.abs(np.asarray(old) - np.asarray(other)).max()) for old, _, other in pairs)
worst = max(
    float(np.abs(shard.data - np.asarray(other)[shard.index]).max())
    for _, one, other in pairs
    for shard in getattr(one, "addressable_shards", ())
)
print(f"resnet: loss apart by {apart}, gradients by {worst / largest} of the largest")
assert apart < 1e-10 and worst < 1e-10 * largest
processes.leave(0, group)
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_resnet_in_two_processes(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    process = started(tmp_path, root, RESNET, devices=8)
    out, err = process.communicate(timeout=3000)
    assert process.returncode == 0 and "resnet: loss apart" in out, err
    print(out.splitlines()[-1])
