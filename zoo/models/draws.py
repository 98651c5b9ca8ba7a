"""Random initial parameters that compile quickly: a hash of each element's number in place of a draw per array.

`jax.random` compiles one generator for every array, a third of a second each on a CPU; a network of hundreds of layers
would wait for them longer than for its training step. Here jax.random gives two words per array, and each element is a
hash of its number and these words. That is elementwise: arrays of any sharding hold the same numbers, and each device
computes its own part alone.

Reference: the mixing constants are those of "lowbias32" (C. Wellons, 2018, public domain), found by search for the least
bias of a two-multiplication 32-bit hash; it is applied twice, once for each word.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from zoo.errors import UserError

FIRST, SECOND = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)


def words(key: jax.Array, count: int) -> jax.Array:
    """Two random words for each of `count` arrays: uint32 [count, 2]."""
    return jax.random.bits(key, (count, 2), jnp.uint32)


def uniform(words: jax.Array, shape: tuple[int, ...], limit: float, dtype: str) -> jax.Array:
    """Numbers spread evenly over [-limit, limit), as random as two words [2] and the hash make them.

    Raises:
        UserError: the array has 2**32 elements or more, so that numbers would repeat.
    """
    if math.prod(shape) >= 2**32:
        raise UserError(
            f"the model has a parameter of shape {list(shape)}, {math.prod(shape)} elements; at most {2**32 - 1} can be drawn; "
            "make the model narrower"
        )
    number = jnp.zeros(shape, jnp.uint32)
    for dim in range(len(shape)):
        stride = np.uint32(math.prod(shape[dim + 1 :]))
        number += jax.lax.broadcasted_iota(jnp.uint32, shape, dim) * stride
    hashed = _mixed(_mixed(number ^ words[0]) + words[1])
    # The highest 24 bits: what a float32 holds exactly.
    return (hashed >> 8).astype(dtype) * (2 * limit / 2**24) - limit


def _mixed(x: jax.Array) -> jax.Array:
    x = (x ^ (x >> 16)) * FIRST
    x = (x ^ (x >> 15)) * SECOND
    return x ^ (x >> 16)
