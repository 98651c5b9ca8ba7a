"""Changes of shape, slices, joins, reductions, cumulative sums, sorting."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.contract.cases.values import Case, flags, real, waves, whole

CUBE = real(8, 16, 24)


def _variadic(x: jax.Array, k: jax.Array) -> tuple[jax.Array, ...]:
    """A reduction with a computation of its own over two operands."""
    better = lambda a, b: (jnp.maximum(a[0], b[0]), jnp.where(a[0] >= b[0], a[1], b[1]))
    return lax.reduce((x, k), (np.float64(-np.inf), np.int32(0)), better, (1,))


CASES: dict[str, Case] = {
    "broadcast": (lambda x: jnp.broadcast_to(x[:, None], (16, 8, 24)), (real(16, 24),)),
    "broadcast of length one": (lambda x: jnp.broadcast_to(x, (16, 24)), (real(16, 1),)),
    "broadcast of a scalar": (lambda x: jnp.full((16, 24), x), (1.5,)),
    "transpose": (lambda x: jnp.transpose(x, (2, 0, 1)), (CUBE,)),
    "swapaxes": (lambda x: jnp.swapaxes(x, 0, 2), (CUBE,)),
    "reshape merges": (lambda x: x.reshape(128, 24), (CUBE,)),
    "reshape splits": (lambda x: x.reshape(16, 8, 24), (real(128, 24),)),
    "reshape merges minor": (lambda x: x.reshape(8, 384), (CUBE,)),
    "reshape splits minor": (lambda x: x.reshape(8, 16, 24), (real(8, 384),)),
    "reshape regroups": (lambda x: x.reshape(16, 8, 24), (real(32, 4, 24),)),
    "reshape flattens": (lambda x: x.reshape(-1), (CUBE,)),
    "reshape with ones": (lambda x: x.reshape(8, 1, 16, 1, 24), (CUBE,)),
    "ravel of a column": (lambda x: x.reshape(16, 1, 24).reshape(384), (real(16, 24),)),
    "squeeze": (lambda x: lax.squeeze(x, (1,)), (real(16, 1, 24),)),
    "expand_dims": (lambda x: lax.expand_dims(x, (1,)), (real(16, 24),)),
    "flip": (lambda x: jnp.flip(x, 1), (CUBE,)),
    "roll": (lambda x: jnp.roll(x, 3, 1), (CUBE,)),
    "rot90": (jnp.rot90, (real(16, 24),)),
    "tile": (lambda x: jnp.tile(x, (2, 3)), (real(16, 24),)),
    "repeat": (lambda x: jnp.repeat(x, 2, axis=0), (real(16, 24),)),
    "iota": (lambda: lax.broadcasted_iota(jnp.int32, (16, 24), 1), ()),
    "arange": (lambda: jnp.arange(64) * 2, ()),
    "linspace": (lambda x: jnp.linspace(0.0, x, 64), (2.0,)),
    "eye": (lambda: jnp.eye(16, 24), ()),
    "tril": (jnp.tril, (real(16, 24),)),
    "diag": (jnp.diag, (real(16),)),
    "diagonal": (jnp.diagonal, (real(16, 16),)),
    "trace": (jnp.trace, (real(16, 16),)),
    "meshgrid": (lambda x, y: jnp.meshgrid(x, y, indexing="ij"), (real(16), real(24))),
    "outer": (jnp.outer, (real(16), real(24))),
    "kron": (jnp.kron, (real(8, 8), real(8, 16))),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (3, 5))), (real(16, 24),)),
    "pad inside": (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (2, 1, 3))), (real(16, 24),)),
    "pad negative": (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (-8, 0, 0))), (real(16, 24),)),
    "pad keeps the length": (lambda x: lax.pad(x, 0.0, ((0, 0, 0), (3, -3, 0))), (real(16, 24),)),
    "pad by an edge": (lambda x: jnp.pad(x, ((0, 0), (3, 5)), mode="reflect"), (real(16, 24),)),
    "slice": (lambda x: x[:, 8:16], (CUBE,)),
    "slice with stride": (lambda x: x[:, ::2], (CUBE,)),
    "slice gradient": (jax.grad(lambda x: (x[:, 8:16] ** 2).sum()), (CUBE,)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y], 1), (real(16, 8), real(16, 24))),
    "concatenate equal": (lambda x, y: jnp.concatenate([x, y], 0), (real(16, 24), real(16, 24, seed=1))),
    "stack": (lambda x, y: jnp.stack([x, y], 1), (real(16, 24), real(16, 24, seed=1))),
    "split": (lambda x: jnp.split(x, 3, 1), (real(16, 24),)),
    "lax.split": (lambda x: lax.split(x, (8, 16), 1) if hasattr(lax, "split") else x[:, :8], (real(16, 24),)),
    "unstack": (lambda x: jnp.unstack(x, axis=1) if hasattr(jnp, "unstack") else x, (real(16, 2, 24),)),
    "array_split": (lambda x: jnp.array_split(x, 3, 0), (real(16, 24),)),
    "block": (lambda x: jnp.block([[x, x], [x, x]]), (real(16, 24),)),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (0 * i, i, 0 * i), (8, 4, 24)), (CUBE, np.int32(3))),
    "dynamic_slice with batch": (lambda x, i: lax.dynamic_slice_in_dim(x, i, 8, 1), (CUBE, np.int32(5))),
    "dynamic_slice over batch": (
        jax.vmap(lambda x, i: lax.dynamic_slice_in_dim(x, i, 4, 0)),
        (CUBE, whole(8, high=12)),
    ),
    "dynamic_update_slice": (
        lambda x, y, i: lax.dynamic_update_slice(x, y, (0 * i, i, 0 * i)),
        (CUBE, real(8, 4, 24), np.int32(3)),
    ),
    "dynamic_update_slice over batch": (
        jax.vmap(lambda x, y, i: lax.dynamic_update_slice_in_dim(x, y, i, 0)),
        (CUBE, real(8, 4, 24), whole(8, high=12)),
    ),
    "dynamic_slice gradient": (
        jax.grad(lambda x, i: (lax.dynamic_slice_in_dim(x, i, 4, 1) ** 2).sum()),
        (CUBE, np.int32(3)),
    ),
    "sum": (lambda x: (x.sum(), x.sum(0), x.sum((0, 2))), (CUBE,)),
    "sum of integers": (lambda x: (x.sum(), x.sum(0)), (whole(16, 24, high=99),)),
    "sum of narrow numbers": (lambda x: x.astype(jnp.float32).sum(1), (real(16, 24),)),
    "max and min": (lambda x: (x.max(1), x.min(0), x.max()), (CUBE,)),
    "max of integers": (lambda x: (x.max(1), x.min(0)), (whole(16, 24, high=99),)),
    "prod": (lambda x: jnp.prod(1 + x / 100, axis=1), (CUBE,)),
    "any and all": (lambda x: (x.any(1), x.all(0)), (flags(16, 24),)),
    "reduce xor": (lambda x: lax.reduce_xor_p.bind(x, axes=(1,)), (whole(16, 24, high=99),)),
    "reduce or of integers": (lambda x: lax.reduce_or_p.bind(x, axes=(1,)), (whole(16, 24, high=99),)),
    "reduce and of integers": (lambda x: lax.reduce_and_p.bind(x, axes=(1,)), (whole(16, 24, high=99),)),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), (CUBE,)),
    "mean, var, std": (lambda x: (x.mean(1), x.var(0), x.std()), (CUBE,)),
    "median": (lambda x: jnp.median(x, 1), (real(16, 24),)),
    "quantile": (lambda x: jnp.quantile(x, 0.3, axis=1), (real(16, 24),)),
    "norm": (lambda x: jnp.linalg.norm(x, axis=1), (real(16, 24),)),
    "reduce": (lambda x: lax.reduce(x, np.float64(0), lax.add, (1,)), (real(16, 24),)),
    "reduce with a computation": (
        lambda x: lax.reduce(x, np.float64(0), lambda a, b: a + b + 0.1 * a * b, (1,)),
        (real(16, 24),),
    ),
    "reduce of several": (_variadic, (real(16, 24), whole(16, 24))),
    "sum of complex numbers": (lambda x: x.sum(1), (waves(16, 24),)),
    "max gradient": (jax.grad(lambda x: x.max(1).sum()), (real(16, 24),)),
    "cumsum": (lambda x: jnp.cumsum(x, 1), (CUBE,)),
    "cumprod": (lambda x: jnp.cumprod(1 + x / 100, 1), (CUBE,)),
    "cummax": (lambda x: lax.cummax(x, 1), (CUBE,)),
    "cummin": (lambda x: lax.cummin(x, 1, reverse=True), (CUBE,)),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1), (CUBE,)),
    "cumsum gradient": (jax.grad(lambda x: (jnp.cumsum(x, 1) ** 2).sum()), (CUBE,)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.add, x, axis=1), (CUBE,)),
    "diff": (lambda x: jnp.diff(x, axis=1), (real(16, 24),)),
    "gradient": (lambda x: jnp.gradient(x, axis=1), (real(16, 24),)),
    "trapezoid": (lambda x: jnp.trapezoid(x, axis=1), (real(16, 24),)),
    "sort": (lambda x: jnp.sort(x, 1), (CUBE,)),
    "sort of two": (lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), (CUBE, whole(8, 16, 24))),
    "argsort": (lambda x: jnp.argsort(x, 1), (CUBE,)),
    "sort gradient": (jax.grad(lambda x: (jnp.sort(x, 1)[:, 0] ** 2).sum()), (real(16, 24),)),
    "lexsort": (lambda x, y: jnp.lexsort((x, y)), (real(64), real(64, seed=1))),
    "top_k": (lambda x: lax.top_k(x, 3), (CUBE,)),
    "approx_max_k": (lambda x: lax.approx_max_k(x, 3), (CUBE.astype(np.float32),)),
    "searchsorted": (lambda x, v: jnp.searchsorted(x, v), (np.sort(real(64)), real(32))),
    "searchsorted by sort": (lambda x, v: jnp.searchsorted(x, v, method="sort"), (np.sort(real(64)), real(32))),
    "digitize": (lambda x, v: jnp.digitize(v, x), (np.sort(real(64)), real(32))),
    "histogram": (lambda x: jnp.histogram(x, bins=8, range=(-1.0, 1.0))[0], (real(64),)),
    "bincount": (lambda x: jnp.bincount(x, length=8), (whole(64),)),
    "unique": (lambda x: jnp.unique(x, size=8), (whole(64),)),
    "nonzero": (lambda x: jnp.nonzero(x, size=8), (whole(64, high=2),)),
    "interp": (lambda x: jnp.interp(x, jnp.arange(8.0), jnp.arange(8.0) ** 2), (real(64),)),
    "polyval": (lambda p, x: jnp.polyval(p, x), (real(4), real(16, 24))),
    "convolve": (lambda x, y: jnp.convolve(x, y), (real(64), real(8))),
    "cross": (lambda x, y: jnp.cross(x, y), (real(16, 3), real(16, 3, seed=1))),
    "vander": (lambda x: jnp.vander(x, 4), (real(16),)),
}
