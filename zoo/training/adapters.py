"""LoRA: a small product added to chosen matrices, which alone is trained.

A kernel W [.., in, out] becomes W + alpha / rank * A B with A [.., in, rank] and B [.., rank, out]; B starts at zero, so a training
begins with the model as it is. The products stand in "params" under "lora", at the place of the layer that they belong to.

Reference: Hu et al. LoRA: Low-Rank Adaptation of Large Language Models. 2021.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from zoo.errors import UserError
from zoo.models.exchange import flat, nested

PART = "lora"


@dataclasses.dataclass(frozen=True)
class Lora:
    """Which matrices, and how large the products are.

    Attributes:
        rank: inner width.
        alpha: the product is scaled by alpha / rank.
        targets: patterns (regular expressions) of the last part of a layer's name, such as query and value.
    """

    rank: int
    targets: tuple[str, ...]
    alpha: float = 16.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", tuple(self.targets))
        if self.rank < 1:
            raise ValueError(f"rank={self.rank}; it must be at least 1")
        if not self.targets:
            raise ValueError("targets=[]; name at least one layer, such as query")


def added(params: Mapping[str, Any], config: Lora, key: jax.Array) -> dict[str, Any]:
    """The parameters with products that are zero. Pure, for jit.

    Raises:
        UserError: no matrix has such a name.
    """
    kernels = {path.removesuffix("/kernel"): leaf for path, leaf in flat(params).items() if path.endswith("/kernel")}
    chosen = [path for path in kernels if is_target(path, config)]
    if not chosen:
        known = sorted({path.rpartition("/")[2] for path in kernels})
        raise UserError(
            f"recipe.training.lora.targets={list(config.targets)} fit no layer; its layers are {', '.join(known)}"
        )
    products: dict[str, Any] = {}
    for number, path in enumerate(chosen):
        *layers, inputs, outputs = kernels[path].shape
        dtype = kernels[path].dtype
        bound = inputs**-0.5
        shape = (*layers, inputs, config.rank)
        products[f"{path}/a"] = jax.random.uniform(jax.random.fold_in(key, number), shape, dtype, -bound, bound)
        products[f"{path}/b"] = jnp.zeros((*layers, config.rank, outputs), dtype)
    return {**params, PART: nested(products)}


def is_target(path: str, config: Lora) -> bool:
    """Whether a layer, "encoder/layers/query", gets a product."""
    return any(re.fullmatch(pattern, path.rpartition("/")[2]) for pattern in config.targets)


def merged(params: Mapping[str, Any], alpha: float) -> dict[str, Any]:
    """The parameters with the products added to their matrices; the same where there are none. Arrays of JAX or NumPy."""
    if PART not in params:
        return dict(params)
    leaves = flat({name: part for name, part in params.items() if name != PART})
    products = flat(params[PART])
    for path, a in products.items():
        if path.endswith("/a"):
            layer = path.removesuffix("/a")
            b = products[f"{layer}/b"]
            leaves[f"{layer}/kernel"] = leaves[f"{layer}/kernel"] + (alpha / a.shape[-1]) * (a @ b)
    return nested(leaves)
