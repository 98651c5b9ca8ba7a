"""Choices as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowaware_core.plan import decode, encode

AXES = ("node", "card_a", "card_b")


@given(st.dictionaries(st.integers(0, 50), st.tuples(*[st.integers(-1, 4)] * 3)))
def test_what_is_written_is_read_back(assignments: dict[int, tuple[int, ...]]) -> None:
    assert decode(encode(assignments, AXES), AXES) == assignments


def test_runs_are_written_as_ranges() -> None:
    assert encode({3: (0, -1, 1), 4: (0, -1, 1), 9: (-1, -1, -1)}, AXES) == {"node:0 card_b:1": "3-4", "whole": "9"}


def test_an_unknown_axis_is_named() -> None:
    with pytest.raises(ValueError, match="rack:0"):
        decode({"rack:0": "1"}, AXES)
