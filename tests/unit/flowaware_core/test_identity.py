"""What a plan was made for: a change of program or cluster is noticed, and named."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import flowaware_core as fa

CARD = fa.Device("card", fa.GIB, {"float32": 1e9}, 1e10)
CLUSTER = fa.Cluster("pair", CARD, (fa.Level("card", 2, 1e10, 1e-6),))


def task(width: int = 16, rows: int = 8, act: Any = jnp.tanh, swapped: bool = False) -> fa.Task:
    def step(state: Any, batch: Any) -> Any:
        first, second = ("b", "a") if swapped else ("a", "b")
        return state, jnp.sum(act(batch @ state[first]) @ state[second])

    shape = jax.ShapeDtypeStruct
    state = {name: shape((width, width), "float32") for name in "ab"}
    return fa.Task(step, (state, shape((rows, width), "float32")), carried={0: 0}, batch=(1,))


@pytest.fixture(scope="module")
def plan() -> fa.Plan:
    made = fa.plan(task(), CLUSTER)
    return fa.Plan.from_json(json.loads(json.dumps(made.to_json())))


def test_nothing_has_changed(plan: fa.Plan) -> None:
    assert fa.changes(plan, task(), CLUSTER) == ()


def test_a_plan_of_some_meshes_is_not_one_of_all() -> None:
    cluster = fa.Cluster("wide", CARD, (fa.Level("node", 4, 1e9, 1e-5), fa.Level("card", 4, 1e10, 1e-6)))
    few, every = (fa.plan(task(), cluster, axes=axes) for axes in (2, None))
    assert fa.changes(few, task(), cluster) == fa.changes(every, task(), cluster, axes=None) == ()
    assert fa.changes(few, task(), cluster, axes=None) == ("meshes: 1 of 4 were searched",)
    assert every.gap is not None and every.predicted.step_s <= few.predicted.step_s * (1 + 1e-9)


def test_another_batch_is_named(plan: fa.Plan) -> None:
    assert fa.changes(plan, task(rows=12), CLUSTER) == ("arguments.1: float32[8, 16] -> float32[12, 16]",)


def test_another_operator_is_named(plan: fa.Plan) -> None:
    found = fa.changes(plan, task(act=jnp.sin), CLUSTER)
    assert found == ("operators.tanh: 1 -> absent", "operators.sin: absent -> 1")


def test_another_wiring_of_the_same_operators_is_noticed(plan: fa.Plan) -> None:
    (line,) = fa.changes(plan, task(swapped=True), CLUSTER)
    assert "connected in another way" in line


def test_another_cluster_is_named(plan: fa.Plan) -> None:
    device = dataclasses.replace(CARD, memory_bytes=2 * fa.GIB)
    larger = fa.Cluster("pair", device, (fa.Level("card", 4, 1e10, 1e-6),))
    found = fa.changes(plan, task(), larger, "data")
    assert found == (
        "strategy: auto -> data",
        f"cluster.device.memory_bytes: {fa.GIB} -> {2 * fa.GIB}",
        "cluster.levels.card.size: 2 -> 4",
    )


def test_a_plan_without_origin_is_not_used_again(plan: fa.Plan) -> None:
    small = fa.resize(plan, task(), {})
    assert fa.changes(small, task(), CLUSTER) == ("the plan does not say what it was made for",)


def test_a_prepared_task_is_traced_once_and_planned_alike() -> None:
    traced = []

    def step(state: Any, batch: Any) -> Any:
        traced.append(1)
        return state, jnp.sum(batch @ state["a"])

    wide = fa.Cluster("four", CARD, (fa.Level("card", 4, 1e10, 1e-6),))
    prepared = fa.Prepared(dataclasses.replace(task(), step=step))
    found = [fa.plan(prepared, cluster) for cluster in (CLUSTER, wide, CLUSTER)]
    assert len(traced) == 1
    for plan, cluster in zip(found, (CLUSTER, wide, CLUSTER), strict=True):
        assert plan.hash == fa.plan(dataclasses.replace(task(), step=step), cluster).hash
    alone = fa.plan(prepared, wide, beside=())
    assert not alone.alternatives and alone.choices == found[1].choices and found[1].alternatives
