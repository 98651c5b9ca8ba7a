"""A program in words: its dimensions by the arguments that have them, its conflicts, blocks and backbone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import flowaware_core as fa
from flowaware_core.graph.blocks import conflicts, repeated
from flowaware_core.outline import dimensions
from flowaware_core.program import Program

f32 = jnp.float32


def deep(layers: int) -> Any:
    def forward(x: Any, weights: Any) -> Any:
        for w in weights:
            x = x + jnp.tanh(jax.nn.standardize(x) @ w)
        return x.sum()

    return forward, (jax.ShapeDtypeStruct((8, 32), f32), [jax.ShapeDtypeStruct((32, 32), f32)] * layers)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T) @ v


def test_a_dimension_is_named_by_its_arguments() -> None:
    program = Program.of(fa.Task(lambda x, w: jnp.tanh(x @ w), (jnp.ones((8, 16)), jnp.ones((16, 32)))))
    found = {dimension.places: dimension for dimension in dimensions(program.graph, program.structure)}
    assert found[("0", 0),].lengths == (8,)
    assert found[("0", 1), ("1", 0)].lengths == (16,)
    assert found[("1", 1),].tensors == 3, "the weight, the product, its tanh"


def test_positions_of_queries_and_keys_conflict_where_they_are_the_same() -> None:
    x = jnp.ones((16, 8))
    program = Program.of(fa.Task(lambda x: attention(x, x, x), (x,)))
    assert [operator.primitive for operator, _ in conflicts(program.structure)] == ["dot_general", "dot_general"]
    apart = Program.of(fa.Task(attention, (x, jnp.ones((32, 8)), jnp.ones((32, 8)))))
    assert not conflicts(apart.structure)


def test_blocks_and_what_passes_between_them() -> None:
    function, args = deep(12)
    graph = Program.of(fa.Task(function, args)).graph
    (blocks,) = repeated(graph)
    assert blocks.count == 12
    assert blocks.length * 12 <= len(graph.operators) < blocks.length * 12 + 8
    assert graph.tensors[blocks.passed[0]].shape == (8, 32)


def test_no_blocks_where_nothing_repeats() -> None:
    assert repeated(Program.of(fa.Task(lambda x: jnp.sin(x) @ x, (jnp.ones((4, 4)),))).graph) == ()
    assert repeated(Program.of(fa.Task(lambda: 0.0, ())).graph) == ()


def test_the_outline_says_it_all() -> None:
    text = fa.describe(*deep(12))
    assert "length 32" in text and "dimension 0 of 0" in text
    assert "12 blocks of" in text and "float32[8, 32]" in text and "test_outline.py" in text
    looped = fa.describe(
        lambda x: jax.lax.scan(lambda h, _: (attention(h, h, h), None), x, length=5)[0], (jnp.ones((16, 8)),)
    )
    assert "a loop of 5 rounds" in looped
    assert "twice in dot_general at test_outline.py" in looped
