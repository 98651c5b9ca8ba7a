"""Lengths that four devices do not divide: shards are padded, and what is summed must not see the padding."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.contract.cases.values import Case, flags, real, whole

NHWC = ("NHWC", "HWIO", "NHWC")


def _conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)


CASES: dict[str, Case] = {
    "elementwise": (lambda x, y: jnp.exp(x) / (1 + y**2), (real(7, 10), real(7, 10, seed=1))),
    "exp sum": (lambda x: jnp.exp(x).sum(), (real(7, 10),)),
    "sums": (lambda x: (x.sum(0), x.mean(1)), (real(7, 10),)),
    "max of negatives": (lambda x: (-jnp.abs(x) - 1).max(0), (real(7, 10),)),
    "min of positives": (lambda x: (jnp.abs(x) + 1).min(1), (real(7, 10),)),
    "prod": (lambda x: jnp.prod(1 + x / 9, 0), (real(7, 10),)),
    "all": (lambda x: x.all(0), (flags(7, 10),)),
    "argmax": (lambda x: jnp.argmax(-jnp.abs(x) - 1, 1), (real(7, 10),)),
    "dot": (jnp.dot, (real(7, 10), real(10, 6))),
    "dot gradient": (jax.grad(lambda x, y: (jnp.exp(x @ y)).sum(), (0, 1)), (real(7, 10), real(10, 6))),
    "dot of stacks": (jnp.matmul, (real(5, 7, 10), real(5, 10, 6))),
    "softmax": (jax.nn.softmax, (real(7, 10),)),
    "broadcast": (lambda x: jnp.broadcast_to(x[:, None], (7, 6, 10)) * 2, (real(7, 10),)),
    "transpose": (lambda x: jnp.transpose(x, (2, 0, 1)), (real(5, 6, 7),)),
    "iota": (lambda: jnp.arange(10) * 2, ()),
    "random": (lambda: jax.random.uniform(jax.random.key(0), (7, 10)), ()),
    "convolution": (_conv, (real(7, 6, 6, 5), real(3, 3, 5, 6))),
    "convolution gradient": (
        jax.grad(lambda x, w: (jnp.exp(_conv(x, w) / 9)).sum(), (0, 1)),
        (real(7, 6, 6, 5), real(3, 3, 5, 6)),
    ),
    "pool": (
        lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
        (-np.abs(real(7, 6, 6, 5)) - 1,),
    ),
    "embedding": (lambda t, i: t[i], (real(10, 6), whole(7, high=10))),
    "embedding gradient": (jax.grad(lambda t, i: jnp.exp(t[i]).sum()), (real(10, 6), whole(7, high=10))),
    "scatter": (lambda u, i: jnp.zeros((10, 6)).at[i].add(u), (real(7, 6), whole(7, high=10))),
    "cumsum": (lambda x: jnp.cumsum(x, 1), (real(7, 10),)),
    "sort": (lambda x: jnp.sort(x, 1), (real(7, 10),)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y], 1), (real(7, 6), real(7, 10))),
    "slice": (lambda x: x[:, 2:5], (real(7, 10),)),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 2))), (real(7, 10),)),
}
