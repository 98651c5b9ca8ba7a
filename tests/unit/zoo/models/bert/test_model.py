"""BERT against the outputs of another implementation, and the promises of its options."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.models.bert.config import BertConfig
from zoo.models.bert.convert import from_hugging_face
from zoo.models.bert.model import Bert, mean_pooled, parameter_count, rows_at

TINY = BertConfig(*(24, 16, 2, 4, 64), max_positions=20, activation="gelu_tanh", head="masked_words", repeat="unrolled")
# The names in the reference file, and Hugging Face's.
RENAMED = {
    "encoder/emb/norm": "bert.embeddings.LayerNorm",
    "encoder/emb/pos_emb": "bert.embeddings.position_embeddings",
    "encoder/emb/token_emb": "bert.embeddings.word_embeddings",
    "encoder/emb/type_emb": "bert.embeddings.token_type_embeddings",
    "feed_forward/linear1": "intermediate.dense",
    "feed_forward/linear2": "output.dense",
    "feed_forward/norm": "output.LayerNorm",
    "self_attention/attention/i_proj/k_proj": "attention.self.key",
    "self_attention/attention/i_proj/q_proj": "attention.self.query",
    "self_attention/attention/i_proj/v_proj": "attention.self.value",
    "self_attention/attention/o_proj": "attention.output.dense",
    "self_attention/norm": "attention.output.LayerNorm",
    "head/transform/linear": "cls.predictions.transform.dense",
    "head/transform/norm": "cls.predictions.transform.LayerNorm",
    "head/pooler/linear": "bert.pooler.dense",
    "head/output": "classifier",
}


def case_of(folder: Path, name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Weights by Hugging Face's names, inputs, outputs."""
    with np.load(folder / "reference_models/bert_tiny_vs_hf.npz") as file:
        arrays = {key.removeprefix(f"{name}/"): file[key] for key in file.files if key.startswith(f"{name}/")}
    parts: dict[str, dict[str, np.ndarray]] = {"params": {}, "inputs": {}, "outputs": {}}
    for key, value in arrays.items():
        kind, rest = key.split("/", 1)
        parts[kind][rest] = value
    return {name: value for key, array in parts["params"].items() for name, value in [renamed(key, array)]}, *(
        parts[kind] for kind in ("inputs", "outputs")
    )


def renamed(key: str, value: np.ndarray) -> tuple[str, np.ndarray]:
    if key == "head/output_bias":
        return "cls.predictions.bias", value
    *folders, last = key.split("/")
    place, prefix = "/".join(folders), ""
    if place.startswith("encoder/transformer/layer"):
        number, place = place.removeprefix("encoder/transformer/layer").split("/", 1)
        prefix = f"bert.encoder.layer.{number}."
    if last == "weight" and "emb" not in place:
        # (in, ...) or, for the output of attention, (out, heads, size)
        value = value.reshape(16, -1) if "o_proj" in place else value.reshape(value.shape[0], -1).T
    elif "pos_emb" in place:
        value = value[0]
    elif last == "bias":
        value = value.reshape(-1)
    return f"{prefix}{RENAMED[place]}.{'weight' if last == 'scale' else last}", value


def applied(config: BertConfig, params: Any, *inputs: Any, **options: Any) -> dict[str, jax.Array]:
    return jax.jit(lambda params, *inputs: Bert(config).apply({"params": params}, *inputs, **options))(params, *inputs)


@pytest.mark.parametrize("case", ["test_for_mlm", "test_for_mlm_with_padding"])
@pytest.mark.parametrize("repeat", ["scan", "unrolled"])
def test_masked_words_equal_the_reference(reference_data: Path, case: str, repeat: Any) -> None:
    weights, inputs, outputs = case_of(reference_data, case)
    config = dataclasses.replace(TINY, repeat=repeat)
    params = from_hugging_face(weights, config).params
    ids = inputs["input_ids"].astype(np.int32)
    mask = (ids != 0).astype(np.int32)
    found = applied(config, params, ids, inputs["token_type_ids"].astype(np.int32), mask)
    np.testing.assert_allclose(found["hidden"][mask > 0], outputs["hidden_states_last"][mask > 0], atol=1e-5)
    np.testing.assert_allclose(found["words"][mask > 0], outputs["logits"][mask > 0], atol=1e-5)
    labels = inputs["target_labels"]
    log_probs = jax.nn.log_softmax(found["words"])
    counted = labels > 0
    chosen = np.take_along_axis(np.asarray(log_probs), np.maximum(labels, 0)[..., None], -1)[..., 0]
    np.testing.assert_allclose(-chosen[counted].mean(), outputs["loss"], atol=1e-5)


@pytest.mark.parametrize("labels", [1, 2, 3])
def test_classification_equals_the_reference(reference_data: Path, labels: int) -> None:
    weights, inputs, outputs = case_of(reference_data, f"test_sequence_classification_{labels}")
    config = dataclasses.replace(TINY, head="classification", num_labels=labels)
    params = from_hugging_face(weights, config).params
    ids = inputs["input_ids"].astype(np.int32)
    mask = (~inputs["padding_mask"]).astype(np.int32)
    plain = mask if np.all(mask == (ids != 0)) else inputs["padding_mask"].astype(np.int32)
    found = applied(config, params, ids, np.zeros_like(ids), plain)
    np.testing.assert_allclose(found["labels"], outputs["logits"], atol=1e-6)


def test_scan_and_unrolled_have_the_same_parameters_numbers_and_gradients() -> None:
    ids = np.asarray([[1, 2, 3, 0], [5, 6, 7, 8]], np.int32)

    def loss(config: BertConfig, params: Any) -> jax.Array:
        model = Bert(config, train=True)
        found = model.apply({"params": params}, ids, ids * 0, ids > 0, rngs={"dropout": jax.random.key(1, impl="rbg")})
        return jnp.std(found["words"])

    results = []
    for repeat in ("scan", "unrolled"):
        config = dataclasses.replace(TINY, repeat=repeat)
        params = jax.jit(lambda key, config=config: Bert(config).init(key, ids, ids * 0, ids > 0))(
            jax.random.key(0, impl="rbg")
        )
        value = jax.jit(jax.value_and_grad(lambda params, config=config: loss(config, params)))(params["params"])
        results.append((params, value))
    jax.tree.map(np.testing.assert_array_equal, results[0][0], results[1][0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), results[0][1], results[1][1])


def test_sizes_of_the_published_models() -> None:
    assert parameter_count(BertConfig(30522, 768, 12, 12, 3072, head="encoder")) == 109_482_240
    assert parameter_count(BertConfig(30522, 1024, 24, 16, 4096, head="encoder")) == 335_141_888
    assert parameter_count(BertConfig(30522, 128, 2, 2, 512, head="encoder")) == 4_385_920


def test_rows_at_picks_rows_exactly() -> None:
    x = jax.random.normal(jax.random.key(0), (2, 5, 3))
    positions = np.asarray([[0, 4], [2, 2]])
    np.testing.assert_array_equal(rows_at(x, positions), np.take_along_axis(np.asarray(x), positions[..., None], 1))


def test_mean_pooling_counts_tokens_only() -> None:
    hidden = jnp.asarray([[[3.0, 0.0], [0.0, 4.0], [9.0, 9.0]]])
    np.testing.assert_allclose(mean_pooled(hidden, jnp.asarray([[1, 1, 0]]), normalise=False), [[1.5, 2.0]])
    np.testing.assert_allclose(mean_pooled(hidden, jnp.asarray([[1, 1, 0]])), [[0.6, 0.8]], rtol=1e-6)


def test_config_refuses_what_makes_no_model() -> None:
    with pytest.raises(ValueError, match="hidden=10 is not divisible by num_heads=4"):
        BertConfig(24, 10, 2, 4, 64)
    with pytest.raises(ValueError, match="head='mlm'; allowed are encoder"):
        BertConfig(24, 16, 2, 4, 64, head="mlm")  # type: ignore[arg-type]
