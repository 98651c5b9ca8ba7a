"""Products of shifted images are XLA's convolutions, and so are their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.models.convolutions import convolve, products

# Channels, channels of the result, kernel, stride, padding, groups.
CASES = {
    "pointwise, strided": (3, 5, 1, 2, "VALID", 1),
    "odd padding": (3, 5, 3, 2, "SAME", 1),
    "wide": (2, 6, 7, 2, ((3, 3), (3, 3)), 1),
    "depthwise": (4, 4, 3, 1, "SAME", 4),
    "depthwise, strided": (4, 4, 5, 2, "SAME", 4),
    "depthwise, cut": (4, 4, 3, 2, "VALID", 4),
}


@pytest.mark.parametrize("case", CASES)
def test_both_forms_have_equal_results_and_gradients(case: str) -> None:
    channels, wide, size, stride, padding, groups = CASES[case]
    rng = np.random.default_rng(0)
    x = np.float32(rng.normal(size=(2, 8, 9, channels)))
    kernel = np.float32(rng.normal(size=(size, size, channels // groups, wide)))
    numbers = jax.lax.conv_dimension_numbers(x.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))

    def value(form: Callable[..., jax.Array], x: Any, kernel: Any) -> jax.Array:
        found = form(x, kernel, (stride, stride), padding, dimension_numbers=numbers, feature_group_count=groups)
        return jnp.sum(jnp.sin(found))  # no two places have the same weight

    both = [
        jax.jit(jax.value_and_grad(lambda x, k, f=form: value(f, x, k), (0, 1)))(x, kernel)
        for form in map(convolve, ("lax", "products"))
    ]
    for found, wanted in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert convolve("products") is products and convolve(None) is convolve("lax")
