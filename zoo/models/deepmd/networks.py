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


def embedding_parameters(key: jax.Array, inside: int, widths: Sequence[int], resnet_dt: bool, dtype: Any) -> Any:
    """Random layers: weights with variance 1 / (in + out), biases with variance 1, step sizes about 0.1."""
    layers = {}
    for index, outside in enumerate(widths):
        skips = outside in (inside, 2 * inside)
        layers[str(index)] = layer_parameters(
            jax.random.fold_in(key, index), inside, outside, resnet_dt and skips, dtype
        )
        inside = outside
    return layers


def fitting_parameters(key: jax.Array, inside: int, widths: Sequence[int], resnet_dt: bool, dtype: Any) -> Any:
    """Random hidden layers and a last one with bias 0: the energy of a type starts at its bias."""
    layers: dict[str, Any] = {}
    for index, outside in enumerate(widths):
        skips = outside == inside
        layers[str(index)] = layer_parameters(
            jax.random.fold_in(key, index), inside, outside, resnet_dt and skips, dtype
        )
        inside = outside
    last = layer_parameters(jax.random.fold_in(key, len(widths)), inside, 1, False, dtype)
    layers[str(len(widths))] = {**last, "b": jnp.zeros(1, dtype)}
    return layers


def layer_parameters(key: jax.Array, inside: int, outside: int, idt: bool, dtype: Any) -> dict[str, jax.Array]:
    weights, biases, steps = jax.random.split(key, 3)
    layer = {
        "w": jax.random.normal(weights, (inside, outside), dtype) / (inside + outside) ** 0.5,
        "b": jax.random.normal(biases, (outside,), dtype),
    }
    if idt:
        layer["idt"] = 0.1 + 0.001 * jax.random.normal(steps, (outside,), dtype)
    return layer
