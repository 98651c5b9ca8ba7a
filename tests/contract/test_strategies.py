"""Every strategy computes what plain JAX computes on one device, and compiles to the collectives it predicted."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

import flowaware_core as fa
from flowaware_core.graph import rules
from tests.contract.conftest import recipe

# The rarer ones take as long as these and run with the slow tests.
USUAL = ("auto", "data", "fsdp", "tensor")
EVERY = [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in fa.STRATEGIES]


def batches(count: int, size: int, dtype: Any) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(0)
    return [
        {
            "image": random.normal(size=(size, 16, 16, 3)).astype(dtype),
            "label": random.integers(0, 10, size).astype(np.int32),
        }
        for _ in range(count)
    ]


def task_of(ours: Any, dtype: Any) -> fa.Task:
    """The recipe's task on batches of the given type."""
    task = ours.task()
    state, batch = task.args
    image = jax.ShapeDtypeStruct(batch["image"].shape, dtype)
    return fa.Task(task.step, (state, {**batch, "image": image}), carried={0: 0}, batch=(1,), name=task.name)


def run(step: Any, state: Any, data: list[Any], shardings: Any = None) -> tuple[list[float], Any]:
    """The losses, and the momentum after the first step, which is the first gradient."""
    losses, gradient = [], None
    for batch in data:
        state, metrics = step(state, batch if shardings is None else jax.device_put(batch, shardings[1]))
        losses.append(float(metrics["loss"]))
        gradient = jax.device_get(state["opt_state"]) if gradient is None else gradient
    return losses, gradient


@functools.cache
def plain(dtype: str, count: int) -> tuple[list[float], Any]:
    """The same run in plain JAX on one device."""
    ours = recipe(dtype)
    state = jax.jit(ours.initial_state)(jax.random.key(0))
    return run(jax.jit(ours.step), state, batches(count, 16, np.dtype(dtype)))


def gap(ours: Any, theirs: Any) -> float:
    """The largest difference of a leaf, relative to its norm."""
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    distances = [
        np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-12) for a, b in pairs if np.issubdtype(b.dtype, np.floating)
    ]
    return max(float(distance) for distance in distances)


@pytest.mark.parametrize("strategy", EVERY)
def test_float64_sharded_equals_single_device(strategy: str, nested: fa.Cluster, x64: None) -> None:
    ours = recipe("float64")
    task = task_of(ours, np.float64)
    plan = fa.plan(task, nested, strategy=strategy)
    step = fa.apply(plan, task)
    data = batches(5, 16, np.float64)
    born = jax.jit(ours.initial_state, out_shardings=step.in_shardings[0])(jax.random.key(0))
    losses, gradient = run(step.compile(optimise=False), born, data, step.in_shardings)
    expected, expected_gradient = plain("float64", 5)
    assert abs(losses[0] - expected[0]) <= 1e-10 * abs(expected[0])
    assert gap(gradient, expected_gradient) <= 1e-10
    assert np.allclose(losses, expected, rtol=1e-8, atol=0)


@pytest.mark.parametrize("strategy", EVERY)
def test_compiles_to_what_was_predicted(strategy: str, flat: fa.Cluster) -> None:
    ours = recipe()
    task = ours.task()
    plan = fa.plan(task, flat, strategy=strategy)
    step = fa.apply(plan, task)
    compiled = step.compile(optimise=False)
    audit = fa.audit(compiled, plan)
    assert audit.ok, audit.describe()
    # A small program would pass by the floor alone: here the bytes themselves must agree.
    for kind, sides in audit.collectives.items():
        predicted, found = sides["predicted"]["bytes"], sides["compiled"]["bytes"]
        assert abs(predicted - found) <= 0.02 * found + 1024, (kind, predicted, found)
    data = batches(1, 16, np.float32)
    born = jax.jit(ours.initial_state, out_shardings=step.in_shardings[0])(jax.random.key(0))
    losses, _ = run(compiled, born, data, step.in_shardings)
    expected, _ = plain("float32", 1)
    assert abs(losses[0] - expected[0]) <= 1e-5 * abs(expected[0])


def test_a_wrong_rule_fails_the_audit(flat: fa.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution that claims to need no sum over its input channels and examples predicts no reduction of gradients."""
    right = rules.RULES["conv_general_dilated"]

    def wrong(*arguments: Any) -> rules.Rule:
        found = right(*arguments)
        factors = tuple(rules.Factor(f.size, "map" if f.kind == "reduce" else f.kind) for f in found.factors)
        return rules.Rule(factors, found.operands, found.results)

    monkeypatch.setitem(rules.RULES, "conv_general_dilated", wrong)
    task = recipe(width=64).task()
    plan = fa.plan(task, flat, strategy="data")
    audit = fa.audit(fa.apply(plan, task).compile(optimise=False), plan)
    assert not audit.ok
    assert any("all-reduce" in finding for finding in audit.findings)


def test_never_worse_than_a_template(flat: fa.Cluster, nested: fa.Cluster) -> None:
    task = recipe().task()
    for cluster in (flat, nested):
        plan = fa.plan(task, cluster)
        feasible = [other.step_s for other in plan.alternatives if other.feasible]
        assert plan.predicted.step_s <= min(feasible) * (1 + 1e-9)


def test_the_same_plan_twice(nested: fa.Cluster) -> None:
    first, second = (fa.plan(recipe().task(), nested) for _ in range(2))
    assert first.hash == second.hash
    assert fa.Plan.from_json(first.to_json()).hash == first.hash


def test_a_plan_resized_keeps_its_choices(nested: fa.Cluster) -> None:
    plan = fa.plan(recipe().task(), nested, strategy="fsdp")
    small = fa.resize(plan, recipe(global_batch=4).task(), {"node": 1})
    assert small.axes == {"node": 1, "card": 4} and small.choices == plan.choices
    with pytest.raises(ValueError, match="does not divide"):
        fa.resize(plan, recipe(global_batch=4).task(), {"node": 2})


def test_memory_is_a_hard_limit(nested: fa.Cluster) -> None:
    task = recipe(width=64).task()
    plan = fa.plan(task, nested, strategy="data")
    needed = plan.predicted.memory["total"]
    lean = fa.plan(task, nested, strategy="fsdp").predicted.memory["total"]
    assert lean < needed

    def with_memory(size: int) -> fa.Cluster:
        device = fa.Device("cpu", size, {"float32": 1e9}, 1e9, usable_fraction=1.0)
        return fa.Cluster("small", device, nested.levels)

    tight = fa.plan(task, with_memory((needed + lean) // 2))
    assert tight.predicted.memory["total"] <= (needed + lean) // 2
    with pytest.raises(fa.DoesNotFit, match="would fit"):
        fa.plan(task, with_memory(lean // 4), strategy="data")
