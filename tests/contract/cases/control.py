"""Loops, branches, custom derivatives, recomputation, callbacks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.contract.cases.values import Case, real


@jax.custom_jvp
def _smooth(x: jax.Array) -> jax.Array:
    return jnp.log1p(jnp.exp(x))


_smooth.defjvp(lambda primals, tangents: (_smooth(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]))


@jax.custom_vjp
def _clipped(x: jax.Array) -> jax.Array:
    return x * 2


_clipped.defvjp(lambda x: (_clipped(x), None), lambda _, g: (jnp.clip(g, -1, 1),))


def _scan(x: Any, w: Any) -> Any:
    return lax.scan(lambda h, row: (jnp.tanh(h @ w + row), h.sum(-1)), jnp.zeros((8, 24)), x)


@jax.custom_batching.custom_vmap
def _sine(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


_sine.def_vmap(lambda size, batched, x: (_sine(x), True))


def _unrolled(x: Any) -> Any:
    return lax.fori_loop(0, 3, lambda i, a: a * 1.5 + i, x)


CASES: dict[str, Case] = {
    "scan": (_scan, (real(4, 8, 24), real(24, 24))),
    "scan gradient": (jax.grad(lambda w, x: _scan(x, w)[0].sum()), (real(24, 24), real(4, 8, 24))),
    "while": (lambda x: lax.while_loop(lambda a: a.sum() < 100.0, lambda a: a * 2, x), (np.abs(real(16, 24)),)),
    "fori_loop": (_unrolled, (real(16, 24),)),
    "fori_loop of unknown length": (
        lambda x, n: lax.fori_loop(0, n, lambda i, a: a + i, x),
        (real(16, 24), np.int32(3)),
    ),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda a: a * 2, lambda a: a @ a.T @ a, x), (real(16, 24),)),
    "cond gradient": (jax.grad(lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x).sum()), (real(16, 24),)),
    "switch": (lambda k, x: lax.switch(k, [jnp.sin, jnp.cos, jnp.exp], x), (np.int32(1), real(16, 24))),
    "map": (lambda x: lax.map(lambda row: jnp.sort(row), x), (real(16, 24),)),
    "custom_jvp": (jax.grad(lambda x: _smooth(x).sum()), (real(16, 24),)),
    "custom_vjp": (jax.grad(lambda x: _clipped(x).sum()), (real(16, 24),)),
    "remat": (jax.grad(lambda x, w: jax.checkpoint(lambda a: jnp.sin(a @ w))(x).sum()), (real(16, 24), real(24, 24))),
    "optimization_barrier": (lambda x: lax.optimization_barrier((x, x[:, 0])), (real(16, 24),)),
    "jit": (jax.jit(lambda x: jnp.sin(x)), (real(16, 24),)),
    "named call": (lambda x: jax.named_call(jnp.sin, name="sine")(x), (real(16, 24),)),
    "custom_vmap": (_sine, (real(16, 24),)),
    "platform_dependent": (lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), (real(16, 24),)),
    "custom_root": (
        lambda x: lax.custom_root(
            lambda y: y * y - x,
            x,
            lambda f, y: lax.fori_loop(0, 8, lambda _, z: z - f(z) / (2 * z), y),
            lambda g, y: y / g(1.0),
        ),
        (2.0,),
    ),
    "linear_solve": (
        lambda a, b: lax.custom_linear_solve(lambda x: a @ x, b, lambda _, c: jnp.linalg.inv(a) @ c),
        (np.eye(16) * 2, real(16)),
    ),
    "hessian": (jax.hessian(lambda x: (jnp.sin(x) ** 2).sum()), (real(8),)),
    "jacfwd": (jax.jacfwd(lambda x: jnp.sin(x) @ np.ones((8, 4))), (real(8),)),
    "linearize": (lambda x, v: jax.jvp(jnp.tanh, (x,), (v,)), (real(16, 24), real(16, 24, seed=1))),
    "callback": (
        lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((16, 24), np.float64), x),
        (real(16, 24),),
    ),
}
