"""Borders of windows, held against the positions that each result really reads."""

from __future__ import annotations

import itertools

import pytest

from flowaware_core.graph.rules import Border
from flowaware_core.graph.rules.windows import Window, parts


def needed(window: Window, shards: int, along_result: bool) -> Border:
    """The border by counting: what the outermost elements of an inner shard read, beyond the shard."""
    length = window.operand // shards
    before = after = 0
    cut = window.result if along_result else window.window
    for shard in range(1, shards - 1):
        own = range(shard * cut // shards, (shard + 1) * cut // shards)
        outputs, offsets = (own, range(window.window)) if along_result else (range(window.result), own)
        for output, offset in itertools.product(outputs, offsets):
            place = window.stride * output + window.dilation * offset - window.low
            if place % window.holes == 0:
                element = place // window.holes
                before = max(before, shard * length - element)
                after = max(after, element - (shard + 1) * length + 1)
    return Border(0, 0, before, after)


@pytest.mark.parametrize(
    "window",
    [
        Window(32, 3, 32, low=1),
        Window(32, 3, 16, stride=2, low=0),
        Window(32, 7, 16, stride=2, low=3),
        Window(32, 1, 16, stride=2),
        Window(32, 3, 32, dilation=2, low=2),
        Window(16, 3, 32, holes=2, low=1),
        Window(16, 7, 32, holes=2, low=3),
        Window(16, 1, 32, holes=2, low=0),
        Window(32, 2, 16, stride=2),
        Window(32, 4, 32, low=3),
        Window(32, 3, 32, low=-1),
    ],
)
def test_borders_along_the_result(window: Window) -> None:
    assert window.along_result() == needed(window, 4, True)


@pytest.mark.parametrize(
    "window", [Window(32, 32, 3, low=1), Window(32, 16, 7, dilation=2, low=3), Window(16, 32, 3, holes=2, low=1)]
)
def test_borders_along_the_window(window: Window) -> None:
    assert window.along_window() == needed(window, 4, False)


def test_shards_that_do_not_line_up_have_no_border() -> None:
    assert Window(32, 3, 30).along_result() is None
    assert Window(33, 3, 17, stride=2, low=1).along_result() is None
    assert Window(30, 28, 3).along_window() is None


def test_parts_divide_and_are_no_shorter_than_their_borders() -> None:
    assert parts((32, 16), [(32, Border(0, 0, 1, 1))]) == 16
    assert parts((32, 32), [(32, Border(0, 0, 5, 1))]) == 4
    assert parts((12, 12), [(12, Border(0, 0, 3, 3))]) == 4
    assert parts((7, 7), [(7, Border(0, 0, 1, 1))]) == 7
    assert parts((8, 8), [(8, Border(0, 0, 9, 0))]) == 1
