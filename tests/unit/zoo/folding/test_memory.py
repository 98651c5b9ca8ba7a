"""The forecast grows with the square of the residues, and says what fits; accelerators have memory of their own."""

from __future__ import annotations

import types

import jax
import psutil
import pytest

from zoo.folding.buckets import Size
from zoo.folding.memory import forecast_bytes, free_bytes, longest_that_fits
from zoo.models.alphafold2.config import preset
from zoo.models.alphafold2.model import AlphaFold2


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


@pytest.mark.slow
@pytest.mark.parametrize("size", [Size(256, 128, 256), Size(512, 512, 1024)], ids=["256", "512"])
def test_the_forecast_is_what_is_compiled(size: Size) -> None:
    """Within a fifth of the arguments, results and temporaries of the compiled program."""
    model = AlphaFold2(preset("model_3_ptm"))
    previous = jax.eval_shape(lambda: model.first_previous(size.residues))
    features = model.feature_shapes(size.residues, size.rows, size.further)
    compiled = jax.jit(model.iterate).lower(model.parameter_shapes(), features, previous).compile()
    memory = compiled.memory_analysis()
    needed = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    assert 0.8 < forecast_bytes(size, model.config) / needed < 1.2
