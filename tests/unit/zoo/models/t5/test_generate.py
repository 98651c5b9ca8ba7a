"""Generation with a cache against the model run anew for every token, and against an exhaustive search."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.models.t5.config import T5Config
from zoo.models.t5.generate import Generation, _narrowed, generate
from zoo.models.t5.model import T5

TINY = T5Config(*(7, 8, 2, 2, 4, 12), repeat="scan")
SOURCE = np.asarray([[3, 4, 5, 1], [6, 2, 1, 0], [2, 2, 3, 1]], np.int32)
MASK = (SOURCE > 0).astype(np.int32)


@pytest.fixture(scope="module")
def params() -> Any:
    return jax.jit(lambda key: T5(TINY).init(key, SOURCE, MASK, SOURCE))(jax.random.key(3))["params"]


def found(params: Any, **options: Any) -> np.ndarray:
    how = Generation(**options)
    run = jax.jit(lambda params, key: generate(TINY, how, params, SOURCE, MASK, key))
    return np.asarray(run(params, jax.random.key(0)))


def log_probs(params: Any, texts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Log-probabilities [n, T, V] of the tokens of `texts` [n, T] for the sources in `rows` [n]."""
    inputs = np.pad(texts, ((0, 0), (1, 0)))[:, :-1]
    return np.asarray(jax.nn.log_softmax(logits(params, SOURCE[rows], MASK[rows], inputs)))


@jax.jit
def logits(params: Any, *arguments: np.ndarray) -> Any:
    return T5(TINY).apply({"params": params}, *arguments)


def test_greedy_equals_the_model_run_anew_for_every_token(params: Any) -> None:
    texts = found(params, max_tokens=5)
    likeliest = log_probs(params, texts, np.arange(3)).argmax(-1)
    for text, wanted in zip(texts, likeliest, strict=True):
        length = list(text).index(1) + 1 if 1 in text else 5
        np.testing.assert_array_equal(text[:length], wanted[:length])
        assert not text[length:].any()


def test_a_beam_as_wide_as_the_space_finds_the_best_text(params: Any) -> None:
    # Without a length penalty a text's score only falls, so the search may stop where it does.
    texts = found(params, max_tokens=2, beams=20, length_penalty=0.0)
    every = [(1, 0), *((a, b) for a, b in itertools.product([0, *range(2, 7)], range(7)))]
    for row in range(3):
        values = log_probs(params, np.asarray(every, np.int32), np.full(len(every), row))
        scores = [v[0, a] if a == 1 else v[0, a] + v[1, b] for (a, b), v in zip(every, values, strict=True)]
        np.testing.assert_array_equal(texts[row], every[int(np.argmax(scores))])


def test_beams_are_those_of_a_search_that_runs_the_model_anew(params: Any) -> None:
    endless, beams, length = dataclasses.replace(TINY, end_id=7), 3, 6
    how = Generation(max_tokens=length, beams=beams)
    texts = jax.jit(lambda params: generate(endless, how, params, SOURCE, MASK, jax.random.key(0)))(params)
    for row in range(3):
        running = {(): 0.0}
        for _ in range(length):
            filled = np.zeros((beams, length), np.int32)
            for number, text in enumerate(running):
                filled[number, : len(text)] = text
            values = log_probs(params, filled, np.full(beams, row))
            every = {
                (*text, token): score + float(value[len(text), token])
                for (text, score), value in zip(running.items(), values)  # at first there is one alone
                for token in range(7)
            }
            running = {text: every[text] for text in sorted(every, key=lambda text: -every[text])[:beams]}
        np.testing.assert_array_equal(texts[row], max(running, key=lambda text: running[text]))


def test_sampling_is_seeded_and_narrows_to_the_likeliest(params: Any) -> None:
    drawn = found(params, max_tokens=4, sample=True)
    np.testing.assert_array_equal(drawn, found(params, max_tokens=4, sample=True))
    greedy = found(params, max_tokens=4)
    np.testing.assert_array_equal(found(params, max_tokens=4, sample=True, top_k=1), greedy)


def test_narrowing_keeps_the_token_that_crosses_the_border() -> None:
    logits = jnp.log(jnp.asarray([[0.5, 0.3, 0.15, 0.05]]))
    kept = lambda how: list(np.isfinite(np.asarray(_narrowed(logits, how)))[0])
    assert kept(Generation(top_p=0.6)) == [True, True, False, False]
    assert kept(Generation(top_k=3)) == [True, True, True, False]
    assert kept(Generation(top_k=3, top_p=0.99)) == [True, True, True, False]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"beams": 0}, "beams=0"),
        ({"temperature": 0.0}, "temperature=0.0; it must be above 0"),
        ({"sample": True, "beams": 2}, "beams=2 with sample=true"),
    ],
)
def test_options_that_make_no_search_are_refused(options: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Generation(**options)
    assert dataclasses.asdict(Generation())


def test_what_is_drawn_for_a_source_depends_on_its_own_key_alone(params: Any) -> None:
    how = Generation(max_tokens=6, sample=True)
    keys = jax.random.split(jax.random.key(5), 3)
    together = np.asarray(generate(TINY, how, params, SOURCE, MASK, keys))
    for row in (2, 0, 1):
        part = slice(row, row + 1)
        alone = generate(TINY, how, params, SOURCE[part], MASK[part], keys[part])
        np.testing.assert_array_equal(together[part], alone)
    assert (
        len(
            {
                tuple(text)
                for text in np.asarray(
                    generate(TINY, how, params, SOURCE[:1].repeat(8, 0), MASK[:1].repeat(8, 0), jax.random.key(0))
                )
            }
        )
        > 1
    )
