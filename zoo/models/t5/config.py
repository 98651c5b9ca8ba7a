"""What a T5 is made of; the sizes people use are written in conf/recipe."""

from __future__ import annotations

import dataclasses
from typing import Literal

from zoo.models.activations import ACTIVATIONS
from zoo.models.products import FORMS, Form
from zoo.models.repeat import REPEATS

DTYPES = ("float32", "bfloat16", "float64")


@dataclasses.dataclass(frozen=True)
class T5Config:
    """An encoder and a decoder of text.

    T5 1.0 has relu, is not gated and ties its output to the embedding; T5 1.1 has gelu_tanh, is gated and not tied.

    Attributes:
        vocabulary_size: rows of the embedding; T5's has 32,100 tokens and is filled up to 32,128.
        hidden: width of a token's representation.
        num_layers: of the encoder, and of the decoder where `num_decoder_layers` is 0.
        num_heads, head_size: of attention; their product need not be `hidden`.
        intermediate: inner width of the feed-forward part.
        activation: "relu", "gelu", "gelu_tanh" or "silu".
        gated: the activation is multiplied with a second projection.
        tied: the output projection is the embedding, scaled by hidden ** -0.5.
        num_buckets, max_distance: of relative positions.
        norm_epsilon: added to the mean square in norms.
        dropout: share that training drops.
        pad_id, end_id: the token that fills up (and starts the decoder), and the one that ends a text.
        repeat: layers as "scan" or "unrolled"; the numbers are the same.
        products: "batched" or "flat" (`zoo.models.products`); the numbers are the same.
        dtype: what matrix products compute in. Parameters are float32 ("float64" makes them float64). There is no
            float16: T5's activations leave its range, and the numbers become infinite.
    """

    vocabulary_size: int
    hidden: int
    num_layers: int
    num_heads: int
    head_size: int
    intermediate: int
    num_decoder_layers: int = 0
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "gelu_tanh"
    gated: bool = True
    tied: bool = False
    num_buckets: int = 32
    max_distance: int = 128
    norm_epsilon: float = 1e-6
    dropout: float = 0.1
    pad_id: int = 0
    end_id: int = 1
    repeat: Literal["scan", "unrolled"] = "scan"
    products: Form = "batched"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "hidden", "num_layers", "num_heads", "head_size", "intermediate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        if self.num_buckets < 4 or self.num_buckets % 4:
            raise ValueError(f"num_buckets={self.num_buckets}; it must be a multiple of 4")
        if self.max_distance <= self.num_buckets // 2:
            raise ValueError(f"max_distance={self.max_distance}; it must be above num_buckets / 2")
        kinds = {"activation": tuple(ACTIVATIONS), "repeat": REPEATS, "products": FORMS, "dtype": DTYPES}
        for name, allowed in kinds.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}; allowed are {', '.join(allowed)}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; it must be at least 0 and below 1")

    @property
    def decoder_layers(self) -> int:
        return self.num_decoder_layers or self.num_layers

    @property
    def param_dtype(self) -> str:
        return "float64" if self.dtype == "float64" else "float32"
