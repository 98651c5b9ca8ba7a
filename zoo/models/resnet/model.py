"""ResNet for images, written for one device.

Shape suffixes: B examples, H height, W width, C channels, K classes. Images are [B, H, W, C].
Names of modules follow PyTorch's (conv1, bn1, layer1.0.conv1, ..., fc), with "_" where those have ".".

References:
    He, Zhang, Ren, Sun. Deep Residual Learning for Image Recognition. 2015. The stride of a bottleneck block sits on
    its 3x3 convolution, as in most later implementations ("v1.5"). The padding shortcut is the paper's option A, the
    projection shortcut its option B.
    Ioffe, Szegedy. Batch Normalization. 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.models import draws
from zoo.models.convolutions import convolve
from zoo.models.resnet.config import ResNetConfig

# Kept at every step of the running statistics; the rest comes from the batch.
BATCH_NORM_MOMENTUM = 0.9
BATCH_NORM_EPSILON = 1e-5

# He's rule for layers that are followed by a ReLU, LeCun's for the last.
_conv_init = nn.initializers.variance_scaling(2.0, "fan_out", "uniform")
_head_init = nn.initializers.lecun_uniform()


class BatchNorm(nn.Module):
    """Normalises each channel over the batch and the image, then scales and shifts it.

    The mean is taken off before squaring: the difference of E[x^2] and E[x]^2 loses all digits when a channel's mean is
    large beside its spread. Statistics are at least float32, whatever the dtype of `x`.
    """

    param_dtype: str = "float32"
    scale_init: Callable[..., jax.Array] = nn.initializers.ones
    epsilon: float = BATCH_NORM_EPSILON

    @nn.compact
    def __call__(self, x_BHWC: jax.Array, train: bool) -> jax.Array:
        channels = (x_BHWC.shape[-1],)
        scale = self.param("scale", self.scale_init, channels, self.param_dtype)
        bias = self.param("bias", nn.initializers.zeros, channels, self.param_dtype)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, channels, self.param_dtype)
        running_var = self.variable("batch_stats", "var", jnp.ones, channels, self.param_dtype)

        wide_BHWC = x_BHWC.astype(self.param_dtype)
        if train:
            mean = jnp.mean(wide_BHWC, axis=(0, 1, 2))
            centred_BHWC = wide_BHWC - mean
            var = jnp.mean(jnp.square(centred_BHWC), axis=(0, 1, 2))
            if not self.is_initializing():
                running_mean.value = BATCH_NORM_MOMENTUM * running_mean.value + (1 - BATCH_NORM_MOMENTUM) * mean
                running_var.value = BATCH_NORM_MOMENTUM * running_var.value + (1 - BATCH_NORM_MOMENTUM) * var
        else:
            centred_BHWC = wide_BHWC - running_mean.value
            var = running_var.value
        y_BHWC = centred_BHWC * (jax.lax.rsqrt(var + self.epsilon) * scale) + bias
        return y_BHWC.astype(x_BHWC.dtype)


def _conv(config: ResNetConfig, channels: int, kernel: int, stride: int, name: str) -> nn.Conv:
    # Padding is written out: "SAME" would pad strided convolutions on one side only, unlike PyTorch.
    padding = (kernel - 1) // 2
    return nn.Conv(
        features=channels,
        kernel_size=(kernel, kernel),
        strides=(stride, stride),
        padding=((padding, padding), (padding, padding)),
        use_bias=False,
        conv_general_dilated=convolve(config.convolution),
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        kernel_init=_conv_init,
        name=name,
    )


class Block(nn.Module):
    """One residual block: the shortcut plus two (basic) or three (bottleneck) convolutions."""

    config: ResNetConfig
    stage: int
    stride: int

    @nn.compact
    def __call__(self, x_BHWC: jax.Array, train: bool) -> jax.Array:
        config = self.config
        inner, outer = config.channels(self.stage)
        layers: tuple[tuple[int, int, int], ...]  # channels, kernel, stride
        if config.block_kind == "bottleneck":
            layers = ((inner, 1, 1), (inner, 3, self.stride), (outer, 1, 1))
        else:
            layers = ((inner, 3, self.stride), (outer, 3, 1))
        y_BHWC = x_BHWC
        for index, (channels, kernel, stride) in enumerate(layers, start=1):
            last = index == len(layers)
            scale_init = nn.initializers.zeros if last and config.zero_init_residual else nn.initializers.ones
            y_BHWC = _conv(config, channels, kernel, stride, f"conv{index}")(y_BHWC)
            y_BHWC = BatchNorm(config.param_dtype, scale_init, name=f"bn{index}")(y_BHWC, train)
            if not last:
                y_BHWC = nn.relu(y_BHWC)
        return nn.relu(y_BHWC + self._shortcut(x_BHWC, outer, train))

    def _shortcut(self, x_BHWC: jax.Array, channels: int, train: bool) -> jax.Array:
        missing = channels - x_BHWC.shape[-1]
        if self.stride == 1 and missing == 0:
            return x_BHWC
        if self.config.shortcut == "padding":
            x_BHWC = jax.lax.slice(x_BHWC, (0, 0, 0, 0), x_BHWC.shape, (1, self.stride, self.stride, 1))
            return jnp.pad(x_BHWC, ((0, 0), (0, 0), (0, 0), (missing // 2, missing - missing // 2)))
        y_BHWC = _conv(self.config, channels, 1, self.stride, "downsample_0")(x_BHWC)
        return BatchNorm(self.config.param_dtype, name="downsample_1")(y_BHWC, train)


class ResNet(nn.Module):
    """Images [B, H, W, C] to logits [B, K].

    Logits have the dtype of the parameters. With `train=True` batch norm uses the batch's own statistics and updates
    the running ones, the collection "batch_stats", which must then be mutable.
    """

    config: ResNetConfig

    @nn.compact
    def __call__(self, image_BHWC: jax.Array, train: bool) -> jax.Array:
        config = self.config
        kernel, stride = (7, 2) if config.stem == "imagenet" else (3, 1)
        x_BHWC = _conv(config, config.width, kernel, stride, "conv1")(image_BHWC.astype(config.dtype))
        x_BHWC = nn.relu(BatchNorm(config.param_dtype, name="bn1")(x_BHWC, train))
        if config.stem == "imagenet":
            x_BHWC = nn.max_pool(x_BHWC, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
        for stage, number in enumerate(config.blocks):
            for index in range(number):
                stride = 2 if stage > 0 and index == 0 else 1
                x_BHWC = Block(config, stage, stride, name=f"layer{stage + 1}_{index}")(x_BHWC, train)
        x_BC = jnp.mean(x_BHWC.astype(config.param_dtype), axis=(1, 2))
        head = nn.Dense(
            config.num_classes,
            dtype=config.param_dtype,
            param_dtype=config.param_dtype,
            kernel_init=_head_init,
            name="fc",
        )
        return head(x_BC)


def initial_variables(config: ResNetConfig, key: jax.Array) -> dict[str, Any]:
    """The tree {"params", "batch_stats"} before training, from a PRNG key; pure, for jit.

    Distributed as `ResNet.init` has them, with other numbers, which compile quickly (see zoo.models.draws).
    """
    # Every layer is convolutional, so any image gives the same parameters; this one survives every stride.
    size = 2 ** (len(config.blocks) + 2)
    image = jnp.zeros((1, size, size, 3), config.param_dtype)
    variables = ResNet(config).init(key, image, train=False)
    leaves, tree = jax.tree.flatten(variables["params"])
    words = draws.words(key, len(leaves))
    for number, leaf in enumerate(leaves):
        if leaf.ndim > 1:
            leaves[number] = draws.uniform(words[number], leaf.shape, _limit(leaf.shape), config.param_dtype)
    return {**variables, "params": jax.tree.unflatten(tree, leaves)}


def _limit(shape: tuple[int, ...]) -> float:
    """Half the width of a kernel's initial distribution; the rules of `_conv_init` [H, W, C, C'] and `_head_init` [C, K]."""
    return math.sqrt(6 / (shape[0] * shape[1] * shape[3])) if len(shape) == 4 else math.sqrt(3 / shape[0])


def abstract_variables(config: ResNetConfig) -> dict[str, Any]:
    """The tree {"params", "batch_stats"} with shapes and dtypes in place of arrays."""
    # The key is made inside, where it is abstract too: making a real one would start a backend.
    return jax.eval_shape(lambda: initial_variables(config, jax.random.key(0)))


def parameter_count(config: ResNetConfig) -> int:
    """Number of trained parameters; running statistics are not counted."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract_variables(config)["params"]))
