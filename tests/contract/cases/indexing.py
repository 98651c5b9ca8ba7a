"""Gather and scatter as indexing, embeddings, graphs and their gradients make them; random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.contract.cases.values import Case, real, unit, whole

TABLE = real(32, 24)
ROWS = whole(8, 16, high=32)


def _key() -> Any:
    return jax.random.key(7)


def _scatter(operation: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    return lambda x, i, u: operation(x, i[:, None], u, numbers)


CASES: dict[str, Case] = {
    "take": (lambda x, i: jnp.take(x, i, axis=0), (TABLE, ROWS)),
    "take of columns": (lambda x, i: jnp.take(x, i, axis=1), (TABLE, whole(16, high=24))),
    "take, clipped": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (TABLE, ROWS)),
    "take, filled": (lambda x, i: jnp.take(x, i, axis=0, mode="fill"), (TABLE, ROWS)),
    "embedding": (lambda x, i: x[i], (TABLE, ROWS)),
    "embedding gradient": (jax.grad(lambda x, i: (x[i] ** 2).sum()), (TABLE, ROWS)),
    "index of pairs": (lambda x, i, j: x[i, j], (TABLE, whole(16, high=32), whole(16, high=24))),
    "index of pairs gradient": (
        jax.grad(lambda x, i, j: (x[i, j] ** 2).sum()),
        (TABLE, whole(16, high=32), whole(16, high=24)),
    ),
    "index of a middle dimension": (lambda x, i: x[:, i], (real(8, 16, 24), whole(8, high=16))),
    "index by a scalar": (lambda x, i: x[:, i], (real(8, 16, 24), np.int32(3))),
    "index by numbers": (lambda x: x[:, 3], (real(8, 16, 24),)),
    "index of all dimensions": (lambda x: x[jnp.arange(16), jnp.arange(16)], (real(16, 16),)),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 1), (real(16, 24), whole(16, 8, high=24))),
    "take_along_axis of a cube": (
        lambda x, i: jnp.take_along_axis(x, i, 1),
        (real(8, 16, 24), whole(8, 4, 24, high=16)),
    ),
    "take_along_axis gradient": (
        jax.grad(lambda x, i: (jnp.take_along_axis(x, i, 1) ** 2).sum()),
        (real(16, 24), whole(16, 8, high=24)),
    ),
    "labels of a cross entropy": (
        jax.grad(lambda x, i: jnp.take_along_axis(jax.nn.log_softmax(x), i[:, None], 1).sum()),
        (real(16, 24), whole(16, high=24)),
    ),
    "gather per example": (jax.vmap(lambda x, i: x[i]), (real(8, 16, 24), whole(8, 4, high=16))),
    "gather per example gradient": (
        jax.grad(lambda x, i: (jax.vmap(lambda a, k: a[k])(x, i) ** 2).sum()),
        (real(8, 16, 24), whole(8, 4, high=16)),
    ),
    "gather of windows": (
        lambda x, i: jax.vmap(lambda k: lax.dynamic_slice(x, (k, 0 * k), (4, 24)))(i),
        (TABLE, whole(16, high=28)),
    ),
    "gather of narrow windows": (
        lambda x, i: jax.vmap(lambda k: lax.dynamic_slice(x, (k, 0 * k), (4, 8)))(i),
        (TABLE, whole(16, high=28)),
    ),
    "set": (lambda x, i, u: x.at[i].set(u), (TABLE, np.arange(16, dtype=np.int32), real(16, 24))),
    "set of a column": (lambda x, u: x.at[:, 3].set(u), (TABLE, real(32))),
    "set of a slice": (lambda x, u: x.at[8:16].set(u), (TABLE, real(8, 24))),
    "add": (lambda x, i, u: x.at[i].add(u), (TABLE, whole(16, high=32), real(16, 24))),
    "add to nothing": (lambda i, u: jnp.zeros((32, 24)).at[i].add(u), (whole(16, high=32), real(16, 24))),
    "add of whole numbers": (lambda x, i, u: x.at[i].add(u), (whole(32, 24), whole(16, high=32), whole(16, 24))),
    "add of pairs": (lambda x, i, j: x.at[i, j].add(1.0), (TABLE, whole(16, high=32), whole(16, high=24))),
    "add of a flat list": (lambda x, i, u: x.at[i].add(u), (real(64), whole(8, 16, high=64), real(8, 16))),
    "subtract": (lambda x, i, u: x.at[i].add(-u), (TABLE, whole(16, high=32), real(16, 24))),
    "multiply": (lambda x, i, u: x.at[i].multiply(u), (TABLE, whole(16, high=32), real(16, 24))),
    "max at": (lambda x, i, u: x.at[i].max(u), (TABLE, whole(16, high=32), real(16, 24))),
    "min at": (lambda x, i, u: x.at[i].min(u), (TABLE, whole(16, high=32), real(16, 24))),
    "lax.scatter_sub": (
        _scatter(getattr(lax, "scatter_sub", lax.scatter_add)),
        (TABLE, whole(16, high=32), real(16, 24)),
    ),
    "add per example": (
        jax.vmap(lambda x, i, u: x.at[i].add(u)),
        (real(8, 16, 24), whole(8, 4, high=16), real(8, 4, 24)),
    ),
    "set per example": (jax.vmap(lambda x, i, u: x.at[i].set(u)), (real(8, 16), whole(8, high=16), real(8))),
    "put_along_axis": (
        lambda x, i, u: jnp.put_along_axis(x, i, u, 1, inplace=False) if hasattr(jnp, "put_along_axis") else x,
        (real(16, 24), whole(16, 1, high=24), real(16, 1)),
    ),
    "segment_sum": (
        lambda x, i: jax.ops.segment_sum(x, i, num_segments=16),
        (real(64, 24), np.sort(whole(64, high=16))),
    ),
    "segment_max": (lambda x, i: jax.ops.segment_max(x, i, num_segments=16), (real(64, 24), whole(64, high=16))),
    "segment_min": (lambda x, i: jax.ops.segment_min(x, i, num_segments=16), (real(64, 24), whole(64, high=16))),
    "segment_prod": (lambda x, i: jax.ops.segment_prod(x, i, num_segments=16), (real(64, 24), whole(64, high=16))),
    "messages on a graph": (
        jax.grad(lambda x, s, r: (jax.ops.segment_sum(x[s] * x[r], r, num_segments=32) ** 2).sum()),
        (TABLE, whole(64, high=32), whole(64, high=32, seed=1)),
    ),
    "map_coordinates": (
        lambda x, c: jax.scipy.ndimage.map_coordinates(x, [c[0], c[1]], order=1),
        (real(16, 24), unit(2, 32) * 10),
    ),
    "choose": (
        lambda k, a, b: jnp.choose(k, [a, b], mode="clip"),
        (whole(16, 24, high=2), real(16, 24), real(16, 24, seed=1)),
    ),
    "random bits": (lambda: jax.random.bits(_key(), (16, 24)), ()),
    "random bits of an old key": (lambda k: jax.random.bits(k, (16, 24)), (np.array([0, 7], np.uint32),)),
    "uniform": (lambda: jax.random.uniform(_key(), (16, 24)), ()),
    "normal": (lambda: jax.random.normal(_key(), (16, 24)), ()),
    "truncated normal": (lambda: jax.random.truncated_normal(_key(), -2.0, 2.0, (16, 24)), ()),
    "bernoulli": (lambda: jax.random.bernoulli(_key(), 0.5, (16, 24)), ()),
    "categorical": (lambda x: jax.random.categorical(_key(), x), (real(16, 24),)),
    "randint": (lambda: jax.random.randint(_key(), (16, 24), 0, 10), ()),
    "permutation": (lambda x: jax.random.permutation(_key(), x), (real(64, 8),)),
    "choice": (lambda x: jax.random.choice(_key(), x, (16,)), (real(64),)),
    "gamma": (lambda: jax.random.gamma(_key(), 2.0, (16,)), ()),
    "poisson": (lambda: jax.random.poisson(_key(), 2.0, (16,)), ()),
    "dirichlet": (lambda: jax.random.dirichlet(_key(), jnp.ones(8), (16,)), ()),
    "split and fold_in": (
        lambda: [jax.random.uniform(k, (16,)) for k in jax.random.split(jax.random.fold_in(_key(), 3))],
        (),
    ),
    "one key per example": (lambda: jax.vmap(lambda k: jax.random.normal(k, (24,)))(jax.random.split(_key(), 16)), ()),
    "rng_uniform": (lambda: lax.rng_uniform(0.0, 1.0, (16, 24)) * 0, ()),
    "rng_bit_generator": (lambda: lax.rng_bit_generator(np.arange(4, dtype=np.uint32), (16, 24)), ()),
    "orthogonal": (lambda: jax.random.orthogonal(_key(), 8), ()),
}
