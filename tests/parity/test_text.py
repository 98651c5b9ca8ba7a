"""BERT and T5 against Hugging Face's implementation, with every weight random: `make parity`.

ZOO_PARITY_PYTHON names the Python of an environment with torch and transformers.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.models import peft, weight_files
from zoo.models.bert import convert as bert_names
from zoo.models.bert.config import BertConfig
from zoo.models.bert.model import Bert
from zoo.models.bert.model import abstract_params as bert_params
from zoo.models.t5 import convert as t5_names
from zoo.models.t5.config import T5Config
from zoo.models.t5.generate import Generation, generate
from zoo.models.t5.model import T5
from zoo.models.t5.model import abstract_params as t5_params
from zoo.training import adapters
from zoo.training.adapters import Lora

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000), pytest.mark.usefixtures("x64")]
SCRIPT = Path(__file__).with_name("text_reference.py")
BERT = {"hidden": 24, "num_layers": 2, "num_heads": 4, "intermediate": 40, "max_positions": 16}


def randomised(tree: Any, scale: float = 0.3) -> Any:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: (scale * rng.normal(size=leaf.shape)).astype(leaf.dtype), tree)


def reference(python: str, folder: Path, kind: str, config: dict, weights: dict, inputs: dict) -> dict[str, np.ndarray]:
    weight_files.write(folder / "model.safetensors", weights)
    (folder / "config.json").write_text(json.dumps(config))
    np.savez(folder / "inputs.npz", **inputs)
    subprocess.run([python, str(SCRIPT), kind, str(folder)], check=True)
    return weight_files.read(folder / "outputs.npz")


def assert_near(found: dict[str, Any], wanted: dict[str, np.ndarray], share: float) -> None:
    """Holds arrays against each other, within a share of the largest value of all: some gradients are zero but for rounding."""
    largest = max(np.abs(wanted[name]).max() for name in found)
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=share * largest, err_msg=name)


def assert_equal(logits: Any, grads: dict[str, np.ndarray], wanted: dict[str, np.ndarray], dtype: str) -> None:
    double = dtype == "float64"
    assert_near({"logits": logits}, wanted, 1e-9 if double else 1e-5)
    # float32 gradients of torch differ from its own in float64 by up to 9e-4.
    named = {f"gradient/{name}": value for name, value in grads.items()}
    assert_near(named, wanted, 1e-9 if double else 1e-3)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("head", ["pretraining", "classification", "tokens", "answers"])
def test_bert(python: str, tmp_path: Path, head: Any, dtype: Any) -> None:
    config = BertConfig(30, **BERT, head=head, num_labels=3, dtype=dtype, repeat="unrolled")
    params = randomised(bert_params(config))
    rng = np.random.default_rng(1)
    ids, types = rng.integers(1, 30, (2, 9)), rng.integers(0, 2, (2, 9))
    mask = np.ones((2, 9), np.int64)
    mask[1, 6:] = 0
    output = {"pretraining": "words", "answers": "spans"}.get(head, "labels")

    def logits_of(params: Any) -> jax.Array:
        return Bert(config).apply({"params": params}, ids, types, mask)[output]

    logits = jax.jit(logits_of)(params)
    # What stands where the text is filled up means nothing: theirs and ours differ there.
    live = mask[..., None] if logits.ndim == 3 else 1
    cotangent = (rng.normal(size=logits.shape) * live).astype(dtype)
    weights = bert_names.to_hugging_face(params, head)
    inputs = {
        "ids": ids,
        "types": types,
        "mask": mask,
        "cotangent": cotangent.reshape(2, 9, -1) if logits.ndim == 3 else cotangent,
    }
    wanted = reference(python, tmp_path, "bert", bert_names.config_to(config), weights, inputs)
    grads = jax.jit(jax.grad(lambda params: jnp.sum(logits_of(params) * cotangent)))(params)
    wanted["logits"] = wanted["logits"] * live
    assert_equal(logits * live, bert_names.to_hugging_face(grads, head), wanted, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["1.0", "1.1"])
def test_t5(python: str, tmp_path: Path, kind: str, dtype: Any) -> None:
    options: dict[str, Any] = {"activation": "relu", "gated": False, "tied": True} if kind == "1.0" else {}
    config = T5Config(20, 16, 2, 3, 4, 24, dtype=dtype, **options)
    params = randomised(t5_params(config), 0.5)
    rng = np.random.default_rng(1)
    source, inputs = rng.integers(1, 20, (3, 50)), np.pad(rng.integers(2, 20, (3, 40)), ((0, 0), (1, 0)))
    mask = np.ones((3, 50), np.int64)
    mask[1, 30:] = 0

    def logits_of(params: Any) -> jax.Array:
        return T5(config).apply({"params": params}, source, mask, inputs)

    logits = jax.jit(logits_of)(params)
    cotangent = rng.normal(size=logits.shape).astype(dtype)
    weights = t5_names.to_hugging_face(params, config)
    data = {"source": source, "mask": mask, "inputs": inputs, "cotangent": cotangent}
    wanted = reference(python, tmp_path, "t5", t5_names.config_to(config), weights, data)
    grads = jax.jit(jax.grad(lambda params: jnp.sum(logits_of(params) * cotangent)))(params)
    assert_equal(logits, t5_names.to_hugging_face(grads, config), wanted, dtype)
    for beams in (1, 4):
        how = Generation(max_tokens=12, beams=beams)
        ids = jax.jit(lambda params, how=how: generate(config, how, params, source, mask, jax.random.key(0)))(params)
        texts = wanted[f"generated/{beams}"]
        np.testing.assert_array_equal(ids[:, : texts.shape[1]], texts)
        assert not np.asarray(ids[:, texts.shape[1] :]).any()


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_peft_loads_what_lora_learned(python: str, tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(1, 20, (3, 9))
    mask = np.ones((3, 9), np.int64)
    lora = Lora(2, ("query", "value"), 6.0)
    if kind == "bert":
        config = BertConfig(30, **BERT, head="classification", num_labels=3, dtype="float64")  # type: ignore[arg-type]
        params = randomised(adapters.added(randomised(bert_params(config)), lora, jax.random.key(0)))
        whole = bert_names.to_hugging_face({k: v for k, v in params.items() if k != "lora"}, config.head)
        # The head was trained with the products; the model that they belong to has another.
        base = {name: np.zeros_like(value) if name.startswith("classifier") else value for name, value in whole.items()}
        described, table, task = bert_names.config_to(config), bert_names.names(), bert_names.TASKS[config.head]
        inputs = {"input_ids": ids, "token_type_ids": 0 * ids, "attention_mask": mask}
        logits = Bert(config).apply({"params": adapters.merged(params, lora.alpha)}, ids, 0 * ids, mask)["labels"]
    else:
        config = T5Config(20, 16, 2, 3, 4, 24, dtype="float64")
        params = randomised(adapters.added(randomised(t5_params(config)), lora, jax.random.key(0)))
        base = t5_names.to_hugging_face({k: v for k, v in params.items() if k != "lora"}, config)
        described = {**t5_names.config_to(config), "architectures": ["T5ForConditionalGeneration"]}
        table, task = t5_names.names(config.gated), "SEQ_2_SEQ_LM"
        inputs = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids}
        logits = T5(config).apply({"params": adapters.merged(params, lora.alpha)}, ids, mask, ids)
    arrays, facts = peft.adapter(params, table, dataclasses.asdict(lora), task, ("classifier",))
    weight_files.write(tmp_path / "adapter" / "adapter_model.safetensors", arrays)
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(facts))
    inputs["cotangent"] = np.zeros(1)
    wanted = reference(python, tmp_path, "peft", described, base, inputs)["logits"]
    # T5 there takes norms and softmaxes in float32.
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=(1e-9 if kind == "bert" else 1e-5) * np.abs(wanted).max())
