"""FLOPs against XLA's own count where there are no loops, and against that count times the trips where there are."""

import jax
import jax.numpy as jnp
import pytest

from flowaware_core import hlo, versions


def array(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype)


def convolution(strides=(1, 1), groups=1, dilation=(1, 1)):
    def run(x, k):
        y = jax.lax.conv_general_dilated(
            x,
            k,
            strides,
            "SAME",
            rhs_dilation=dilation,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return (y * y).sum()

    return jax.grad(run, argnums=(0, 1))


def attention(q, k, v):
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v).sum()


def pooled(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME").sum()


PROGRAMS = {
    "matrix product": (lambda a, b: jnp.tanh(a @ b), (array(96, 64), array(64, 160))),
    "convolution": (convolution(), (array(2, 16, 16, 8), array(3, 3, 8, 4))),
    "strided convolution": (convolution((2, 2)), (array(2, 17, 16, 8), array(3, 3, 8, 4))),
    "dilated convolution": (convolution((1, 1), 1, (2, 2)), (array(2, 16, 16, 8), array(3, 3, 8, 4))),
    "depthwise convolution": (convolution((1, 1), 8), (array(2, 16, 16, 8), array(3, 3, 1, 8))),
    "attention": (jax.grad(attention, argnums=(0, 1, 2)), (array(2, 32, 4, 16),) * 3),
    "pooling": (pooled, (array(2, 33, 32, 4),)),
    "cumulative sum": (lambda x: jnp.cumsum(x, 1), (array(8, 64),)),
    "transform": (jnp.fft.fft, (array(8, 64, dtype="complex64"),)),
    "sort": (lambda x: jnp.sort(x, -1), (array(8, 64),)),
    "bfloat16": (lambda a, b: jax.nn.relu(a @ b), (array(64, 64, dtype="bfloat16"),) * 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_the_compilers_count(name):
    function, args = PROGRAMS[name]
    compiled = jax.jit(function).lower(*args).compile()
    assert hlo.flops(compiled.as_text()) == pytest.approx(versions.cost(compiled)["flops"], rel=1e-3)


def test_loops_count_as_often_as_they_run():
    def layers(x, ws):
        return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0]

    text = jax.jit(layers).lower(array(32, 64), array(10, 64, 64)).compile().as_text()
    assert hlo.flops(text) == pytest.approx(10 * 2 * 32 * 64 * 64, rel=1e-3)


def test_unknown_trips_are_none():
    def halve(x):
        return jax.lax.while_loop(lambda s: s.sum() > 1, lambda s: s / 2, x)

    assert hlo.flops(jax.jit(halve).lower(array(64)).compile().as_text()) is None


def test_the_dearest_branch_counts():
    def run(p, x):
        return jax.lax.cond(p > 0, lambda x: x @ x, lambda x: x, x)

    text = jax.jit(run).lower(array(), array(64, 64)).compile().as_text()
    assert hlo.flops(text) == pytest.approx(2 * 64**3, rel=1e-3)
