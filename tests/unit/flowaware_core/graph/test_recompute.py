"""Blocks that are computed again: found in any function, with equal losses and gradients, and less memory."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flowaware_core import versions
from flowaware_core.graph import recompute

BLOCKS, ROWS, WIDTH = 6, 256, 16


def block(x: jax.Array, w: Any) -> jax.Array:
    h = jax.nn.relu(x @ w["in"])
    return x + jnp.tanh(h * jax.nn.sigmoid(h)) @ w["out"]


def row(weights: Any, x: jax.Array) -> jax.Array:
    """Blocks one after the other, between other things."""
    x = jnp.sin(x) @ weights["first"]
    for w in weights["blocks"]:
        x = block(x, w)
    return jnp.mean(jnp.cos(x) ** 2)


def loop(weights: Any, x: jax.Array) -> jax.Array:
    """The same as a scan."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *weights["blocks"])
    x, _ = jax.lax.scan(lambda x, w: (block(x, w), None), jnp.sin(x) @ weights["first"], stacked)
    return jnp.mean(jnp.cos(x) ** 2)


def arguments() -> Any:
    keys = iter(jax.random.split(jax.random.key(0), 2 * BLOCKS + 2))
    made = lambda *shape: jax.random.normal(next(keys), shape) / 4
    blocks = [{"in": made(WIDTH, 4 * WIDTH), "out": made(4 * WIDTH, WIDTH)} for _ in range(BLOCKS)]
    return {"first": made(WIDTH, WIDTH), "blocks": blocks}, made(ROWS, WIDTH)


@pytest.mark.parametrize(("function", "count"), [(row, BLOCKS), (loop, 1)])
def test_blocks_are_found(function: Any, count: int) -> None:
    (kind,) = recompute.kinds(function, *arguments())
    assert kind.count >= count - 1
    assert kind.name == ("blocks 0" if function is row else "loop 0")
    assert "test_recompute.py" in kind.source


@pytest.mark.parametrize("function", [row, loop])
def test_computing_again_changes_no_value_and_needs_less_memory(function: Any) -> None:
    (kind,) = recompute.kinds(function, *arguments())
    values, held = [], []
    for policies in ({}, {kind.name: "products"}, {kind.name: "inputs"}, {kind.name: "few inputs"}):
        step = jax.jit(jax.value_and_grad(recompute.applied(function, policies)))
        compiled = step.lower(*arguments()).compile(compiler_options=versions.compiler_options("cpu"))
        values.append(compiled(*arguments()))
        memory = versions.memory(compiled)
        assert memory is not None
        held.append(memory.temporaries)
    for other in values[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), other, values[0])
    if function is row and versions.VERSION < (0, 8):
        pytest.skip("on this version the CPU's compiler joins what is computed twice")
    # Kept of a block: four values and more of it; the product inside; nothing but what goes in.
    assert held[2] < 0.6 * held[0]
    assert held[2] <= held[1] < held[0]


@pytest.mark.parametrize(("count", "groups"), [(12, 2), (13, 13), (15, 3), (6, 2), (4, 2), (2, 2)])
def test_few_inputs_are_one_for_several_rounds(count: int, groups: int) -> None:
    """Of twelve rounds two; a loop of a prime number of rounds keeps all of them."""
    function, (weights, x) = loop, arguments()
    weights["blocks"] = (3 * weights["blocks"])[:count]
    (kind,) = recompute.kinds(function, weights, x)
    results = [
        jax.jit(jax.value_and_grad(recompute.applied(function, policies)))(weights, x)
        for policies in ({}, {kind.name: "few inputs"})
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6), *results)
    again = jax.make_jaxpr(jax.grad(recompute.applied(function, {kind.name: "few inputs"})))(weights, x)
    (forward, backward) = (equation for equation in again.jaxpr.eqns if equation.primitive.name == "scan")
    assert (forward.params["length"], backward.params["length"]) == (groups, groups)


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="'blocks 7': 'inputs'; this program has the kinds blocks 0"):
        recompute.applied(row, {"blocks 7": "inputs"})(*arguments())
    with pytest.raises(ValueError, match="'nothing'; .* products, inputs, few inputs can be kept"):
        recompute.applied(row, {"blocks 0": "nothing"})(*arguments())
