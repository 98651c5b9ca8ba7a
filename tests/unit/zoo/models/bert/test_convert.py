"""BERT's weights by other names: old ones, tied ones, unknown ones, and there and back."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from zoo.errors import UserError
from zoo.models.bert.config import BertConfig
from zoo.models.bert.convert import ARCHITECTURES, config_from, config_to, from_hugging_face, to_hugging_face
from zoo.models.bert.model import abstract_params
from zoo.models.exchange import flat

TINY = BertConfig(11, 8, 2, 2, 12, max_positions=6)


def random_params(config: BertConfig) -> dict:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), abstract_params(config))


@pytest.mark.parametrize("head", ARCHITECTURES)
def test_there_and_back_is_exact(head: str) -> None:
    config = dataclasses.replace(TINY, head=head)
    params = random_params(config)
    weights = to_hugging_face(params, head)
    found = from_hugging_face(weights, config)
    assert not found.missing and not found.ignored and set(found.used) >= set(weights) or head == "encoder"
    for name, value in flat(params).items():
        np.testing.assert_array_equal(flat(found.params)[name], value, err_msg=name)
    assert config_from(config_to(config)) == dataclasses.replace(config, repeat="scan")


def test_names_are_those_of_hugging_face() -> None:
    weights = to_hugging_face(random_params(TINY), "pretraining")
    assert weights["bert.encoder.layer.1.intermediate.dense.weight"].shape == (12, 8)
    assert weights["cls.seq_relationship.weight"].shape == (2, 8)
    assert "bert.embeddings.word_embeddings.weight" in weights and "cls.predictions.decoder.weight" not in weights
    # Theirs has as many outputs for answers as the configuration has labels.
    assert len(config_to(dataclasses.replace(TINY, head="answers", num_labels=1))["id2label"]) == 2


def test_gamma_and_beta_the_prefix_and_tied_weights_are_understood() -> None:
    params = random_params(TINY)
    weights = to_hugging_face(params, "pretraining")
    old = {
        "module."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in weights.items()
    }
    old["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    old["bert.embeddings.position_ids"] = np.arange(6)
    found = from_hugging_face(old, TINY)
    np.testing.assert_array_equal(found.params["embeddings"]["norm"]["scale"], params["embeddings"]["norm"]["scale"])
    assert set(found.ignored) == {"cls.predictions.decoder.weight", "bert.embeddings.position_ids"}
    assert len(list(found.report())) == len(old)


def test_weights_that_should_be_tied_and_are_not_are_refused() -> None:
    weights = to_hugging_face(random_params(TINY), "pretraining")
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"] + 1
    with pytest.raises(UserError, match="cls.predictions.decoder.weight is not the word embedding"):
        from_hugging_face(weights, TINY)


def test_an_encoder_starts_another_head_and_the_report_says_what_is_new() -> None:
    weights = to_hugging_face(random_params(TINY), "pretraining")
    found = from_hugging_face(weights, dataclasses.replace(TINY, head="classification"))
    assert found.missing == ("classifier/bias", "classifier/kernel")
    assert "cls.predictions.bias" in found.ignored and "pooler" in found.params


def test_what_is_wrong_is_named() -> None:
    weights = to_hugging_face(random_params(TINY), "pretraining")
    with pytest.raises(UserError, match=r"has bert.embedings.x .*and 1 more, which this model does not know"):
        from_hugging_face(weights | {"bert.embedings.x": np.zeros(1), "z": np.zeros(1)}, TINY, "a.safetensors")
    part = {name: value for name, value in weights.items() if "layer.1.output.dense.bias" not in name}
    with pytest.raises(UserError, match=r"has bert.encoder.layer.0.output.dense.bias but not .*layer.1"):
        from_hugging_face(part, TINY)
    with pytest.raises(
        UserError, match=r"word_embeddings.weight gives .* of shape \[11, 8\], and the model has \[12, 8\]"
    ):
        from_hugging_face(weights, dataclasses.replace(TINY, vocabulary_size=12))
    with pytest.raises(UserError, match="not the weights of a BERT"):
        from_hugging_face({}, TINY)
