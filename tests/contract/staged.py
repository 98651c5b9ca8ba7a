"""Small trainings that are cut into stages."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import flowaware_core as fa

LAYERS, WIDTH, WORDS, LENGTH, ROWS = 3, 8, 11, 4, 32


def cluster(
    bandwidth: float = 1e12, inside: float = 1e13, latency: float = 1e-9, memory: int = 16 * fa.GIB
) -> fa.Cluster:
    """Two halves of four cards, `bandwidth` between and `inside` them."""
    card = fa.Device("card", memory, {"float32": 1e13}, 1e12)
    return fa.Cluster("two", card, (fa.Level("half", 2, bandwidth, latency), fa.Level("card", 4, inside, latency)))


def weights(key: jax.Array) -> Any:
    keys = jax.random.split(key, LAYERS + 1)
    layers = {
        f"layer{i}": {"w": jax.random.normal(keys[i], (WIDTH, WIDTH)) / 2, "b": jnp.zeros(WIDTH)} for i in range(LAYERS)
    }
    return {"embed": jax.random.normal(keys[-1], (WORDS, WIDTH)), **layers}


def language(params: Any, extra: Any, batch: Any, key: jax.Array) -> fa.Outcome:
    """A tied embedding at either end, dropout, and a mean over tokens that are not masked."""
    del extra
    x = params["embed"][batch["x"]]
    for index, each in enumerate(jax.random.split(key, LAYERS)):
        layer = params[f"layer{index}"]
        x = x + jnp.tanh(x @ layer["w"] + layer["b"]) * jax.random.bernoulli(each, 0.9, x.shape)
    scores = jax.nn.log_softmax(x @ params["embed"].T)
    known = batch["y"] >= 0
    found = jnp.take_along_axis(scores, jnp.maximum(batch["y"], 0)[..., None], -1)[..., 0]
    right = jnp.sum((scores.argmax(-1) == batch["y"]) & known)
    return fa.Outcome(
        {"entropy": fa.Mean(-jnp.sum(found * known), jnp.sum(known))}, {"accuracy": fa.Mean(right, jnp.sum(known))}
    )


def normalised(params: Any, extra: Any, batch: Any, key: jax.Array) -> fa.Outcome:
    """Batch statistics, which micro-batches change in turn, in every layer."""
    del key
    x, after = params["embed"][batch["x"]].mean(1), {}
    for index in range(LAYERS):
        layer = params[f"layer{index}"]
        y = x @ layer["w"]
        mean = y.mean(0)
        after[f"layer{index}"] = 0.9 * extra[f"layer{index}"] + 0.1 * mean
        x = x + jnp.tanh(y - mean + layer["b"])
    error = jnp.sum((x.sum(-1) - batch["y"].sum(-1)) ** 2)
    return fa.Outcome({"error": fa.Mean(error, jnp.asarray(x.shape[0]))}, {}, after)


def data() -> Any:
    draw = np.random.default_rng(0)
    return {"x": draw.integers(0, WORDS, (ROWS, LENGTH)), "y": draw.integers(-2, WORDS, (ROWS, LENGTH))}


def deep(layers: int = 12, width: int = 1024, rows: int = 8192) -> tuple[fa.Training, Any, Any]:
    """A deep and narrow model, abstract: training, state and batch."""

    def loss(params: Any, extra: Any, batch: Any, key: Any) -> fa.Outcome:
        del extra, key
        x = batch["x"]
        for number in range(layers):
            x = x + jnp.tanh(x @ params[f"layer{number}"])
        return fa.Outcome({"e": fa.Mean(jnp.sum((x - batch["y"]) ** 2), jnp.asarray(x.shape[0]))})

    training, shape = fa.Training(loss, optax.sgd(0.1), splits=True), jax.ShapeDtypeStruct
    params = {f"layer{number}": jnp.zeros((width, width)) for number in range(layers)}
    state = jax.eval_shape(lambda: training.initial(params, jax.random.key(0)))
    return training, state, {name: shape((rows, width), "float32") for name in "xy"}
