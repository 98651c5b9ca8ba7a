"""What a PNASNet-5 is made of; the sizes people use are written in conf/recipe."""

from __future__ import annotations

import dataclasses
from typing import Literal

from zoo.models.convolutions import FORMS, Form

STEMS = ("imagenet", "cifar")
DTYPES = ("float32", "bfloat16", "float64")


@dataclasses.dataclass(frozen=True)
class PNASNetConfig:
    """A network of equal cells for images.

    Attributes:
        cells: number of cells of each stage; the first cell of every stage but the first halves the resolution.
        filters: channels of a cell's branches in the first stage (a cell gives five times as many); doubles from stage to stage.
        stem: "imagenet" (3x3 stride 2, then two cells of a quarter and half the filters that halve the resolution) or "cifar" (3x3
            stride 1).
        stem_width: channels of the first convolution.
        num_classes: width of the output.
        dropout: share of the last features that training drops.
        convolution: how convolutions are computed, with the same numbers: "lax", XLA's own; "products" of matrices, which are
            faster on processors; null, lax but for what runs on this machine's processor for real.
        dtype: what convolutions compute in. Parameters and batch statistics are float32 ("float64" makes them float64).
    """

    cells: tuple[int, ...] = (4, 4, 4)
    filters: int = 216
    stem: Literal["imagenet", "cifar"] = "imagenet"
    stem_width: int = 96
    num_classes: int = 1000
    dropout: float = 0.0
    convolution: Form | None = None
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(self.cells))
        if not self.cells or any(number < 1 for number in self.cells):
            raise ValueError(f"cells={list(self.cells)}; give at least one stage, each with at least one cell")
        if self.filters < 4:
            raise ValueError(f"filters={self.filters}; it must be at least 4, since parts of the stem have a quarter")
        for name in ("stem_width", "num_classes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; it must be at least 0 and below 1")
        for name, allowed in (("stem", STEMS), ("convolution", (None, *FORMS)), ("dtype", DTYPES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}; allowed are {', '.join(map(str, allowed))}")

    @property
    def param_dtype(self) -> str:
        return "float64" if self.dtype == "float64" else "float32"
