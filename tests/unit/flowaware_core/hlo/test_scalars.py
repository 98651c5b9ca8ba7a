"""Trip counts that XLA does not write beside the loop."""

import re

import jax
import jax.numpy as jnp
import pytest

from flowaware_core import hlo
from flowaware_core.hlo.scalars import trip_count


def loops(text, without_note=True):
    """The trip counts of all loops of a program, in text order, found without XLA's own note."""
    text = re.sub(r'"known_trip_count":\{"n":"\d+"\},?', "", text) if without_note else text
    module = hlo.parse(text)
    return [
        trip_count(module, computation, instruction)
        for computation in module.computations.values()
        for instruction in computation.instructions
        if instruction.opcode == "while"
    ]


def compiled(function, *shapes):
    return jax.jit(function).lower(*(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)).compile().as_text()


@pytest.mark.parametrize("length", [2, 5, 1000])
def test_scans_forward_and_reversed(length):
    def step(w, xs):
        total = jax.lax.scan(lambda c, x: (jnp.tanh(c @ w) + x, None), xs[0], xs)[0].sum()
        return total + jax.lax.scan(lambda c, x: (jnp.sin(c) * x, None), xs[0], xs, reverse=True)[0].sum()

    text = compiled(jax.grad(step), (8, 8), (length, 8))
    assert loops(text) == loops(text, without_note=False)
    assert set(loops(text)) == {length}


@pytest.mark.parametrize(("begin", "end"), [(0, 7), (3, 10), (-4, 4), (5, 5)])
def test_counted_loops(begin, end):
    text = compiled(lambda x: jax.lax.fori_loop(begin, end, lambda i, x: jnp.sin(x) * i, x), (64,))
    assert loops(text) in ([], [end - begin])  # no trip, no loop


@pytest.mark.parametrize(
    ("go", "step", "begin", "trips"),
    [
        (lambda i: i < 20, 3, 0, 7),
        (lambda i: i <= 20, 5, 0, 5),
        (lambda i: i > 0, -2, 9, 5),
        (lambda i: 2 * i + 1 < 100, 1, 0, 50),
    ],
)
def test_other_steps_and_conditions(go, step, begin, trips):
    def run(x):
        return jax.lax.while_loop(lambda s: go(s[0]), lambda s: (s[0] + step, jnp.sin(s[1])), (begin, x))[1]

    assert loops(compiled(run, (64,))) == [trips]


def test_a_loop_that_depends_on_data_is_unknown():
    def run(x):
        return jax.lax.while_loop(lambda s: s.sum() > 1, lambda s: s / 2, x)

    assert loops(compiled(run, (64,))) == [None]


def test_loops_in_loops_multiply():
    def run(x):
        return jax.lax.fori_loop(0, 4, lambda _, c: jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c @ c), c), x)

    counts = hlo.parse(compiled(run, (32, 32))).counts
    assert 12 in counts.values() and None not in counts.values()
