from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from flowaware_core.graph.capture import capture
from flowaware_core.graph.model import Constant, Graph
from flowaware_core.task import Task


def graph(function: Any, *args: Any, **options: Any) -> Graph:
    return capture(Task(function, args, **options))


def primitives(found: Graph) -> list[str]:
    return [operator.primitive for operator, _ in found.walk()]


X = np.ones((4, 8), np.float32)


def test_calls_are_flattened() -> None:
    @jax.custom_jvp
    def sine(x: jax.Array) -> jax.Array:
        return jnp.sin(x)

    sine.defjvp(lambda primals, tangents: (sine(*primals), tangents[0]))
    assert primitives(graph(lambda x: jax.jit(lambda y: sine(jax.jit(jnp.cos)(y)))(x), X)) == ["cos", "sin"]


def test_equal_calls_do_not_share_tensors() -> None:
    twice = jax.jit(jnp.sin)
    found = graph(lambda x: twice(twice(x)), X)
    first, second = found.operators
    assert second.operands == first.results != second.results


def test_operators_that_nothing_needs_are_left_out() -> None:
    def wasteful(x: jax.Array) -> jax.Array:
        jnp.cos(x)
        return jnp.sin(x)

    assert primitives(graph(wasteful, X)) == ["sin"]


def test_operators_that_nothing_needs_are_left_out_of_loops() -> None:
    def loop(x: jax.Array) -> Any:
        def body(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
            jnp.cos(row)
            return carry + row, None

        return lax.scan(body, jnp.zeros(8), x)[0]

    assert "cos" not in primitives(graph(loop, X))


def test_effects_are_kept() -> None:
    def talks(x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda value: None, x[0, 0])
        return jnp.sin(x)

    assert "debug_callback" in primitives(graph(talks, X))


def test_operators_are_numbered_in_the_order_of_the_walk() -> None:
    def step(x: jax.Array) -> jax.Array:
        jnp.cos(x)
        return lax.scan(lambda c, row: (jnp.sin(c) + row, None), jnp.zeros(8), x)[0] * 2

    found = graph(step, X)
    assert [operator.id for operator, _ in found.walk()] == list(range(found.num_operators))


def test_a_loop_repeats_its_body() -> None:
    found = graph(lambda x: lax.scan(lambda c, row: (jnp.sin(c) + row, None), jnp.zeros(8), x)[0], X)
    assert {operator.primitive: times for operator, times in found.walk()}["sin"] == 4


def test_a_linear_solve_is_its_solution() -> None:
    found = graph(jnp.linalg.solve, np.eye(4, dtype=np.float32), np.ones(4, np.float32))
    assert "custom_linear_solve" not in primitives(found)
    assert primitives(found).count("triangular_solve") == 2
    assert primitives(found).count("lu") == 1


def test_placements_that_a_function_asks_for_are_the_plans_to_decide() -> None:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def asks(x: jax.Array) -> jax.Array:
        return jnp.sin(lax.with_sharding_constraint(x, here)) + jnp.asarray(np.ones(8, np.float32))

    assert {"sharding_constraint", "device_put"}.isdisjoint(primitives(graph(asks, X)))


def test_a_barrier_ties_each_result_to_its_operand() -> None:
    found = graph(lambda x: lax.optimization_barrier((x, x[0])), X)
    barrier = found.operators[-1]
    assert barrier.primitive == "optimization_barrier"
    assert [(outer, inner) for outer, inner, _ in barrier.ties] == list(
        zip(barrier.operands, barrier.results, strict=True)
    )


def test_keys_are_tensors_of_the_bytes_they_consist_of() -> None:
    found = graph(lambda: jax.random.split(jax.random.key(0), 4))
    keys = [tensor for tensor in found.tensors if tensor.dtype == "key"]
    assert {tensor.itemsize for tensor in keys} == {8}


def test_literal_results_stay_literals() -> None:
    found = graph(lambda x: (x, 3), X)
    assert found.outputs[0] == found.inputs[0]
    assert isinstance(found.outputs[1], Constant)


def test_an_empty_argument_is_no_tensor() -> None:
    found = graph(lambda x, nothing: jnp.sin(x), X, {})
    assert len(found.inputs) == 1


def test_carried_leaves_must_keep_their_shape() -> None:
    with pytest.raises(ValueError, match="argument 0 is carried to result 0, so both must have equal leaves"):
        graph(lambda x: (x[0], x), X, carried={0: 0})
    with pytest.raises(ValueError, match="the step returns 1 results"):
        graph(lambda x: x, X, carried={0: 1})
