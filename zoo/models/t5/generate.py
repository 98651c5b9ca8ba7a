"""Text from a T5, token by token, with the keys and values of earlier tokens kept: greedy, sampling and beam search.

Shape suffixes: B examples, K beams, S source tokens, T new tokens, V vocabulary, N heads, H size of a head.

The beam search is the one most people know from Hugging Face: `beams` hypotheses, twice as many candidates, finished ones ranked by
their log-probability over length ** length_penalty, and an end as soon as no running one is better at its present length.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from zoo.models.repeat import layers_of
from zoo.models.t5.config import T5Config
from zoo.models.t5.model import T5, Layer

Caches = list[tuple[jax.Array, jax.Array]]
Step = Callable[[jax.Array, Caches, jax.Array, jax.Array], tuple[jax.Array, Caches]]

NEVER = -1e9
"""The score of what may not be chosen; finite, so that sums and comparisons stay numbers."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """How text is made.

    Attributes:
        max_tokens: most new tokens.
        beams: 1 takes the likeliest token each time; more keep as many hypotheses.
        length_penalty: of beam search; above 0 favours longer texts.
        sample: draw each token instead of taking the likeliest.
        temperature, top_k, top_p: of sampling: the logits are divided by the temperature; then only the `top_k` likeliest
            tokens stay (0: all), and of them the likeliest that together have the probability `top_p`.
    """

    max_tokens: int = 64
    beams: int = 1
    length_penalty: float = 1.0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("max_tokens", 1), ("beams", 1), ("top_k", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least {least}")
        if not self.temperature > 0:
            raise ValueError(f"temperature={self.temperature}; it must be above 0; sample=false takes the likeliest")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p={self.top_p}; it must be above 0 and at most 1")
        if self.sample and self.beams > 1:
            raise ValueError(f"beams={self.beams} with sample=true; draw with beams=1, or search with sample=false")


def generate(
    config: T5Config, how: Generation, params: Any, source_BS: jax.Array, mask_BS: jax.Array, key: jax.Array
) -> jax.Array:
    """New tokens [B, T] for each source: up to and with the end token, then pad tokens. Pure, for jit.

    Args:
        config, how: of the model and the search; static.
        params: of the model.
        source_BS, mask_BS: the source's tokens, and 1 where they count.
        key: for sampling; one, or one for each source.
    """
    encoded: Any = T5(config).apply({"params": params}, source_BS, mask_BS, method="encode")
    step, caches = decoder(config, how, params, encoded, mask_BS)
    if how.beams == 1:
        return _one_by_one(config, how, step, caches, len(source_BS), key)
    return _beam_search(config, how, step, caches, len(source_BS))


def decoder(
    config: T5Config, how: Generation, params: Any, encoded_BSD: jax.Array, mask_BS: jax.Array
) -> tuple[Step, Caches]:
    """A function (tokens, caches, their position, lineage) -> (logits of the next, caches), and empty caches.

    All beams of a source are its queries, side by side; its keys and values stand there once. So do those of the new tokens, which
    stay where they were written ([B, T * K, N, H], position by position) when the search goes on from other beams: a beam then
    reads the tokens that it comes from.

    Returns:
        step: takes the tokens [B, K], the caches, the position of the tokens, and for each beam the number of the beam that its
            token at each position was written by [B, K, T]; returns logits [B, K, V] and caches.
        caches: keys and values of each layer.
    """
    layers = layers_of(params["decoder"]["stack"]["layers"], config.decoder_layers)
    layer, model = Layer(config, decodes=True, parent=None), T5(config)
    source = [layer.apply({"params": own}, encoded_BSD, method="source") for own in layers]
    cross_mask = mask_BS[:, None, None, :] > 0
    length, beams = how.max_tokens, how.beams
    bias: Any = model.apply({"params": params}, method=lambda model: model.decoder.bias(length))
    shape = (len(encoded_BSD), length * beams, config.num_heads, config.head_size)
    empty = [(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype)) for _ in layers]

    def step(tokens_BK: jax.Array, caches: Caches, at: jax.Array, lineage_BKT: jax.Array) -> tuple[jax.Array, Caches]:
        x = model.apply({"params": params}, tokens_BK, method=lambda model, ids: model.embedding(ids))
        known = (jnp.arange(length) <= at)[:, None] & (lineage_BKT[..., None] == jnp.arange(beams))
        mask = known.reshape(len(lineage_BKT), 1, beams, -1)
        row = jnp.repeat(jax.lax.dynamic_slice_in_dim(bias, at, 1, axis=2), beams, axis=3)
        after: Caches = []
        for own, cache, read in zip(layers, caches, source, strict=True):
            found: Any = layer.apply({"params": own}, x, cache, at * beams, mask, row, read, cross_mask, method="step")
            x, kept = found
            after.append(kept)
        logits: Any = model.apply({"params": params}, x, method=lambda model, x: model.logits(model.decoder.norm(x)))
        return logits, after

    return step, empty


def _one_by_one(config: T5Config, how: Generation, step: Step, caches: Caches, count: int, key: jax.Array) -> jax.Array:
    only = jnp.zeros((count, 1, how.max_tokens), jnp.int32)
    keys_B = key if key.ndim else jax.random.split(key, count)
    draw = jax.vmap(
        lambda key, at, logits_V: jax.random.categorical(jax.random.fold_in(key, at), logits_V), (0, None, 0)
    )

    def advance(carry: Any) -> Any:
        at, last_B, found_BT, ended_B, caches = carry
        logits_B1V, caches = step(last_B[:, None], caches, at, only)
        logits_BV = logits_B1V[:, 0]
        if how.sample:
            next_B = draw(keys_B, at, _narrowed(logits_BV, how))
        else:
            next_B = jnp.argmax(logits_BV, axis=-1)
        next_B = jnp.where(ended_B, config.pad_id, next_B).astype(jnp.int32)
        found_BT = found_BT.at[:, at].set(next_B)
        return at + 1, next_B, found_BT, ended_B | (next_B == config.end_id), caches

    pads = jnp.full((count, how.max_tokens), config.pad_id, jnp.int32)
    carry = (jnp.int32(0), pads[:, 0], pads, jnp.zeros(count, bool), caches)
    unfinished = lambda carry: (carry[0] < how.max_tokens) & ~jnp.all(carry[3])
    return jax.lax.while_loop(unfinished, advance, carry)[2]


def _narrowed(logits_BV: jax.Array, how: Generation) -> jax.Array:
    """Logits of which only those stay that sampling may draw; the others are minus infinity."""
    logits_BV = logits_BV / how.temperature
    if how.top_k:
        least = jax.lax.top_k(logits_BV, min(how.top_k, logits_BV.shape[1]))[0][:, -1:]
        logits_BV = jnp.where(logits_BV < least, -jnp.inf, logits_BV)
    if how.top_p < 1:
        falling = -jnp.sort(-logits_BV, axis=-1)
        before = jnp.cumsum(jax.nn.softmax(falling, axis=-1), axis=-1) - jax.nn.softmax(falling, axis=-1)
        # The token that crosses the border stays.
        least = jnp.min(jnp.where(before < how.top_p, falling, jnp.inf), axis=-1, keepdims=True)
        logits_BV = jnp.where(logits_BV < least, -jnp.inf, logits_BV)
    return logits_BV


class _Beams(NamedTuple):
    """Where a search stands: running hypotheses and the best finished ones."""

    at: jax.Array
    running_BKT: jax.Array
    running_score_BK: jax.Array
    done_BKT: jax.Array
    done_score_BK: jax.Array
    is_done_BK: jax.Array
    improves_B: jax.Array
    all_end: jax.Array
    lineage_BKT: jax.Array
    caches: Caches


def _beam_search(config: T5Config, how: Generation, step: Step, caches: Caches, count: int) -> jax.Array:
    pads = jnp.full((count, how.beams, how.max_tokens), config.pad_id, jnp.int32)
    never = jnp.full((count, how.beams), NEVER, jnp.float32)
    nothing = jnp.zeros((count, how.beams), bool)
    # All beams start alike, so that all but one must lose at first.
    start = _Beams(
        at=jnp.int32(0),
        running_BKT=pads,
        running_score_BK=never.at[:, 0].set(0.0),
        done_BKT=pads,
        done_score_BK=never,
        is_done_BK=nothing,
        improves_B=jnp.ones(count, bool),
        all_end=jnp.asarray(False),
        lineage_BKT=jnp.zeros((count, how.beams, how.max_tokens), jnp.int32),
        caches=caches,
    )
    unfinished = lambda beams: (beams.at < how.max_tokens) & jnp.any(beams.improves_B) & ~beams.all_end
    found = jax.lax.while_loop(unfinished, lambda beams: _advanced(config, how, step, beams), start)
    return found.done_BKT[:, 0]


def _advanced(config: T5Config, how: Generation, step: Step, beams: _Beams) -> _Beams:
    count, width, _ = beams.running_BKT.shape
    at = beams.at
    before = jnp.take(beams.running_BKT, jnp.maximum(at - 1, 0), axis=2)
    last = jnp.where(at == 0, config.pad_id, before)
    lineage = beams.lineage_BKT.at[:, :, at].set(jnp.arange(width))
    logits, caches = step(last, beams.caches, at, lineage)
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    size = log_probs.shape[-1]
    total = (log_probs + beams.running_score_BK[..., None]).reshape(count, -1)
    score, place = jax.lax.top_k(total, 2 * width)
    parent, token = place // size, (place % size).astype(jnp.int32)
    texts = _chosen(beams.running_BKT, parent).at[:, :, at].set(token)
    ends = (token == config.end_id) | (at + 1 == how.max_tokens)

    going, order = jax.lax.top_k(score + ends * NEVER, width)
    lineage = _chosen(lineage, jnp.take_along_axis(parent, order, axis=1))

    ended = ends & (jnp.arange(2 * width) < width)
    length = (at + 1).astype(jnp.float32)
    ranked = score / length**how.length_penalty + ~ended * NEVER + ~beams.improves_B[:, None] * NEVER
    done_score, kept = jax.lax.top_k(jnp.concatenate([beams.done_score_BK, ranked], axis=1), width)
    done = _chosen(jnp.concatenate([beams.done_BKT, texts], axis=1), kept)
    is_done = jnp.take_along_axis(jnp.concatenate([beams.is_done_BK, ended], axis=1), kept, axis=1)
    worst = jnp.where(is_done, jnp.min(done_score, axis=1, keepdims=True), NEVER)
    best = going[:, :1] / length**how.length_penalty
    improves = beams.improves_B & jnp.any(best > worst, axis=1)
    running = _chosen(texts, order)
    return _Beams(at + 1, running, going, done, done_score, is_done, improves, jnp.all(ends), lineage, caches)


def _chosen(texts_BKT: jax.Array, numbers_BK: jax.Array) -> jax.Array:
    return jnp.take_along_axis(texts_BKT, numbers_BK[..., None], axis=1)
