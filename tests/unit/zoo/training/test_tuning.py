"""Which parameters a fine-tuning changes, and by how much."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import optax
import pytest

from zoo.errors import UserError
from zoo.training.adapters import Lora, added, merged
from zoo.training.tuning import TuningConfig, speeds_of, tuned

PARAMS = {
    "embeddings": {"word": {"embedding": np.ones((5, 2), np.float32)}},
    "encoder": {"layers": {"query": {"kernel": np.ones((3, 2, 2), np.float32), "bias": np.ones((3, 2), np.float32)}}},
    "classifier": {"kernel": np.ones((2, 4), np.float32)},
}
ORDER = ("embeddings", *(rf"encoder\.layers\.{number}" for number in range(3)))


def stepped(config: TuningConfig, params: Any = PARAMS) -> tuple[Any, Any]:
    """The change of each parameter in a step of plain descent along a gradient of ones, and the optimizer's state."""
    optimizer = tuned(
        optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0, 0.9)), config, params, ORDER, ("classifier",)
    )
    state = optimizer.init(params)
    updates, _ = optimizer.update(jax.tree.map(np.ones_like, params), state, params)
    return jax.tree.map(np.asarray, updates), state


def test_patterns_freeze_parts_and_single_layers() -> None:
    config = TuningConfig(1, frozen=("embeddings", "encoder.layers.[01]"))
    updates, state = stepped(config)
    assert not updates["embeddings"]["word"]["embedding"].any()
    changed = updates["encoder"]["layers"]["query"]["kernel"].reshape(3, -1).any(axis=1)
    assert changed.tolist() == [False, False, True]
    # The frozen layers do not count in the norm that clips: 4 + 2 of the last layer, 8 of the head.
    np.testing.assert_allclose(updates["classifier"]["kernel"], -(14**-0.5), rtol=1e-6)
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == 12 + 6 + 8  # none for the embedding


def test_lower_layers_learn_more_slowly() -> None:
    speeds = speeds_of(PARAMS, TuningConfig(1, layer_decay=0.5), ORDER, ())
    assert speeds["encoder/layers/query/kernel"].ravel().tolist() == [0.125, 0.25, 0.5]
    assert speeds["embeddings/word/embedding"] == 0.0625 and speeds["classifier/kernel"] == 1


def test_lora_trains_its_products_and_the_head_alone() -> None:
    config = TuningConfig(1, lora=Lora(2, ("query",), 4.0))
    assert config.lora is not None
    params = added(PARAMS, config.lora, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, merged(params, 4.0), PARAMS)
    updates, _ = stepped(config, params)
    assert updates["lora"]["encoder"]["layers"]["query"]["b"].all() and updates["classifier"]["kernel"].all()
    assert not any(leaf.any() for leaf in jax.tree.leaves((updates["encoder"], updates["embeddings"])))
    products = {"a": np.ones((3, 2, 2), np.float32), "b": np.full((3, 2, 2), 0.25, np.float32)}
    grown = merged({**params, "lora": {"encoder": {"layers": {"query": products}}}}, 4.0)
    np.testing.assert_array_equal(grown["encoder"]["layers"]["query"]["kernel"], np.full((3, 2, 2), 2.0))


def test_a_plain_training_has_the_plain_optimizer() -> None:
    plain = optax.sgd(1.0)
    assert tuned(plain, TuningConfig(1), PARAMS, ORDER, ()) is plain


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (TuningConfig(1, frozen=("encodr",)), "recipe.training.frozen has encodr, which fits no parameter.*classifier"),
        (TuningConfig(1, frozen=(".*",)), "freezes everything"),
    ],
)
def test_wrong_patterns_are_refused(config: TuningConfig, text: str) -> None:
    with pytest.raises(UserError, match=text):
        stepped(config)
    with pytest.raises(UserError, match="fit no layer; its layers are classifier, query"):
        added(PARAMS, Lora(2, ("quary",)), jax.random.key(0))
    with pytest.raises(ValueError, match="patience=2, best=None"):
        TuningConfig(1, best=None, patience=2)
