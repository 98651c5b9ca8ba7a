"""Convolutions of images in the forms that accelerators and processors are fast at; the same numbers either way.

Shape suffixes: B examples, H height, W width, C channels, O channels of the result, h and w the kernel's. Images are [B, H, W, C].
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

Form = Literal["lax", "products"]
FORMS = ("lax", "products")

NEAR = 2**15
"""Numbers of an array that stay in a processor's cache while something else is read."""

Pads = tuple[tuple[int, int], tuple[int, int]]


def convolve(form: Form | None) -> Callable[..., jax.Array]:
    """What `flax.linen.Conv` takes as its `conv_general_dilated`.

    Args:
        form: "lax" or None, XLA's own convolution, which accelerators have libraries for; "products", matrix products of shifted
            images (and sums of products where each channel has a kernel of its own), which are faster on processors.
    """
    return products if form == "products" else jax.lax.conv_general_dilated


def products(
    x_BHWC: jax.Array,
    kernel_hwCO: jax.Array,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    feature_group_count: int = 1,
    **unused: Any,
) -> jax.Array:
    """As `jax.lax.conv_general_dilated` for images, without dilation, of all channels together or of each for itself."""
    del unused  # what says that there is no dilation and where the dimensions are
    channels = x_BHWC.shape[-1]
    assert feature_group_count in (1, channels), feature_group_count
    stride = (strides[0], strides[1])
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(x_BHWC.shape[1:3], kernel_hwCO.shape[:2], stride, padding)
    (top, bottom), (left, right) = padding
    pads = ((top, bottom), (left, right))
    if feature_group_count == channels > 1:
        return each(x_BHWC, kernel_hwCO[:, :, 0], stride, pads)
    return together(x_BHWC, kernel_hwCO, stride, pads)


def shifted(x_BHWC: jax.Array, size: Sequence[int], stride: Sequence[int], pads: Pads) -> list[jax.Array]:
    """What each place of the kernel sees, row by row: images of the result's height and width."""
    x_BHWC = jnp.pad(x_BHWC, ((0, 0), *pads, (0, 0))) if any(map(any, pads)) else x_BHWC
    batch, height, width, channels = x_BHWC.shape
    high, wide = (
        (length - own) // step * step + 1 for length, own, step in zip((height, width), size, stride, strict=True)
    )
    steps = (1, *stride, 1)
    return [
        jax.lax.slice(x_BHWC, (0, row, column, 0), (batch, row + high, column + wide, channels), steps)
        for row in range(size[0])
        for column in range(size[1])
    ]


def together(x_BHWC: jax.Array, kernel_hwCO: jax.Array, stride: Sequence[int], pads: Pads) -> jax.Array:
    """A convolution as one product of matrices: the shifted images side by side, and the kernel."""
    seen = shifted(x_BHWC, kernel_hwCO.shape[:2], stride, pads)
    side_by_side = seen[0] if len(seen) == 1 else jnp.concatenate(seen, axis=-1)
    return side_by_side @ kernel_hwCO.reshape(-1, kernel_hwCO.shape[-1])


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def each(x_BHWC: jax.Array, kernel_hwC: jax.Array, stride: tuple[int, int], pads: Pads) -> jax.Array:
    """A convolution of each channel for itself: the sum of shifted images, each times the weights of its place."""
    seen = shifted(x_BHWC, kernel_hwC.shape[:2], stride, pads)
    return functools.reduce(
        jnp.add, [x * w for x, w in zip(seen, kernel_hwC.reshape(-1, x_BHWC.shape[-1]), strict=True)]
    )


def _each_forward(x_BHWC: jax.Array, kernel_hwC: jax.Array, stride: tuple[int, int], pads: Pads) -> Any:
    return each(x_BHWC, kernel_hwC, stride, pads), (x_BHWC, kernel_hwC)


# Left to itself, the gradient of every slice is a padded array of the whole, and all of them are kept until they are added up.
def _each_backward(
    stride: tuple[int, int], pads: Pads, kept: Any, gradient_BHWC: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x_BHWC, kernel_hwC = kept
    size = kernel_hwC.shape[:2]
    # The other way round: the gradient, spread out by the stride, is convolved with the turned kernel.
    borders = [(0, 0, 0)]
    for length, own, step, (before, _), found in zip(
        x_BHWC.shape[1:3], size, stride, pads, gradient_BHWC.shape[1:3], strict=True
    ):
        first = own - 1 - before
        borders.append((first, length + own - 1 - first - ((found - 1) * step + 1), step - 1))
    spread = jax.lax.pad(gradient_BHWC, jnp.zeros((), gradient_BHWC.dtype), [*borders, (0, 0, 0)])
    back = each(spread, kernel_hwC[::-1, ::-1], (1, 1), ((0, 0), (0, 0)))
    return back, _of_kernel(x_BHWC, gradient_BHWC, kernel_hwC.shape, stride, pads)


def _of_kernel(
    x_BHWC: jax.Array, gradient_BHWC: jax.Array, shape: tuple[int, ...], stride: tuple[int, int], pads: Pads
) -> jax.Array:
    """The gradient [h, w, C] of the kernel, over a few examples at a time, which all its places read while they are near."""
    batch, one = len(x_BHWC), math.prod(gradient_BHWC.shape[1:])
    few = max(count for count in range(1, batch + 1) if batch % count == 0 and (count == 1 or count * one <= NEAR))

    def add(total: jax.Array, both: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        x, gradient = both
        found = [jnp.sum(seen * gradient, axis=(0, 1, 2)) for seen in shifted(x, shape[:2], stride, pads)]
        return total + jnp.stack(found), None

    parts = tuple(value.reshape(batch // few, few, *value.shape[1:]) for value in (x_BHWC, gradient_BHWC))
    return jax.lax.scan(add, jnp.zeros((shape[0] * shape[1], shape[2]), x_BHWC.dtype), parts)[0].reshape(shape)


each.defvjp(_each_forward, _each_backward)
