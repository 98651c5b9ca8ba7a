"""What of a stage's activations is kept where not all fits."""

from __future__ import annotations

import numpy as np

from flowaware_core.planned import _spans


def test_the_longest_parts_that_fit() -> None:
    """From the start and up to the end: each fits, and one tensor more does not."""
    draw = np.random.default_rng(0)
    for _ in range(200):
        sizes, limit = draw.integers(0, 9, draw.integers(0, 9)).tolist(), int(draw.integers(-3, 50))
        for begin, end in _spans(sizes, limit):
            assert sum(sizes[begin:end]) <= max(limit, 0) and (begin == 0 or end == len(sizes))
            if limit >= 0:
                more = sizes[: end + 1] if begin == 0 else sizes[begin - 1 :]
                assert len(more) == end - begin or sum(more) > limit
    assert _spans([2, 3, 4], 9) == {(0, 3)} and _spans([2, 3, 4], 5) == {(0, 2), (2, 3)}
    assert _spans([2, 3], -1) == {(0, 0), (2, 2)}
