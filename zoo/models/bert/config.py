"""What a BERT is made of; the sizes people use are written in conf/recipe."""

from __future__ import annotations

import dataclasses
from typing import Literal

from zoo.models.activations import ACTIVATIONS
from zoo.models.products import FORMS, Form
from zoo.models.repeat import REPEATS

HEADS = ("encoder", "pretraining", "masked_words", "classification", "tokens", "answers")
DTYPES = ("float32", "bfloat16", "float64")


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """A bidirectional encoder of text.

    Attributes:
        vocabulary_size: number of tokens.
        hidden: width of a token's representation.
        num_layers, num_heads, intermediate: of the encoder; `intermediate` is the inner width of the feed-forward part.
        head: what stands on the encoder. "encoder": the pooler; "pretraining": masked words and the next sentence;
            "masked_words": these alone; "classification": a label for the text; "tokens": a label for each token;
            "answers": start and end of a span.
        num_labels: outputs of "classification" and "tokens".
        max_positions: longest sequence.
        num_types: kinds of segments.
        activation: "gelu", "gelu_tanh", "relu" or "silu".
        norm_epsilon: added to the variance in layer norms.
        dropout, attention_dropout: shares that training drops, of representations and of attention weights.
        initializer_range: standard deviation of initial kernels and embeddings, cut at two of them.
        pad_id: the token that fills sequences up.
        repeat: layers as "scan" or "unrolled"; the numbers are the same.
        products: "batched" or "flat" (`zoo.models.products`); the numbers are the same.
        dtype: what matrix products compute in. Parameters are float32 ("float64" makes them float64).
    """

    vocabulary_size: int
    hidden: int
    num_layers: int
    num_heads: int
    intermediate: int
    head: Literal["encoder", "pretraining", "masked_words", "classification", "tokens", "answers"] = "pretraining"
    num_labels: int = 2
    max_positions: int = 512
    num_types: int = 2
    activation: Literal["gelu", "gelu_tanh", "relu", "silu"] = "gelu"
    norm_epsilon: float = 1e-12
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    pad_id: int = 0
    repeat: Literal["scan", "unrolled"] = "scan"
    products: Form = "batched"
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"

    def __post_init__(self) -> None:
        for name in (
            *("vocabulary_size", "hidden", "num_layers", "num_heads", "intermediate"),
            *("num_labels", "max_positions", "num_types"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 1")
        if self.hidden % self.num_heads:
            raise ValueError(f"hidden={self.hidden} is not divisible by num_heads={self.num_heads}; change one of them")
        for name, allowed in (
            ("head", HEADS),
            ("activation", tuple(ACTIVATIONS)),
            ("repeat", REPEATS),
            ("products", FORMS),
            ("dtype", DTYPES),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r}; allowed are {', '.join(allowed)}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}; it must be at least 0 and below 1")

    @property
    def param_dtype(self) -> str:
        return "float64" if self.dtype == "float64" else "float32"
