"""Layers of Flax and Haiku with their initialisers and gradients, updates and losses of Optax."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.contract.cases.values import Case, flags, real, single, whole

X = single(8, 16, 24)


def _squares(tree: Any) -> Any:
    return sum((leaf**2).mean() for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating))


def _flax(layer: nn.Module, *inputs: Any, **options: Any) -> Case:
    """Initialises a layer and differentiates it with respect to its parameters."""

    def gradients(*inputs: Any) -> Any:
        variables = layer.init({"params": jax.random.key(0), "dropout": jax.random.key(2)}, *inputs, **options)
        state = {name: tree for name, tree in variables.items() if name != "params"}

        def loss(params: Any) -> Any:
            rngs = {"dropout": jax.random.key(1)}
            return _squares(
                layer.apply({"params": params, **state}, *inputs, **options, mutable=list(state), rngs=rngs)
            )

        return jax.grad(loss)(variables["params"])

    return gradients, inputs


def _haiku(function: Any, *inputs: Any) -> Case:
    """Initialises a layer and differentiates it with respect to its parameters."""
    layer = hk.transform_with_state(function)

    def gradients(*inputs: Any) -> Any:
        params, state = layer.init(jax.random.key(0), *inputs)
        return jax.grad(lambda params: _squares(layer.apply(params, state, jax.random.key(1), *inputs)[0]))(params)

    return gradients, inputs


class _Block(nn.Module):
    """A layer that is repeated."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return nn.relu(nn.Dense(self.features)(x)), None


def _optax(transformation: optax.GradientTransformation) -> Case:
    """Two updates of a small tree of parameters."""
    params = {"w": single(16, 24), "b": single(24)}

    def updates(params: Any) -> Any:
        state = transformation.init(params)
        for _ in range(2):
            change, state = transformation.update(params, state, params)
            params = optax.apply_updates(params, change)
        return params

    return updates, (params,)


CASES: dict[str, Case] = {
    "flax dense": _flax(nn.Dense(32), X),
    "flax dense general": _flax(nn.DenseGeneral((8, 8), axis=-1), X),
    "flax conv": _flax(nn.Conv(16, (3, 3)), single(8, 8, 8, 8)),
    "flax conv transpose": _flax(nn.ConvTranspose(16, (3, 3), (2, 2)), single(8, 8, 8, 8)),
    "flax depthwise conv": _flax(nn.Conv(8, (3, 3), feature_group_count=8), single(8, 8, 8, 8)),
    "flax embed": _flax(nn.Embed(32, 24), whole(8, 16, high=32)),
    "flax layer norm": _flax(nn.LayerNorm(), X),
    "flax rms norm": _flax(nn.RMSNorm(), X),
    "flax group norm": _flax(nn.GroupNorm(8), single(8, 8, 8, 16)),
    "flax batch norm": _flax(nn.BatchNorm(use_running_average=False), X),
    "flax weight norm": _flax(nn.WeightNorm(nn.Dense(16)), X),
    "flax attention": _flax(nn.MultiHeadDotProductAttention(8, qkv_features=32), X, X),
    "flax attention with mask": _flax(
        nn.MultiHeadDotProductAttention(8, qkv_features=32), X, X, mask=nn.make_causal_mask(np.ones((8, 16)))
    ),
    "flax dropout": _flax(nn.Sequential([nn.Dense(16), nn.Dropout(0.5, deterministic=False)]), X),
    "flax lstm": _flax(nn.RNN(nn.OptimizedLSTMCell(16)), X),
    "flax gru": _flax(nn.RNN(nn.GRUCell(16)), X),
    "flax bidirectional": _flax(nn.Bidirectional(nn.RNN(nn.GRUCell(16)), nn.RNN(nn.GRUCell(16))), X),
    "flax conv lstm": _flax(nn.RNN(nn.ConvLSTMCell(8, (3, 3))), single(8, 2, 8, 8, 4)),
    "flax scan of remat": _flax(
        nn.scan(nn.remat(_Block), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)(24), X, None
    ),
    "flax pools": _flax(
        nn.Sequential(
            [nn.Conv(8, (3, 3)), lambda x: nn.max_pool(x, (2, 2), (2, 2)), lambda x: nn.avg_pool(x, (2, 2), (2, 2))]
        ),
        single(8, 8, 8, 8),
    ),
    "haiku linear": _haiku(lambda x: hk.Linear(32)(x), X),
    "haiku conv": _haiku(lambda x: hk.Conv2D(16, 3)(x), single(8, 8, 8, 8)),
    "haiku conv transpose": _haiku(lambda x: hk.Conv2DTranspose(16, 3, 2)(x), single(8, 8, 8, 8)),
    "haiku depthwise": _haiku(lambda x: hk.DepthwiseConv2D(2, 3)(x), single(8, 8, 8, 8)),
    "haiku embed": _haiku(lambda i: hk.Embed(32, 24)(i), whole(8, 16, high=32)),
    "haiku layer norm": _haiku(lambda x: hk.LayerNorm(-1, True, True)(x), X),
    "haiku batch norm": _haiku(lambda x: hk.BatchNorm(True, True, 0.9)(x, True), X),
    "haiku group norm": _haiku(lambda x: hk.GroupNorm(8)(x), single(8, 8, 8, 16)),
    "haiku attention": _haiku(lambda x: hk.MultiHeadAttention(8, 4, w_init_scale=1.0)(x, x, x), X),
    "haiku lstm": _haiku(lambda x: hk.dynamic_unroll(hk.LSTM(16), x, hk.LSTM(16).initial_state(16))[0], X),
    "haiku gru": _haiku(lambda x: hk.dynamic_unroll(hk.GRU(16), x, hk.GRU(16).initial_state(16))[0], X),
    "haiku dropout": _haiku(lambda x: hk.dropout(hk.next_rng_key(), 0.5, hk.Linear(16)(x)), X),
    "haiku pools": _haiku(
        lambda x: hk.AvgPool(2, 2, "SAME")(hk.MaxPool(2, 2, "SAME")(hk.Conv2D(8, 3)(x))), single(8, 8, 8, 8)
    ),
    **{
        f"optax {name}": _optax(getattr(optax, name)(1e-3))
        for name in """adabelief adadelta adafactor adagrad adam adamax adamaxw adamw amsgrad fromage lamb lars lion nadam noisy_sgd
        novograd radam rmsprop rprop sgd sign_sgd sm3 yogi""".split()
        if hasattr(optax, name)
    },
    "optax clip": _optax(
        optax.chain(optax.clip_by_global_norm(1.0), optax.add_decayed_weights(0.1), optax.sgd(0.1, 0.9, True))
    ),
    "optax schedule": _optax(optax.adam(optax.warmup_cosine_decay_schedule(0.0, 1.0, 2, 10))),
    "optax accumulation": _optax(optax.MultiSteps(optax.adam(1e-3), 2).gradient_transformation()),
    "optax losses": (
        lambda x, k: (
            optax.softmax_cross_entropy_with_integer_labels(x, k).mean(),
            optax.sigmoid_binary_cross_entropy(x, x > 0).mean(),
            optax.huber_loss(x).mean(),
            optax.cosine_similarity(x, x + 1).mean(),
        ),
        (real(16, 24), whole(16, high=24)),
    ),
    "optax ctc": (
        lambda x, p, k, q: optax.ctc_loss(x, p, k, q),
        (real(8, 6, 5), np.zeros((8, 6)), 1 + whole(8, 3, high=4), np.zeros((8, 3))),
    ),
    "masked mean": (lambda x, m: jnp.where(m, x, 0).sum() / m.sum(), (real(16, 24), flags(16, 24))),
}
