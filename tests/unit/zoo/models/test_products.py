"""Both forms of products give the same logits and gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.models.bert.config import BertConfig
from zoo.models.bert.model import Bert
from zoo.models.t5.config import T5Config
from zoo.models.t5.model import T5

IDS = np.arange(14).reshape(2, 7) % 11


def bert(products: Any) -> Callable[[Any], jax.Array]:
    config = BertConfig(11, 8, 2, 2, 16, head="masked_words", dropout=0.0, attention_dropout=0.0, dtype="float64")
    model = Bert(dataclasses.replace(config, products=products))
    return lambda params: model.apply({"params": params}, IDS, 0 * IDS, 1 + 0 * IDS)["words"]  # type: ignore[index]


def t5(products: Any) -> Callable[[Any], jax.Array]:
    config = dataclasses.replace(T5Config(*(11, 8, 2, 2, 4, 16), dropout=0.0, dtype="float64"), products=products)
    return lambda params: T5(config).apply({"params": params}, IDS, 1 + 0 * IDS, IDS[:, :5])  # type: ignore[return-value]


@pytest.mark.parametrize("logits", [bert, t5])
def test_flat_is_batched(logits: Callable[[Any], Callable[[Any], jax.Array]]) -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        model: Any = Bert if logits is bert else T5
        config: Any = BertConfig(11, 8, 2, 2, 16, head="masked_words", dtype="float64")
        config = config if logits is bert else T5Config(*(11, 8, 2, 2, 4, 16), dtype="float64")
        params = model(config).init(jax.random.key(0), IDS, 0 * IDS + 1, IDS)["params"]
        both = [
            jax.value_and_grad(lambda p, form=form: jnp.sum(jnp.sin(logits(form)(p))))(params)
            for form in ("batched", "flat")
        ]
    finally:
        jax.config.update("jax_enable_x64", False)
    for one, other in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
