"""Wide residual networks as Alpa's evaluation has them, from shapes alone, as losses for `fa.Training`.

Published (Zheng et al., Alpa, OSDI 2022, and `suite_wresnet.py` of its repository): image size, layers, base channels, width
factor, float32, 1,024 classes, gradient descent with Nesterov's momentum; bottlenecks of 1x1, 3x3 and 1x1 convolutions, of
which the 3x3 one is `width` times as wide; batch statistics of a micro-batch. The running statistics that evaluation uses are left
out here: no gradient needs them, and they are thousandths of the memory.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax

import flowaware_core as fa

CLASSES = 1024
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


@dataclasses.dataclass(frozen=True)
class Size:
    """A published size: layers, channels of the first block's 1x1 convolution, width factor, side of the image."""

    layers: int
    channels: int
    width: int
    image: int = 224

    def blocks(self) -> Iterator[tuple[str, int, int, int]]:
        """Name, channels that come in, channels, and stride of every block."""
        number, comes = 0, self.channels
        for level, count in enumerate(BLOCKS[self.layers]):
            for index in range(count):
                channels = self.channels * 2**level
                yield name(number), comes, channels, 2 if level and not index else 1
                number, comes = number + 1, 4 * channels

    def shapes(self) -> dict[str, Any]:
        """Parameters."""
        tree: dict[str, Any] = {"a_stem": _norm(self.channels) | {"conv": (7, 7, 3, self.channels)}}
        for block, comes, channels, stride in self.blocks():
            sizes = [(1, 1, comes, channels), (3, 3, channels, self.width * channels)]
            sizes += [(1, 1, self.width * channels, 4 * channels)]
            if stride > 1 or comes != 4 * channels:
                sizes.append((1, 1, comes, 4 * channels))
            tree[block] = {f"conv{i}": _norm(size[-1]) | {"conv": size} for i, size in enumerate(sizes)}
        tree["head"] = {"kernel": (32 * self.channels, CLASSES), "bias": (CLASSES,)}
        leaf = lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)
        return jax.tree.map(leaf, tree, is_leaf=lambda value: isinstance(value, tuple))

    @property
    def parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.shapes()))


def name(block: int) -> str:
    """What the parameters of a block are called."""
    return f"block{block:02d}"


def _norm(channels: int) -> dict[str, Any]:
    return {"scale": (channels,), "shift": (channels,)}


def _normed(x: jax.Array, w: Any, stride: int = 1) -> jax.Array:
    """[B, H, W, C] convolved, and normalised by the statistics of the batch."""
    x = jax.lax.conv_general_dilated(x, w["conv"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    mean = jnp.mean(x, (0, 1, 2))
    variance = jnp.mean(x * x, (0, 1, 2)) - mean * mean
    slope = w["scale"] * jax.lax.rsqrt(variance + 1e-5)
    return x * slope + (w["shift"] - mean * slope)


def _block(x: jax.Array, w: Any, stride: int) -> jax.Array:
    y = jnp.maximum(_normed(x, w["conv0"]), 0)
    y = jnp.maximum(_normed(y, w["conv1"], stride), 0)
    y = _normed(y, w["conv2"])
    return jnp.maximum(y + (_normed(x, w["conv3"], stride) if "conv3" in w else x), 0)


def loss(size: Size, params: Any, extra: None, batch: Any, key: jax.Array) -> fa.Outcome:
    """Cross entropy; "image" is [B, image, image, 3], "label" [B]."""
    del extra, key
    x = jnp.maximum(_normed(batch["image"], params["a_stem"], 2), 0)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for block, _, _, stride in size.blocks():
        x = _block(x, params[block], stride)
    logits = jnp.mean(x, (1, 2)) @ params["head"]["kernel"] + params["head"]["bias"]
    chosen = batch["label"][:, None] == jnp.arange(CLASSES)
    losses = jax.nn.logsumexp(logits, -1) - jnp.sum(jnp.where(chosen, logits, 0), -1)
    return fa.Outcome({"entropy": fa.Mean(jnp.sum(losses), jnp.float32(losses.size))})


def training(size: Size) -> fa.Training:
    """Batch statistics are those of a micro-batch: that the loss splits is Alpa's assumption."""
    return fa.Training(functools.partial(loss, size), optax.sgd(0.1, momentum=0.9, nesterov=True), splits=True)


def abstract(size: Size, rows: int) -> tuple[Any, Any]:
    """State and batch."""
    state = jax.eval_shape(lambda params: training(size).initial(params, jax.random.key(0)), size.shapes())
    image = jax.ShapeDtypeStruct((rows, size.image, size.image, 3), jnp.float32)
    return state, {"image": image, "label": jax.ShapeDtypeStruct((rows,), jnp.int32)}
