"""The forecast grows with the square of the residues, and says what fits; accelerators have memory of their own."""

from __future__ import annotations

import types

import jax
import psutil
import pytest

from zoo.folding.buckets import Size
from zoo.folding.memory import forecast_bytes, free_bytes, longest_that_fits
from zoo.models.alphafold2.config import preset


def test_the_longest_that_fits_fits_and_one_more_does_not() -> None:
    config, size, free = preset("model_3_ptm"), Size(5000, 512, 1024), 16 * 2.0**30
    longest = longest_that_fits(size, config, free)
    assert 500 < longest < 5000
    assert (
        forecast_bytes(Size(longest, 512, 1024), config) <= free < forecast_bytes(Size(longest + 1, 512, 1024), config)
    )
    ratio = forecast_bytes(Size(8000, 1, 1), config) / forecast_bytes(Size(4000, 1, 1), config)
    assert 3.8 < ratio < 4.1


def test_memory_of_an_accelerator_is_its_own() -> None:
    stats = {"bytes_limit": 100, "bytes_in_use": 50}
    accelerator = types.SimpleNamespace(platform="gpu", memory_stats=lambda: stats)
    assert free_bytes(accelerator) == 40
    assert free_bytes(jax.devices()[0]) == pytest.approx(0.8 * psutil.virtual_memory().available, rel=0.2)
