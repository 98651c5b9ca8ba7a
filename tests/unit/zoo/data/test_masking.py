"""Masked words: whole, as many as asked for, and the rest untouched."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.masking import masked
from zoo.data.vocabulary import SPECIAL, WordPiece

VOCABULARY = WordPiece([*SPECIAL, *(f"w{n}" for n in range(20)), *(f"##p{n}" for n in range(10))])


def text_of(draws: list[int]) -> np.ndarray:
    return np.asarray([VOCABULARY.class_id, *draws, VOCABULARY.separator_id], np.int32)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(5, 34), min_size=1, max_size=60), st.integers(0, 2**31), st.booleans())
def test_what_is_masked_can_be_put_back(draws: list[int], seed: int, whole: bool) -> None:
    ids = text_of(draws)
    found = masked(ids, VOCABULARY, np.random.default_rng(seed), whole_words=whole, most=9)
    assert len(found.positions) == len(set(found.positions)) and np.all(np.diff(found.positions) > 0)
    assert np.all(ids[found.positions] == found.words) and np.all(found.words > 4)
    back = found.ids.copy()
    back[found.positions] = found.words
    np.testing.assert_array_equal(back, ids)
    assert len(found.positions) <= 9
    if whole:
        chosen = np.zeros(len(ids), bool)
        chosen[found.positions] = True
        joined = VOCABULARY.continues[ids] & (np.arange(len(ids)) > 1)
        assert np.all(chosen[np.flatnonzero(joined)] == chosen[np.flatnonzero(joined) - 1])


def test_a_share_of_the_tokens_is_masked_eight_in_ten_by_the_mask() -> None:
    rng = np.random.default_rng(0)
    ids = text_of([5 + n % 20 for n in range(4000)])
    found = masked(ids, VOCABULARY, rng, most=10_000)
    assert len(found.positions) == 600
    shares = [np.mean(found.ids[found.positions] == one) for one in (VOCABULARY.mask_id, found.words)]
    assert 0.75 < shares[0] < 0.85 and 0.08 < shares[1] < 0.16


def test_the_same_seed_masks_the_same() -> None:
    ids = text_of(list(range(5, 30)))
    one, two = (masked(ids, VOCABULARY, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(one.ids, two.ids)
