"""Shares are even, all devices work, and an error is not lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import pytest

from flowaware_core import imbalance
from zoo.folding.spreading import over_devices


def test_every_member_is_worked_on_once_and_loads_are_even() -> None:
    costs = [float(1 + number % 7) for number in range(60)]
    done: list[int] = []
    uneven = over_devices(costs, jax.local_devices(), lambda device, members: done.extend(members))
    assert sorted(done) == list(range(60)) and uneven < 0.1
    assert imbalance([1.0, 3.0], [[0], [1]]) == 0.5 and imbalance([], [[], []]) == 0


def test_what_one_raises_is_raised_after_the_others() -> None:
    done: list[int] = []

    def work(device: Any, members: Sequence[int]) -> None:
        if 0 in members:
            raise ValueError("broken")
        done.extend(members)

    with pytest.raises(ValueError, match="broken"):
        over_devices([1.0] * 4, jax.local_devices()[:4], work)
    assert len(done) == 3
