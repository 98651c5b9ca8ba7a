"""Small dense networks on plain dictionaries: {"0": {"w": [in, out], "b": [out], "idt": [out]}, "1": ...}.

A layer whose output is as wide as its input adds the input; one twice as wide adds it to both halves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

Layer = Mapping[str, jax.Array]
Network = Mapping[str, Layer]

Draw = Callable[[tuple[int, ...]], jax.Array]
"""Gives an array of a shape of normal random numbers: mean 0, variance 1, others at every call."""

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
    "gelu": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_tf": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
    "linear": lambda x: x,
    "none": lambda x: x,
}


def network(layers: Network, x: jax.Array, activation: str) -> jax.Array:
    """Applies all layers to x [..., in]."""
    act = ACTIVATIONS[activation]
    for index in range(len(layers)):
        x = residual_layer(layers[str(index)], x, act)
    return x


def residual_layer(layer: Layer, x: jax.Array, act: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """One layer with what it skips."""
    inside, outside = layer["w"].shape
    # A product with one number per row is no matrix product: it then fuses with what follows.
    product = x * layer["w"][0] if inside == 1 else x @ layer["w"]
    y = act(product + layer["b"]) if "b" in layer else act(product)
    if "idt" in layer:
        y = y * layer["idt"]
    if outside == inside:
        return y + x
    if outside == 2 * inside:
        return y + jnp.concatenate([x, x], axis=-1)
    return y


def fitting_network(layers: Network, x: jax.Array, activation: str) -> jax.Array:
    """Hidden layers, then a linear one without a skip: [..., in] -> [..., out]."""
    hidden = {name: layer for name, layer in layers.items() if int(name) < len(layers) - 1}
    last = layers[str(len(layers) - 1)]
    return network(hidden, x, activation) @ last["w"] + last["b"]


def embedding_parameters(draw: Draw, inside: int, widths: Sequence[int], resnet_dt: bool) -> Any:
    """Random layers: weights with variance 1 / (in + out), biases with variance 1, step sizes about 0.1."""
    layers = {}
    for index, outside in enumerate(widths):
        skips = outside in (inside, 2 * inside)
        layers[str(index)] = layer_parameters(draw, inside, outside, resnet_dt and skips)
        inside = outside
    return layers


def fitting_parameters(draw: Draw, inside: int, widths: Sequence[int], resnet_dt: bool) -> Any:
    """Random hidden layers and a linear one, whose bias is random too, as in deepmd-kit."""
    layers: dict[str, Any] = {}
    for index, outside in enumerate(widths):
        skips = outside == inside
        layers[str(index)] = layer_parameters(draw, inside, outside, resnet_dt and skips)
        inside = outside
    layers[str(len(widths))] = layer_parameters(draw, inside, 1, False)
    return layers


def layer_parameters(draw: Draw, inside: int, outside: int, idt: bool) -> dict[str, jax.Array]:
    layer = {"w": draw((inside, outside)) / (inside + outside) ** 0.5, "b": draw((outside,))}
    if idt:
        layer["idt"] = 0.1 + 0.001 * draw((outside,))
    return layer
