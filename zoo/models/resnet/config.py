"""What a ResNet is made of; the sizes people use are written in conf/recipe."""

from __future__ import annotations

import dataclasses
from typing import Literal

from zoo.models.convolutions import FORMS, Form

BLOCK_KINDS = ("bottleneck", "basic")
STEMS = ("imagenet", "cifar")
SHORTCUTS = ("projection", "padding")
DTYPES = ("float32", "bfloat16", "float64")


@dataclasses.dataclass(frozen=True)
class ResNetConfig:
    """A residual network for images.

    Attributes:
        blocks: number of blocks of each stage; the first block of every stage but the first halves the resolution.
        block_kind: "bottleneck" (1x1, 3x3, 1x1) or "basic" (3x3, 3x3).
        stem: "imagenet" (7x7 stride 2, then 3x3 max-pool stride 2) or "cifar" (3x3 stride 1, no pool).
        num_classes: width of the output.
        width: channels of the stem and of the first stage's 3x3 convolutions; doubles from stage to stage.
        expansion: a bottleneck block has `expansion` times as many output channels as its 3x3 convolution has; a basic
            block has as many.
        shortcut: where shapes change, "projection" (1x1 convolution and batch norm) or "padding" (every second pixel,
            missing channels zero).
        zero_init_residual: start the last batch norm of every block at scale 0, so that blocks start as the identity.
        convolution: how convolutions are computed, with the same numbers: "lax", XLA's own; "products" of matrices, which are
            faster on processors; null, lax but for what runs on this machine's processor for real.
        dtype: what convolutions compute in. Parameters and batch statistics are float32 ("float64" makes them float64).
    """

    blocks: tuple[int, ...]
    block_kind: Literal["bottleneck", "basic"] = "bottleneck"
    stem: Literal["imagenet", "cifar"] = "imagenet"
    num_classes: int = 1000
    width: int = 64
    expansion: int = 4
    shortcut: Literal["projection", "padding"] = "projection"
    zero_init_residual: bool = False
    convolution: Form | None = None
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if not self.blocks or any(number < 1 for number in self.blocks):
            raise ValueError(f"blocks={list(self.blocks)}; give at least one stage, each with at least one block")
        choices = {
            "block_kind": BLOCK_KINDS,
            "stem": STEMS,
            "shortcut": SHORTCUTS,
            "convolution": (None, *FORMS),
            "dtype": DTYPES,
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}; allowed are {', '.join(map(str, allowed))}")
        for name in ("num_classes", "width", "expansion"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")

    @property
    def depth(self) -> int:
        """Number of layers with weights on the longest path, as in the name ResNet-50."""
        return sum(self.blocks) * (3 if self.block_kind == "bottleneck" else 2) + 2

    @property
    def param_dtype(self) -> str:
        return "float64" if self.dtype == "float64" else "float32"

    def channels(self, stage: int) -> tuple[int, int]:
        """Channels of the 3x3 convolutions and of the block's output in a stage."""
        inner = self.width * 2**stage
        return inner, inner * (self.expansion if self.block_kind == "bottleneck" else 1)
