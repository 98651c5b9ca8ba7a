"""Equal layers one after the other, as a scan over them or written out; the same parameters and numbers either way."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

Repeat = Literal["scan", "unrolled"]
REPEATS = ("scan", "unrolled")


class Repeated(nn.Module):
    """`count` layers in a row; every parameter has a leading dimension of `count`.

    A layer is called as `layer(x, *context)` and returns the next `x`, of the same shape; `context` is the same for all.

    Attributes:
        layer: makes an unbound layer.
        count: how many.
        repeat: "scan" compiles one layer and runs it `count` times; "unrolled" compiles each, which takes longer and
            lets the compiler see across layers.
        draws: whether layers draw random numbers (dropout); each gets a key of its own.
    """

    layer: Callable[[], nn.Module]
    count: int
    repeat: Repeat
    draws: bool = False

    @nn.compact
    def __call__(self, x: jax.Array, *context: Any) -> jax.Array:
        layer = self.layer()

        def start(key: jax.Array) -> Any:
            one = lambda key: layer.init({"params": key, "dropout": key}, x, *context)["params"]
            return jax.vmap(one)(jax.random.split(key, self.count))

        params = self.param("layers", start)
        keys = jax.random.split(self.make_rng("dropout"), self.count) if self.draws else None

        def body(x: jax.Array, own: Any) -> tuple[Any, None]:
            params, key = own
            return layer.apply({"params": params}, x, *context, rngs=None if key is None else {"dropout": key}), None

        if self.repeat == "scan":
            return jax.lax.scan(body, x, (params, keys))[0]
        for one, number in zip(layers_of(params, self.count), range(self.count), strict=True):
            x, _ = body(x, (one, None if keys is None else keys[number]))
        return x


def layers_of(params: Any, count: int) -> list[Any]:
    """The parameters of each layer, from those with a leading dimension of `count`."""
    leaves, structure = jax.tree.flatten(params)
    parts = [_split(leaf, count) for leaf in leaves]
    return [jax.tree.unflatten(structure, [part[number] for part in parts]) for number in range(count)]


# Left to itself, the gradient of each slice is a padded array of the whole, and all of them are added up.
@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _split(leaf: jax.Array, count: int) -> tuple[jax.Array, ...]:
    return tuple(leaf[number] for number in range(count))


def _split_forward(leaf: jax.Array, count: int) -> tuple[tuple[jax.Array, ...], None]:
    return _split(leaf, count), None


def _split_backward(count: int, _: None, gradients: tuple[jax.Array, ...]) -> tuple[jax.Array]:
    assert len(gradients) == count
    return (jnp.stack(gradients),)


_split.defvjp(_split_forward, _split_backward)
