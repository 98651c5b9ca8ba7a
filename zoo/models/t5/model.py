"""T5, an encoder and a decoder of text, written for one device.

Shape suffixes: B examples, S source tokens, T target tokens, D hidden, N heads, H size of a head, F intermediate, V
vocabulary.

References:
    Raffel et al. Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer. 2020 (T5 1.0).
    Shazeer. GLU Variants Improve Transformer. 2020 (the gated feed-forward of T5 1.1).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.models.activations import ACTIVATIONS
from zoo.models.attention import attend, dropped, heads, merged
from zoo.models.products import product
from zoo.models.repeat import Repeated
from zoo.models.t5.config import T5Config
from zoo.models.t5.positions import buckets


def _dense(config: T5Config, features: int, std: float) -> nn.Dense:
    return nn.Dense(
        features,
        use_bias=False,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        kernel_init=nn.initializers.normal(std),
        dot_general=product(config.products),
    )


class Norm(nn.Module):
    """Divides by the root of the mean square and scales; no mean is taken off and nothing is added."""

    config: T5Config

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        config = self.config
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), config.param_dtype)
        wide = x.astype(config.param_dtype)
        wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), axis=-1, keepdims=True) + config.norm_epsilon)
        return (wide * scale).astype(config.dtype)


class Attention(nn.Module):
    """Queries of one sequence on keys and values of the same or another; logits are not scaled."""

    config: T5Config
    train: bool = False

    def setup(self) -> None:
        config = self.config
        inner = config.num_heads * config.head_size
        self.query = _dense(config, inner, (config.hidden * config.head_size) ** -0.5)
        self.key = _dense(config, inner, config.hidden**-0.5)
        self.value = _dense(config, inner, config.hidden**-0.5)
        self.output = _dense(config, config.hidden, inner**-0.5)

    def keys_and_values(self, x_BTD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Both [B, T, N, H]."""
        return heads(self.key(x_BTD), self.config.num_heads), heads(self.value(x_BTD), self.config.num_heads)

    def __call__(
        self, x_BSD: jax.Array, source: tuple[jax.Array, jax.Array], mask: jax.Array | None, bias: jax.Array | None
    ) -> jax.Array:
        query_BSNH = heads(self.query(x_BSD), self.config.num_heads)
        rate = self.config.dropout
        dropout = (rate, self.make_rng("dropout")) if self.train and rate else None
        return self.output(merged(attend(query_BSNH, *source, mask, bias, 1.0, dropout)))


class FeedForward(nn.Module):
    """Each token's representation for itself."""

    config: T5Config
    train: bool = False

    def setup(self) -> None:
        config = self.config
        self.up = _dense(config, config.intermediate, config.hidden**-0.5)
        if config.gated:
            self.gate = _dense(config, config.intermediate, config.hidden**-0.5)
        self.down = _dense(config, config.hidden, config.intermediate**-0.5)

    def __call__(self, x_BSD: jax.Array) -> jax.Array:
        activation = ACTIVATIONS[self.config.activation]
        y_BSF = activation(self.gate(x_BSD)) * self.up(x_BSD) if self.config.gated else activation(self.up(x_BSD))
        if self.train and self.config.dropout:
            y_BSF = dropped(y_BSF, self.config.dropout, self.make_rng("dropout"))
        return self.down(y_BSF)


class Layer(nn.Module):
    """One layer of the encoder, or with `decodes` of the decoder: each part is normalised before and added to its input."""

    config: T5Config
    decodes: bool
    train: bool = False

    def setup(self) -> None:
        config, train = self.config, self.train
        self.attention, self.attention_norm = Attention(config, train), Norm(config)
        if self.decodes:
            self.cross, self.cross_norm = Attention(config, train), Norm(config)
        self.feed_forward, self.norm = FeedForward(config, train), Norm(config)

    def __call__(
        self,
        x_BTD: jax.Array,
        mask: jax.Array,
        bias: jax.Array,
        encoded_BSD: jax.Array | None = None,
        cross_mask: jax.Array | None = None,
    ) -> jax.Array:
        y_BTD = self.attention_norm(x_BTD)
        x_BTD = x_BTD + self._dropped(self.attention(y_BTD, self.attention.keys_and_values(y_BTD), mask, bias))
        source = self.cross.keys_and_values(encoded_BSD) if encoded_BSD is not None else None
        return self._rest(x_BTD, source, cross_mask)

    def step(
        self,
        x_BKD: jax.Array,
        cache: tuple[jax.Array, jax.Array],
        at: jax.Array,
        mask: jax.Array,
        bias: jax.Array,
        *rest: Any,
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        """The decoder's layer for tokens of one position, one of each beam; `cache` holds keys and values [B, T, N, H] so far.

        Args:
            at: where the new keys and values go in the cache.
            rest: keys and values of the encoded source, and their mask.
        """
        y_BKD = self.attention_norm(x_BKD)
        new = self.attention.keys_and_values(y_BKD)
        keys, values = (
            jax.lax.dynamic_update_slice_in_dim(old, one, at, axis=1) for old, one in zip(cache, new, strict=True)
        )
        cache = (keys, values)
        return self._rest(x_BKD + self.attention(y_BKD, cache, mask, bias), *rest), cache

    def _rest(self, x_BTD: jax.Array, source: Any, cross_mask: jax.Array | None) -> jax.Array:
        if self.decodes:
            x_BTD = x_BTD + self._dropped(self.cross(self.cross_norm(x_BTD), source, cross_mask, None))
        return x_BTD + self._dropped(self.feed_forward(self.norm(x_BTD)))

    def source(self, encoded_BSD: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values that this layer of the decoder reads from the encoded source."""
        return self.cross.keys_and_values(encoded_BSD)

    def _dropped(self, x: jax.Array) -> jax.Array:
        return dropped(x, self.config.dropout, self.make_rng("dropout")) if self.train and self.config.dropout else x


class Stack(nn.Module):
    """The encoder or the decoder."""

    config: T5Config
    decodes: bool
    train: bool = False

    def setup(self) -> None:
        config = self.config
        self.relative = self.param(
            "relative",
            nn.initializers.normal(config.hidden**-0.5),
            (config.num_buckets, config.num_heads),
            config.param_dtype,
        )
        count = config.decoder_layers if self.decodes else config.num_layers
        draws = self.train and config.dropout > 0
        self.stack = Repeated(partial(_layer, config, self.decodes, self.train), count, config.repeat, draws)
        self.norm = Norm(config)

    def bias(self, length: int) -> jax.Array:
        """What relative positions add to the logits [1, N, length, length]."""
        config = self.config
        table = buckets(length, length, config.num_buckets, config.max_distance, both_ways=not self.decodes)
        return self.relative[table].transpose(2, 0, 1)[None]

    def __call__(
        self,
        x_BTD: jax.Array,
        mask: jax.Array,
        encoded_BSD: jax.Array | None = None,
        cross_mask: jax.Array | None = None,
    ) -> jax.Array:
        context = (encoded_BSD, cross_mask) if self.decodes else ()
        x_BTD = self.stack(self._dropped(x_BTD), mask, self.bias(x_BTD.shape[1]), *context)
        return self._dropped(self.norm(x_BTD))

    def _dropped(self, x: jax.Array) -> jax.Array:
        return dropped(x, self.config.dropout, self.make_rng("dropout")) if self.train and self.config.dropout else x


class T5(nn.Module):
    """Source tokens and the target's tokens so far to logits of each next token."""

    config: T5Config
    train: bool = False

    def setup(self) -> None:
        config = self.config
        self.embedding = nn.Embed(
            config.vocabulary_size,
            config.hidden,
            dtype=config.dtype,
            param_dtype=config.param_dtype,
            embedding_init=nn.initializers.normal(1.0),
        )
        self.encoder = Stack(config, decodes=False, train=self.train)
        self.decoder = Stack(config, decodes=True, train=self.train)
        if not config.tied:
            self.output = self.param(
                "output",
                nn.initializers.normal(config.hidden**-0.5),
                (config.vocabulary_size, config.hidden),
                config.param_dtype,
            )

    def encode(self, source_BS: jax.Array, mask_BS: jax.Array) -> jax.Array:
        """Representations of the source [B, S, D]; `mask_BS` is 1 for tokens and 0 for what fills up."""
        return self.encoder(self.embedding(source_BS), mask_BS[:, None, None, :] > 0)

    def decode(self, inputs_BT: jax.Array, encoded_BSD: jax.Array, mask_BS: jax.Array) -> jax.Array:
        """Logits [B, T, V] of the token after each of the inputs, which start with the pad token."""
        length = inputs_BT.shape[1]
        causal = (jnp.arange(length)[:, None] >= jnp.arange(length))[None, None]
        hidden_BTD = self.decoder(self.embedding(inputs_BT), causal, encoded_BSD, mask_BS[:, None, None, :] > 0)
        return self.logits(hidden_BTD)

    def logits(self, hidden_BTD: jax.Array) -> jax.Array:
        config = self.config
        table_VD = self.embedding.embedding if config.tied else self.output
        if config.tied:
            hidden_BTD = hidden_BTD * jnp.asarray(config.hidden**-0.5, hidden_BTD.dtype)
        table_VD = table_VD.astype(config.dtype)
        across = (((2,), (1,)), ((), ()))  # BTD, VD -> BTV
        return product(config.products)(hidden_BTD, table_VD, across, preferred_element_type=config.param_dtype)

    def __call__(self, source_BS: jax.Array, mask_BS: jax.Array, inputs_BT: jax.Array) -> jax.Array:
        return self.decode(inputs_BT, self.encode(source_BS, mask_BS), mask_BS)


def _layer(config: T5Config, decodes: bool, train: bool) -> Layer:
    return Layer(config, decodes, train, parent=None)


def shifted(target_BT: jax.Array, pad_id: int) -> jax.Array:
    """The decoder's inputs for a target: the pad token, then the target without its last."""
    return jnp.pad(target_BT, ((0, 0), (1, 0)), constant_values=pad_id)[:, :-1]


def abstract_params(config: T5Config) -> dict:
    """The tree of parameters, with shapes and dtypes in place of arrays."""
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    # The key is made inside, where it is abstract too: making a real one would start a backend.
    return jax.eval_shape(lambda x: T5(config).init(jax.random.key(0), x, x, x), tokens)["params"]


def parameter_count(config: T5Config) -> int:
    """Number of trained parameters."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract_params(config)))
