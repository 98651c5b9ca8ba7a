"""PNASNet-5 for images, written for one device.

Shape suffixes: B examples, H height, W width, C channels, K classes. Images are [B, H, W, C].
Names of modules follow timm's (conv_0, cell_stem_0, cell_0.comb_iter_0_left, ..., last_linear), with "_" where those have ".".

Reference: Liu et al. Progressive Neural Architecture Search. 2018. Strides and padding are those of timm's pnasnet5large.
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from zoo.models.attention import dropped
from zoo.models.convolutions import convolve
from zoo.models.pnasnet.config import PNASNetConfig
from zoo.models.resnet.model import BatchNorm

EPSILON = 1e-3


def _conv(
    config: PNASNetConfig, channels: int, kernel: int, stride: int, name: str, padding: str = "SAME", groups: int = 1
) -> nn.Conv:
    """A convolution; an odd pixel of padding goes behind, where timm puts it too."""
    return nn.Conv(
        channels,
        (kernel, kernel),
        (stride, stride),
        padding=padding,
        feature_group_count=groups,
        use_bias=False,
        conv_general_dilated=convolve(config.convolution),
        dtype=config.dtype,
        param_dtype=config.param_dtype,
        kernel_init=nn.initializers.variance_scaling(2.0, "fan_out" if groups == 1 else "fan_in", "normal"),
        name=name,
    )


def _norm(config: PNASNetConfig, name: str) -> BatchNorm:
    return BatchNorm(config.param_dtype, epsilon=EPSILON, name=name)


def _max_pool(x_BHWC: jax.Array, stride: int) -> jax.Array:
    return nn.max_pool(x_BHWC, (3, 3), strides=(stride, stride), padding="SAME")


class Separable(nn.Module):
    """Twice: relu, a depthwise convolution and one over channels, batch norm."""

    config: PNASNetConfig
    channels: int
    kernel: int
    stride: int = 1
    widen_first: bool = False

    @nn.compact
    def __call__(self, x_BHWC: jax.Array, train: bool) -> jax.Array:
        middle = self.channels if self.widen_first else x_BHWC.shape[-1]
        for index, (channels, stride) in enumerate(((middle, self.stride), (self.channels, 1)), start=1):
            own, depthwise = x_BHWC.shape[-1], f"separable_{index}_depthwise_conv2d"
            x_BHWC = _conv(self.config, own, self.kernel, stride, depthwise, groups=own)(nn.relu(x_BHWC))
            x_BHWC = _conv(self.config, channels, 1, 1, f"separable_{index}_pointwise_conv2d")(x_BHWC)
            x_BHWC = _norm(self.config, f"bn_sep_{index}")(x_BHWC, train)
        return x_BHWC


class Pointwise(nn.Module):
    """Relu, a convolution over channels, batch norm."""

    config: PNASNetConfig
    channels: int
    stride: int = 1

    @nn.compact
    def __call__(self, x_BHWC: jax.Array, train: bool) -> jax.Array:
        x_BHWC = _conv(self.config, self.channels, 1, self.stride, "conv")(nn.relu(x_BHWC))
        return _norm(self.config, "bn")(x_BHWC, train)


class FactorizedReduction(nn.Module):
    """Half the resolution: half of the channels from the even pixels, half (and the odd channel) from the odd ones."""

    config: PNASNetConfig
    channels: int

    @nn.compact
    def __call__(self, x_BHWC: jax.Array, train: bool) -> jax.Array:
        even_BHWC = nn.relu(x_BHWC)
        odd_BHWC = jnp.pad(even_BHWC[:, 1:, 1:], ((0, 0), (0, 1), (0, 1), (0, 0)))
        half = self.channels // 2
        parts = [
            _conv(self.config, channels, 1, 1, f"path_{index}_conv")(part[:, ::2, ::2])
            for index, (part, channels) in enumerate(((even_BHWC, half), (odd_BHWC, self.channels - half)), start=1)
        ]
        return _norm(self.config, "final_path_bn")(jnp.concatenate(parts, axis=-1), train)


class Cell(nn.Module):
    """Five sums of two branches each of the last two cells' outputs, side by side.

    Attributes:
        channels: of each of the five.
        stride: 2 halves the resolution.
        is_first: the first cell of the stem has one input for both.
    """

    config: PNASNetConfig
    channels: int
    stride: int = 1
    is_first: bool = False

    @nn.compact
    def __call__(self, left_BHWC: jax.Array, right_BHWC: jax.Array, train: bool) -> jax.Array:
        config, channels, stride, first = self.config, self.channels, self.stride, self.is_first
        whole_BHWC = right_BHWC
        right_BHWC = Pointwise(config, channels, name="conv_1x1")(right_BHWC, train)
        if not first and left_BHWC.shape[1] != right_BHWC.shape[1]:
            left_BHWC = FactorizedReduction(config, channels, name="conv_prev_1x1")(left_BHWC, train)
        elif not first:
            left_BHWC = Pointwise(config, channels, name="conv_prev_1x1")(left_BHWC, train)

        def separable(
            x_BHWC: jax.Array, kernel: int, name: str, stride: int = stride, widen: bool = False
        ) -> jax.Array:
            return Separable(config, channels, kernel, stride, widen, name=name)(x_BHWC, train)

        pooled_BHWC = _max_pool(left_BHWC, stride)
        if first:
            pooled_BHWC = _conv(config, channels, 1, 1, "comb_iter_0_right_conv")(pooled_BHWC)
            pooled_BHWC = _norm(config, "comb_iter_0_right_bn")(pooled_BHWC, train)
        zero = separable(left_BHWC, 5, "comb_iter_0_left", widen=first) + pooled_BHWC
        one = separable(right_BHWC, 7, "comb_iter_1_left") + _max_pool(right_BHWC, stride)
        two = separable(right_BHWC, 5, "comb_iter_2_left") + separable(right_BHWC, 3, "comb_iter_2_right")
        three = separable(two, 3, "comb_iter_3_left", stride=1) + _max_pool(right_BHWC, stride)
        four = separable(whole_BHWC if first else left_BHWC, 3, "comb_iter_4_left", widen=first)
        if stride == 2:
            right_BHWC = Pointwise(config, channels, stride, name="comb_iter_4_right")(right_BHWC, train)
        return jnp.concatenate([zero, one, two, three, four + right_BHWC], axis=-1)


class PNASNet(nn.Module):
    """Images [B, H, W, C] to logits [B, K], in the dtype of the parameters.

    With `train=True` batch norm uses the batch's own statistics and updates the running ones, the collection "batch_stats", which
    must then be mutable; dropout, where there is any, draws from the key "dropout".
    """

    config: PNASNetConfig

    @nn.compact
    def __call__(self, image_BHWC: jax.Array, train: bool) -> jax.Array:
        config = self.config
        stride, padding = (2, "VALID") if config.stem == "imagenet" else (1, "SAME")
        right = _conv(config, config.stem_width, 3, stride, "conv_0_conv", padding)(image_BHWC.astype(config.dtype))
        left = right = _norm(config, "conv_0_bn")(right, train)
        if config.stem == "imagenet":
            first = Cell(config, config.filters // 4, 2, is_first=True, name="cell_stem_0")(right, right, train)
            left, right = first, Cell(config, config.filters // 2, 2, name="cell_stem_1")(right, first, train)
        number = 0
        for stage, count in enumerate(config.cells):
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                cell = Cell(config, config.filters * 2**stage, stride, name=f"cell_{number}")
                left, right = right, cell(left, right, train)
                number += 1
        x_BC = jnp.mean(nn.relu(right).astype(config.param_dtype), axis=(1, 2))
        if train and config.dropout and not self.is_initializing():
            x_BC = dropped(x_BC, config.dropout, self.make_rng("dropout"))
        head = nn.Dense(
            config.num_classes, dtype=config.param_dtype, param_dtype=config.param_dtype, name="last_linear"
        )
        return head(x_BC)


def abstract_variables(config: PNASNetConfig, channels: int = 3) -> dict:
    """The tree {"params", "batch_stats"} with shapes and dtypes in place of arrays."""
    # Every layer is convolutional, so any image gives the same parameters; this one survives every stride.
    size = 2 ** (len(config.cells) + 4)
    image = jax.ShapeDtypeStruct((1, size, size, channels), jnp.float32)
    # The key is made inside, where it is abstract too: making a real one would start a backend.
    return jax.eval_shape(lambda x: PNASNet(config).init(jax.random.key(0), x, train=False), image)


def parameter_count(config: PNASNetConfig) -> int:
    """Number of trained parameters; running statistics are not counted."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract_variables(config)["params"]))
