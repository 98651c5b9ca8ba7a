"""Steps that the engine builds, against plain JAX that does the same parts of the batch one after the other."""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import flowaware_core as fa
from flowaware_core.task import Schedule

ROWS, TOKENS, WIDTH = 16, 6, 8
DEVICE = fa.Device("cpu", fa.GIB, {"float32": 1e9}, 1e9)
FOUR = fa.Cluster("four", DEVICE, (fa.Level("device", 4, 1e10, 1e-6),))


class Net(nn.Module):
    """Residual blocks, with dropout and batch normalisation where asked for."""

    blocks: int = 2
    drops: bool = False
    norm: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for _ in range(self.blocks):
            h = nn.gelu(nn.Dense(2 * WIDTH)(nn.LayerNorm()(x)))
            h = nn.Dropout(0.3, deterministic=not self.drops)(h)
            x = x + nn.Dense(WIDTH)(h)
        if self.norm:
            x = nn.BatchNorm(use_running_average=False, momentum=0.5)(x)
        return x


def batch() -> dict[str, jax.Array]:
    random = np.random.default_rng(0)
    weight = (np.arange(ROWS * TOKENS).reshape(ROWS, TOKENS) % 5 > 1) * (np.arange(ROWS) > 2)[:, None]
    return {
        "x": jnp.asarray(random.normal(size=(ROWS, TOKENS, WIDTH)), jnp.float32),
        "y": jnp.asarray(random.normal(size=(ROWS, TOKENS, WIDTH)), jnp.float32),
        "weight": jnp.asarray(weight, jnp.float32),
    }


def of_tokens(net: Net) -> Any:
    """The mean over the tokens that count, whose number differs from part to part; and one over all rows."""

    def loss(params: Any, extra: Any, rows: Any, key: jax.Array) -> fa.Outcome:
        variables = {"params": params} if extra is None else {"params": params, "batch_stats": extra}
        out, changed = net.apply(variables, rows["x"], rngs={"dropout": key}, mutable=["batch_stats"])
        errors = jnp.sum((out - rows["y"]) ** 2, -1)
        terms = {
            "tokens": fa.Mean(jnp.sum(rows["weight"] * errors), jnp.sum(rows["weight"])),
            "rows": fa.Mean(jnp.sum(jnp.abs(out)), jnp.float32(len(out))),
        }
        return fa.Outcome(terms, {"first": fa.Mean(jnp.sum(errors[:, 0]), len(errors))}, changed.get("batch_stats"))

    return loss


def training(net: Net, splits: bool = True) -> tuple[fa.Training, Any]:
    made = fa.Training(of_tokens(net), optax.adam(1e-2), splits, "batch_stats" if net.norm else None)
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(0)}
    variables = jax.jit(net.init)(keys, batch()["x"])
    return made, made.initial(variables["params"], jax.random.key(1), variables.get("batch_stats"))


def by_hand(made: fa.Training, state: Any, rows: Any, count: int) -> tuple[Any, Any, Any]:
    """Loss, gradients and extra of the batch in parts, written out."""
    key = jax.random.fold_in(state["rng"], state["step"])
    parts = [jax.tree.map(lambda leaf, i=i: leaf[i::count], rows) for i in range(count)]
    totals = {"tokens": jnp.sum(rows["weight"]), "rows": ROWS}
    loss, gradients, extra = 0.0, None, state.get("batch_stats")
    for index, part in enumerate(parts):

        def of(params: Any, part: Any = part, index: int = index, extra: Any = extra) -> Any:
            found = made.loss(params, extra, part, jax.random.fold_in(key, index) if count > 1 else key)
            return sum(mean.total / totals[name] for name, mean in found.terms.items()), found.extra

        (value, extra), more = jax.value_and_grad(of, has_aux=True)(state["params"])
        loss += value
        gradients = more if gradients is None else jax.tree.map(jnp.add, gradients, more)
    return loss, gradients, extra


def close(one: Any, other: Any, tolerance: float = 2e-5) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


@pytest.mark.parametrize("net", [Net(), Net(drops=True), Net(norm=True)], ids=["tokens", "dropout", "statistics"])
def test_parts_of_a_batch_are_what_plain_jax_makes_of_them(net: Net) -> None:
    made, state = training(net)
    after, metrics = jax.jit(made.step(Schedule(2)))(state, batch())
    loss, gradients, extra = jax.jit(lambda state, rows: by_hand(made, state, rows, 2))(state, batch())
    close(metrics["loss"], loss)
    # Adam's first mean of gradients is a tenth of the gradient.
    close(after["opt_state"][0].mu, jax.tree.map(lambda leaf: 0.1 * leaf, gradients))
    if net.norm:
        close(after["batch_stats"], extra)


def test_the_mean_over_tokens_does_not_depend_on_the_number_of_parts() -> None:
    made, state = training(Net())
    whole, parts = (jax.jit(made.step(Schedule(count)))(state, batch()) for count in (1, 4))
    close(parts[1], whole[1])
    close(parts[0]["params"], whole[0]["params"], 1e-4)


def test_batch_statistics_of_parts_are_another_loss() -> None:
    made, state = training(Net(norm=True))
    whole, parts = (jax.jit(made.step(Schedule(count)))(state, batch())[1]["loss"] for count in (1, 4))
    assert abs(float(whole - parts)) > 1e-4 * float(whole)


def test_what_does_not_split_runs_at_once() -> None:
    made, state = training(Net(norm=True), splits=False)
    task = made.task(state, batch())
    assert task.micro_batches == (1,)
    with pytest.raises(ValueError, match="does not split"):
        task.scheduled(Schedule(2))


def test_a_finished_step_has_no_other_schedule() -> None:
    task = fa.Task(lambda state: state, (jnp.ones(3),), name="finished")
    with pytest.raises(ValueError, match=r"finished is a finished step; make the task by `Training.task`"):
        task.scheduled(Schedule(2))


def test_a_batch_of_different_lengths_is_refused() -> None:
    made, state = training(Net())
    with pytest.raises(ValueError, match=r"\[16, 17\] examples"):
        made.task(state, {**batch(), "weight": jnp.ones((ROWS + 1, TOKENS))})


@pytest.mark.parametrize("schedule", [Schedule(2), Schedule(2, (("blocks 0", "inputs"),))], ids=str)
def test_parts_run_split_over_devices(schedule: Schedule) -> None:
    made, state = training(Net(blocks=3))
    task = made.task(state, batch()).scheduled(schedule)
    expected = jax.device_get(jax.jit(task.step)(state, batch()))
    plan = fa.plan(task, FOUR, strategy="fsdp")
    step = fa.apply(plan, made.task(state, batch()))
    compiled = step.compile(optimise=False)
    assert fa.audit(compiled, plan).ok, fa.audit(compiled, plan).describe()
    found = jax.device_get(compiled(*jax.device_put((state, batch()), step.in_shardings)))
    close(found[1], expected[1], 1e-4)
    close(found[0]["params"], expected[0]["params"], 1e-3)


def wide() -> tuple[fa.Task, Any]:
    """A task of which activations are most: 64 rows of 6 tokens, 4 blocks that hold 16 numbers a token."""
    made, state = training(Net(blocks=4))
    many = jax.tree.map(lambda leaf: jnp.tile(leaf, (64, *(1,) * (leaf.ndim - 1))), batch())
    return made.task(state, many, "wide"), made


def test_where_memory_is_no_matter_the_batch_runs_at_once() -> None:
    task, _ = wide()
    assert fa.plan(task, FOUR, strategy="data").schedule == {"micro_batches": 1, "recompute": {}}


def test_where_memory_binds_a_schedule_that_fits_is_found() -> None:
    task, _ = wide()
    needed = fa.plan(task, FOUR, strategy="data").predicted.memory["total"]
    for part in (0.85, 0.6):
        device = dataclasses.replace(DEVICE, memory_bytes=int(part * needed / DEVICE.usable_fraction))
        plan = fa.plan(task, dataclasses.replace(FOUR, device=device), strategy="data")
        assert plan.predicted.memory["total"] <= device.usable_bytes
        assert plan.schedule != {"micro_batches": 1, "recompute": {}}
        assert fa.Plan.from_json(plan.to_json()).schedule == plan.schedule
        described = fa.describe(plan)
        assert ("micro-batches" in described) == (plan.schedule["micro_batches"] > 1)
        assert ("computed again" in described) == bool(plan.schedule["recompute"])


def test_a_plan_says_what_no_schedule_goes_below() -> None:
    task, _ = wide()
    needed = fa.plan(task, FOUR).predicted.memory["total"]
    device = dataclasses.replace(DEVICE, memory_bytes=int(0.5 * needed / DEVICE.usable_fraction))
    plan = fa.plan(task, dataclasses.replace(FOUR, device=device))
    assert plan.schedule != {"micro_batches": 1, "recompute": {}}
    assert 0 < plan.searched["least_s"] <= plan.predicted.step_s
    assert "with any other a step takes at least" in fa.describe(plan)
