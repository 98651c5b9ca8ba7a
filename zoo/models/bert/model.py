"""BERT, a bidirectional encoder of text with the heads people put on it, written for one device.

Shape suffixes: B examples, S tokens, D hidden, P positions of masked tokens, V vocabulary, K labels.

Reference: Devlin, Chang, Lee, Toutanova. BERT: Pre-training of Deep Bidirectional Transformers. 2018. As there and in
the implementations that followed, layer norm comes after each residual sum, and the output projection of masked tokens is
the word embedding.
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
from zoo.models.bert.config import BertConfig
from zoo.models.products import product
from zoo.models.repeat import Repeated


def _dense(config: BertConfig, features: int, name: str | None = None, wide: bool = False) -> nn.Dense:
    return nn.Dense(
        features,
        dtype=config.param_dtype if wide else config.dtype,
        param_dtype=config.param_dtype,
        kernel_init=_initial(config),
        dot_general=product(config.products),
        name=name,
    )


def _initial(config: BertConfig) -> Any:
    # Divided by the spread of a normal distribution that is cut at two standard deviations.
    return nn.initializers.truncated_normal(config.initializer_range / 0.87962566103423978)


def _norm(config: BertConfig, name: str | None = None) -> nn.LayerNorm:
    return nn.LayerNorm(
        config.norm_epsilon,
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        use_fast_variance=False,
        name=name,
    )


class Embeddings(nn.Module):
    """Words, positions and segments [B, S] to their summed and normalised embeddings [B, S, D]."""

    config: BertConfig

    def setup(self) -> None:
        config = self.config
        table = partial(
            nn.Embed,
            features=config.hidden,
            dtype=config.dtype,
            param_dtype=config.param_dtype,
            embedding_init=_initial(config),
        )
        self.word = table(config.vocabulary_size)
        self.position = table(config.max_positions)
        self.type = table(config.num_types)
        self.norm = _norm(config)

    def __call__(self, ids_BS: jax.Array, types_BS: jax.Array, train: bool) -> jax.Array:
        length = ids_BS.shape[1]
        if length > self.config.max_positions:
            raise ValueError(f"{length} tokens are more than max_positions={self.config.max_positions}; cut the text")
        x_BSD = self.word(ids_BS) + self.type(types_BS) + self.position.embedding[:length].astype(self.config.dtype)
        x_BSD = self.norm(x_BSD)
        if train and self.config.dropout:
            x_BSD = dropped(x_BSD, self.config.dropout, self.make_rng("dropout"))
        return x_BSD

    def scores(self, x_BPD: jax.Array) -> jax.Array:
        """Products with every word's embedding [B, P, V], in the dtype of the parameters."""
        table_VD = self.word.embedding.astype(self.config.dtype)
        across = (((2,), (1,)), ((), ()))  # BPD, VD -> BPV
        return product(self.config.products)(x_BPD, table_VD, across, preferred_element_type=self.config.param_dtype)


class Layer(nn.Module):
    """Self-attention and feed-forward, each added to its input and normalised."""

    config: BertConfig
    train: bool = False

    @nn.compact
    def __call__(self, x_BSD: jax.Array, mask_BS: jax.Array) -> jax.Array:
        config = self.config
        query, key, value = (
            heads(_dense(config, config.hidden, name)(x_BSD), config.num_heads) for name in ("query", "key", "value")
        )
        dropout = None
        if self.train and config.attention_dropout:
            dropout = (config.attention_dropout, self.make_rng("dropout"))
        scale = (config.hidden // config.num_heads) ** -0.5
        y_BSD = merged(attend(query, key, value, mask_BS[:, None, None, :] > 0, None, scale, dropout))
        x_BSD = _norm(config, "attention_norm")(x_BSD + self._dropped(_dense(config, config.hidden, "output")(y_BSD)))
        y_BSD = ACTIVATIONS[config.activation](_dense(config, config.intermediate, "up")(x_BSD))
        return _norm(config, "norm")(x_BSD + self._dropped(_dense(config, config.hidden, "down")(y_BSD)))

    def _dropped(self, x: jax.Array) -> jax.Array:
        return dropped(x, self.config.dropout, self.make_rng("dropout")) if self.train and self.config.dropout else x


class Bert(nn.Module):
    """The encoder and the head that its configuration names."""

    config: BertConfig
    train: bool = False

    def setup(self) -> None:
        config = self.config
        self.embeddings = Embeddings(config)
        draws = self.train and max(config.dropout, config.attention_dropout) > 0
        # A plain function of no argument: Flax would bind a module that is an attribute, and its parameters with it.
        self.encoder = Repeated(partial(_layer, config, self.train), config.num_layers, config.repeat, draws)
        if config.head in ("encoder", "pretraining", "classification"):
            self.pooler = _dense(config, config.hidden)
        if config.head in ("pretraining", "masked_words"):
            self.transform = _dense(config, config.hidden)
            self.transform_norm = _norm(config)
            self.output_bias = self.param(
                "output_bias", nn.initializers.zeros, (config.vocabulary_size,), config.param_dtype
            )
        if config.head == "pretraining":
            self.next_sentence = _dense(config, 2, wide=True)
        if config.head in ("classification", "tokens"):
            self.classifier = _dense(config, config.num_labels, wide=True)
        if config.head == "answers":
            self.spans = _dense(config, 2, wide=True)

    def hidden(self, ids_BS: jax.Array, types_BS: jax.Array, mask_BS: jax.Array) -> jax.Array:
        """Representations [B, S, D]; `mask_BS` is 1 for tokens and 0 for what fills up."""
        return self.encoder(self.embeddings(ids_BS, types_BS, self.train), mask_BS)

    def pooled(self, hidden_BSD: jax.Array) -> jax.Array:
        """The first token's representation, once more projected [B, D]."""
        return jnp.tanh(self.pooler(hidden_BSD[:, 0]))

    def masked_words(self, hidden_BPD: jax.Array) -> jax.Array:
        """Logits over the vocabulary [B, P, V] for the representations of masked tokens."""
        x_BPD = ACTIVATIONS[self.config.activation](self.transform(hidden_BPD))
        return self.embeddings.scores(self.transform_norm(x_BPD)) + self.output_bias

    def __call__(
        self, ids_BS: jax.Array, types_BS: jax.Array, mask_BS: jax.Array, positions_BP: jax.Array | None = None
    ) -> dict[str, jax.Array]:
        """{"hidden": [B, S, D]} and what the head gives.

        "pooled" [B, D]; "words" [B, P, V] and "next_sentence" [B, 2] (0: B follows A); "labels" [B, K] or [B, S, K];
        "spans" [B, S, 2].

        Args:
            ids_BS, types_BS, mask_BS: int32 tokens, segments and which tokens count.
            positions_BP: where "words" are wanted; None: everywhere.
        """
        head = self.config.head
        hidden_BSD = self.hidden(ids_BS, types_BS, mask_BS)
        found = {"hidden": hidden_BSD}
        if head in ("encoder", "pretraining", "classification"):
            found["pooled"] = self.pooled(hidden_BSD)
        if head in ("pretraining", "masked_words"):
            at = hidden_BSD if positions_BP is None else rows_at(hidden_BSD, positions_BP)
            found["words"] = self.masked_words(at)
        if head == "pretraining":
            found["next_sentence"] = self.next_sentence(found["pooled"])
        if head == "classification":
            found["labels"] = self.classifier(self._dropped(found["pooled"]))
        if head == "tokens":
            found["labels"] = self.classifier(self._dropped(hidden_BSD))
        if head == "answers":
            found["spans"] = self.spans(hidden_BSD)
        return found

    def _dropped(self, x: jax.Array) -> jax.Array:
        return dropped(x, self.config.dropout, self.make_rng("dropout")) if self.train and self.config.dropout else x


def _layer(config: BertConfig, train: bool) -> Layer:
    return Layer(config, train, parent=None)


def rows_at(x_BSD: jax.Array, positions_BP: jax.Array) -> jax.Array:
    """The rows [B, P, D] of each example at its positions."""
    # A product in place of a gather: it splits over any dimension, and sums of one value and zeros are exact.
    chosen_BPS = (positions_BP[..., None] == jnp.arange(x_BSD.shape[1])).astype(x_BSD.dtype)
    return jnp.einsum("bps,bsd->bpd", chosen_BPS, x_BSD)


def mean_pooled(hidden_BSD: jax.Array, mask_BS: jax.Array, normalise: bool = True) -> jax.Array:
    """One vector a text [B, D]: the mean of its tokens' representations, of length 1 if `normalise`."""
    weight_BS1 = mask_BS[..., None].astype(hidden_BSD.dtype)
    mean_BD = jnp.sum(hidden_BSD * weight_BS1, axis=1) / jnp.maximum(jnp.sum(weight_BS1, axis=1), 1e-9)
    if normalise:
        mean_BD = mean_BD / jnp.maximum(jnp.linalg.norm(mean_BD, axis=-1, keepdims=True), 1e-12)
    return mean_BD


def abstract_params(config: BertConfig) -> dict:
    """The tree of parameters, with shapes and dtypes in place of arrays."""
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    # The key is made inside, where it is abstract too: making a real one would start a backend.
    return jax.eval_shape(lambda x: Bert(config).init(jax.random.key(0), x, x, x), tokens)["params"]


def parameter_count(config: BertConfig) -> int:
    """Number of trained parameters."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract_params(config)))
