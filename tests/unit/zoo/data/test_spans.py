"""Span corruption: exact lengths, and an exact inverse."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data import spans


def test_lengths_are_those_of_the_paper() -> None:
    assert spans.longest_text(512, 0.15, 3.0) == 568
    assert spans.lengths(568, 0.15, 3.0) == (512, 114)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 300), st.integers(0, 2**31), st.floats(0.02, 0.6), st.floats(1, 8))
def test_the_text_comes_back(length: int, seed: int, share: float, mean_span: float) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.integers(2, 1000, length).astype(np.int32)
    taken, number = spans.counts(length, share, mean_span)
    source, target = spans.corrupted(ids, 2000, 1, rng, share, mean_span)
    assert (len(source), len(target)) == spans.lengths(length, share, mean_span)
    assert len(target) == taken + number + 1 and source[-1] == target[-1] == 1
    sentinels = [2000 - n for n in range(number)]
    assert [one for one in source if one > 1000] == sentinels == [one for one in target if one > 1000]
    assert source[0] < 1000 and target[0] == 2000
    np.testing.assert_array_equal(spans.restored(source, target, 2000, 900, 1), ids)


def test_the_same_seed_takes_out_the_same() -> None:
    ids = np.arange(2, 102, dtype=np.int32)
    one, two = (spans.corrupted(ids, 2000, 1, np.random.default_rng(5)) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
