"""Hashed numbers look like draws: spread, moments, no trace of the order or of a neighbouring array."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models import draws


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    """Four arrays of 64 x 64 x 16 numbers."""
    words = draws.words(jax.random.key(0), 4)
    return np.asarray(jax.vmap(lambda one: draws.uniform(one, (64, 64, 16), 1.0, "float32"))(words))


def test_moments_are_those_of_the_even_spread(samples: np.ndarray) -> None:
    for sample in samples:
        assert abs(sample.mean()) < 0.01
        np.testing.assert_allclose(sample.var(), 1 / 3, rtol=0.02)
        np.testing.assert_allclose((sample**4).mean(), 1 / 5, rtol=0.03)
        assert sample.min() >= -1 and sample.max() < 1


def test_every_interval_is_hit_alike(samples: np.ndarray) -> None:
    counts = np.histogram(samples[0], 256, (-1, 1))[0]
    expected = samples[0].size / 256
    # Chi squared with 255 degrees of freedom: mean 255, standard deviation 22.6.
    assert abs(((counts - expected) ** 2 / expected).sum() - 255) < 5 * 22.6


def test_neighbours_and_arrays_are_uncorrelated(samples: np.ndarray) -> None:
    bound = 5 / np.sqrt(samples[0].size)
    for one, other in [(samples[0], samples[1]), (samples[2], samples[3])]:
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < bound
    for dim in range(3):
        for lag in (1, 2, 8):
            ahead, behind = np.roll(samples[0], lag, dim).ravel(), samples[0].ravel()
            assert abs(np.corrcoef(ahead, behind)[0, 1]) < bound
            assert abs(np.corrcoef(np.abs(ahead), np.abs(behind))[0, 1]) < bound


def test_nearly_all_numbers_differ_and_keys_matter(samples: np.ndarray) -> None:
    # 65,536 draws of 2**24 values repeat about 128 times.
    assert len(np.unique(samples[0])) > samples[0].size - 200
    assert not np.array_equal(draws.words(jax.random.key(0), 4), draws.words(jax.random.key(1), 4))


def test_a_split_array_holds_the_same_numbers() -> None:
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:4]), ("card",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "card"))
    words = draws.words(jax.random.key(0), 1)[0]

    def draw(words: jax.Array) -> jax.Array:
        return draws.uniform(words, (3, 8), 0.5, "float32")

    np.testing.assert_array_equal(jax.jit(draw, out_shardings=split)(words), jax.jit(draw)(words))


def test_too_many_elements_are_refused() -> None:
    with pytest.raises(UserError, match="at most 4294967295 can be drawn"):
        jax.eval_shape(lambda w: draws.uniform(w, (2**16, 2**16), 1.0, "float32"), jnp.zeros(2, jnp.uint32))
