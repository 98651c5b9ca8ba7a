"""What a person pins stays where it was put, and the rest is solved around it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import flowaware_core as fa

CARD = fa.Device("card", fa.GIB, {"float32": 1e9}, 1e9)
NESTED = fa.Cluster("nested", CARD, (fa.Level("node", 2, 1e9, 5e-6), fa.Level("card", 4, 1e10, 1e-6)))


def step(state: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"]) ** 2)

    return jax.tree.map(lambda w, g: w - g, state, jax.grad(loss)(state)), 0.0


ARGS = ({"in": jnp.ones((16, 32)), "out": jnp.ones((32, 8))}, jnp.ones((64, 16)))


def layouts(plan: fa.Plan) -> Any:
    """The names of the axes on each dimension of the state."""

    def names(sharding: Any) -> list[set[str]]:
        return [{entry} if isinstance(entry, str) else set(entry or ()) for entry in sharding.spec]

    return jax.tree.map(names, fa.apply(plan, step, ARGS).in_shardings[0])


@pytest.mark.parametrize("axis", ["node", "card"])
def test_a_pin_is_followed(axis: str) -> None:
    plan = fa.plan(step, ARGS, NESTED, pins=[fa.Pin("0['in']", 0, axis), fa.Pin("0['out']", 1, axis)])
    found = layouts(plan)
    assert any(axis in name for name in found["in"][0]) and any(axis in name for name in found["out"][1])


def test_a_dimension_pinned_whole_is_whole() -> None:
    pins = [fa.Pin("0['in']", dim, None) for dim in (0, 1)]
    for strategy in ("auto", "fsdp"):
        task = fa.Task(step, ARGS, carried={0: 0}, batch=(1,))
        plan = fa.plan(task, NESTED, strategy=strategy, pins=pins)
        assert not any(layouts(plan)["in"])


def test_a_pin_costs_what_it_costs() -> None:
    free = fa.plan(step, ARGS, NESTED)
    pinned = fa.plan(step, ARGS, NESTED, pins=[fa.Pin("0['in']", 0, "node")])
    # On meshes after the first the search does not look for less than a thousandth of a step.
    assert pinned.predicted.step_s >= free.predicted.step_s * 0.999


@pytest.mark.parametrize(
    ("pins", "message"),
    [
        ([fa.Pin("0['inn']", 0, "card")], r"0\['inn'\].*; the nearest of this task are 0\['in'\]"),
        ([fa.Pin("0['in']", 2, "card")], r"dimension 2 of 0\['in'\], which has the shape \(16, 32\)"),
        ([fa.Pin("0['in']", 0, "rack")], "'rack'; the cluster has the levels node, card"),
        ([fa.Pin("0['in']", 0, "card"), fa.Pin("0['in']", 1, "card")], "one axis on two dimensions"),
    ],
)
def test_a_pin_that_cannot_be_followed_is_refused(pins: list[fa.Pin], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fa.plan(step, ARGS, NESTED, pins=pins)


def test_a_length_that_the_axis_does_not_divide() -> None:
    with pytest.raises(ValueError, match="6 long, which the 4 cards"):
        fa.plan(lambda x: (x * 2, 0.0), (jnp.ones((6, 8)),), NESTED, pins=[fa.Pin("0", 0, "card")])
