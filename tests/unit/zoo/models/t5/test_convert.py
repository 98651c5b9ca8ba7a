"""T5's weights by other names: 1.0 and 1.1, tied ones, and there and back."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models.exchange import flat
from zoo.models.t5.config import T5Config
from zoo.models.t5.convert import config_from, config_to, from_hugging_face, to_hugging_face
from zoo.models.t5.model import abstract_params

NEWER = T5Config(11, 8, 2, 2, 3, 12)
OLDER = dataclasses.replace(NEWER, activation="relu", gated=False, tied=True, num_decoder_layers=1)


def random_params(config: T5Config) -> dict:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), abstract_params(config))


@pytest.mark.parametrize("config", [NEWER, OLDER])
def test_there_and_back_is_exact(config: T5Config) -> None:
    params = random_params(config)
    weights = to_hugging_face(params, config)
    found = from_hugging_face(weights, config)
    assert set(found.used) == set(weights)
    for name, value in flat(params).items():
        np.testing.assert_array_equal(flat(found.params)[name], value, err_msg=name)
    assert dataclasses.replace(config_from(config_to(config)), num_decoder_layers=config.num_decoder_layers) == config


def test_names_are_those_of_hugging_face() -> None:
    newer = to_hugging_face(random_params(NEWER), NEWER)
    assert newer["decoder.block.1.layer.2.DenseReluDense.wi_1.weight"].shape == (12, 8)
    assert newer["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"].shape == (32, 2)
    older = to_hugging_face(random_params(OLDER), OLDER)
    assert "encoder.block.1.layer.1.DenseReluDense.wi.weight" in older and "lm_head.weight" not in older


def test_copies_of_tied_weights_are_left_out_and_reported() -> None:
    weights = to_hugging_face(random_params(OLDER), OLDER)
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    found = from_hugging_face(weights | dict.fromkeys(copies, weights["shared.weight"]), OLDER)
    assert not found.missing
    # Files without shared.weight have one of the copies.
    part = weights | {"encoder.embed_tokens.weight": weights["shared.weight"]}
    del part["shared.weight"]
    np.testing.assert_array_equal(
        from_hugging_face(part, OLDER).params["embedding"]["embedding"], weights["shared.weight"]
    )
    with pytest.raises(UserError, match="lm_head.weight is not shared.weight"):
        from_hugging_face(weights | {"lm_head.weight": weights["shared.weight"] + 1}, OLDER)


def test_an_output_that_is_not_scaled_is_not_tied() -> None:
    """As newer files say it, which call every model tied; what is equal may be written once."""
    said = config_to(NEWER) | {"tie_word_embeddings": True, "scale_decoder_outputs": False}
    assert not config_from(said).tied
    assert config_from(config_to(OLDER) | {"scale_decoder_outputs": True}).tied
    weights = to_hugging_face(random_params(NEWER), NEWER)
    del weights["lm_head.weight"]
    np.testing.assert_array_equal(from_hugging_face(weights, NEWER).params["output"], weights["shared.weight"])


def test_the_wrong_kind_is_refused() -> None:
    with pytest.raises(UserError, match="which this model does not know"):
        from_hugging_face(to_hugging_face(random_params(OLDER), OLDER), dataclasses.replace(OLDER, gated=True))
    with pytest.raises(UserError, match="model_type=bert, and this model is t5"):
        config_from({"model_type": "bert"})
