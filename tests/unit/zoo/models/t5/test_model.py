"""T5 against the outputs of another implementation, and the promises of its options."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.models.t5.config import T5Config
from zoo.models.t5.convert import from_hugging_face
from zoo.models.t5.model import T5, parameter_count, shifted
from zoo.models.t5.positions import buckets

TINY = T5Config(*(128, 12, 2, 3, 4, 32), repeat="unrolled")
KINDS: dict[str, dict[str, Any]] = {
    "t5-v1": {"intermediate": 48, "activation": "relu", "gated": False},
    "t5-v1-1": {},
    "t5-ul2": {"activation": "silu"},
}
RENAMED = {"k_proj": "k", "q_proj": "q", "v_proj": "v", "o_proj": "o", "linear2": "wo", "linear1": "wi"}


def renamed(key: str, value: np.ndarray) -> tuple[str, np.ndarray]:
    """A name of the reference file to Hugging Face's; their query projections hold sqrt(head size), T5's do not."""
    parts = key.split("/")
    if key == "shared_token_emb/weight":
        return "shared.weight", value
    if key == "decoder/lm_head/weight":
        return "lm_head.weight", value
    stack = parts[0]
    if "relative_pos_emb" in parts:
        return f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", value
    if parts[1] in ("output", "output_norm"):
        return f"{stack}.final_layer_norm.weight", value
    block = f"{stack}.block.{parts[2].removeprefix('layer')}.layer."
    part = {"self_attention": 0, "cross_attention": 1, "feed_forward": 1 if stack == "encoder" else 2}[parts[3]]
    if parts[4] == "norm":
        return f"{block}{part}.layer_norm.weight", value
    last = parts[-2]
    if parts[3] == "feed_forward":
        return f"{block}{part}.DenseReluDense.{RENAMED.get(last, last.replace('linear1', 'wi'))}.weight", value.T
    kind = "SelfAttention" if parts[3] == "self_attention" else "EncDecAttention"
    matrix = value.reshape(12, -1) if last == "o_proj" else value.reshape(12, -1).T
    return f"{block}{part}.{kind}.{RENAMED[last]}.weight", matrix / 2 if last == "q_proj" else matrix


def case_of(folder: Path, name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, np.ndarray]]:
    with np.load(folder / "reference_models/t5_tiny_vs_hf.npz") as file:
        arrays = {key.removeprefix(f"{name}/"): file[key] for key in file.files if key.startswith(f"{name}/")}
    parts: dict[str, dict[str, np.ndarray]] = {"params": {}, "inputs": {}, "outputs": {}}
    for key, value in arrays.items():
        kind, rest = key.split("/", 1)
        parts[kind][rest] = value
    return dict(renamed(*item) for item in parts["params"].items()), parts["inputs"], parts["outputs"]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_loss_equal_the_reference(reference_data: Path, kind: str) -> None:
    weights, inputs, outputs = case_of(reference_data, f"test_against_t5_encoder_decoder_model_{kind}")
    config = dataclasses.replace(TINY, **KINDS[kind])
    params = from_hugging_face(weights, config).params
    source, targets, labels = (inputs[name] for name in ("source_ids", "target_ids", "target_labels"))
    logits = jax.jit(lambda *arrays: T5(config).apply({"params": params}, *arrays))(source, source != 0, targets)
    counted = (labels > 0) & (labels < 128)
    largest = np.abs(outputs["ref_logits"][counted]).max()
    np.testing.assert_allclose(logits[counted], outputs["ref_logits"][counted], atol=1e-5 * largest)
    log_probs = np.asarray(jax.nn.log_softmax(logits))
    chosen = np.take_along_axis(log_probs, np.where(counted, labels, 0)[..., None], -1)[..., 0]
    np.testing.assert_allclose(-chosen[counted].mean(), outputs["ref_loss"], rtol=1e-5)


@pytest.mark.slow  # compiles for half a minute
def test_the_scan_gives_the_same_numbers_and_gradients() -> None:
    source = np.asarray([[5, 6, 7, 0], [8, 9, 1, 2]], np.int32)
    targets = np.asarray([[0, 3, 4], [0, 5, 6]], np.int32)
    params = jax.jit(lambda key: T5(TINY).init(key, source, source > 0, targets))(jax.random.key(0))["params"]

    def loss(params: Any, config: T5Config) -> jax.Array:
        model = T5(config, train=True)
        rngs = {"dropout": jax.random.key(1)}
        return jnp.std(model.apply({"params": params}, source, source > 0, targets, rngs=rngs))

    found = [
        jax.jit(jax.value_and_grad(lambda params, config=config: loss(params, config)))(params)
        for config in (TINY, dataclasses.replace(TINY, repeat="scan"))
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *found)


def test_sizes_of_the_published_models() -> None:
    assert (
        parameter_count(T5Config(32128, 512, 6, 8, 64, 2048, activation="relu", gated=False, tied=True)) == 60_506_624
    )
    assert parameter_count(T5Config(32128, 512, 8, 6, 64, 1024)) == 76_961_152
    large = T5Config(32128, 1024, 24, 128, 128, 65536, activation="relu", gated=False, tied=True)
    assert parameter_count(large) == 11_307_321_344


def test_near_positions_have_buckets_of_their_own_and_far_ones_share() -> None:
    both = buckets(200, 200, 32, 128, both_ways=True)
    assert list(both[0, :8]) == [0, *range(17, 24)] and list(both[7, :8]) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert both[0, 199] == both[0, 128] == 31 and both[199, 0] == 15
    causal = buckets(200, 200, 32, 128, both_ways=False)
    assert causal[0, 5] == 0 and list(causal[15, :16]) == list(range(15, -1, -1)) and causal[199, 0] == 31


def test_inputs_of_the_decoder_start_with_the_pad_token() -> None:
    np.testing.assert_array_equal(shifted(jnp.asarray([[5, 6, 1]]), 0), [[0, 5, 6]])


def test_half_precision_with_a_narrow_range_is_refused() -> None:
    with pytest.raises(ValueError, match="dtype='float16'; allowed are float32, bfloat16, float64"):
        T5Config(128, 12, 2, 3, 4, 32, dtype="float16")  # type: ignore[arg-type]
