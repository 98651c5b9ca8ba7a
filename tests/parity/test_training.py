"""BERT and T5 trained here and in torch with the transformers library: the same losses, step by step, in float64.

ZOO_PARITY_PYTHON names the Python of an environment with torch and transformers; ZOO_REFERENCE_DATA holds WikiText-2 and C4.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from recipes.bert import BertRecipe
from recipes.t5 import T5Recipe
from zoo.config import compose
from zoo.models import weight_files
from zoo.models.bert import convert as bert_names
from zoo.models.t5 import convert as t5_names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400), pytest.mark.usefixtures("x64")]
SCRIPT = Path(__file__).with_name("training_reference.py")
STEPS = 300
SIZES = {"bert": ("bert_tiny", 8), "t5": ("t5_tiny", 8)}


def made(kind: str, data: Path) -> Any:
    """The recipe in float64, without dropout, on a few short texts a step; the warm-up ends within the steps."""
    name, batch = SIZES[kind]
    words = [f"recipe={name}", "cluster=local", f"data_dir={data / 'text'}", "recipe.model.dtype=float64"]
    words += ["recipe.model.dropout=0", "recipe.data.length=64", f"recipe.data.global_batch={batch}"]
    words += ["recipe.data.readers=0", "recipe.optimizer.warmup_steps=50"]
    words += ["recipe.model.attention_dropout=0"] if kind == "bert" else []
    config = compose(words)
    return {"bert": BertRecipe, "t5": T5Recipe}[kind](config.recipe, config.data_dir)


@pytest.mark.parametrize("kind", SIZES)
def test_three_hundred_losses_are_those_of_torch(kind: str, python: str, reference_data: Path, tmp_path: Path) -> None:
    recipe = made(kind, reference_data)
    state: Any = jax.jit(recipe.initial_state)(jax.random.key(0))
    batches = list(itertools.islice(recipe.batches("train", 0, 0, recipe.data_config.global_batch), STEPS))
    names = {"bert": (bert_names, "pretraining"), "t5": (t5_names, recipe.model_config)}[kind]
    weight_files.write(
        tmp_path / "model.safetensors", names[0].to_hugging_face(jax.device_get(state["params"]), names[1])
    )
    (tmp_path / "config.json").write_text(json.dumps(names[0].config_to(recipe.model_config)))
    np.savez(tmp_path / "batches.npz", **{name: np.stack([batch[name] for batch in batches]) for name in batches[0]})
    step = jax.jit(recipe.step, donate_argnums=0)
    losses, rates = [], []
    for batch in batches:
        state, metrics = step(state, batch)
        losses.append(float(metrics["loss"]))
        rates.append(float(metrics["learning_rate"]))
    options = recipe.optimizer_config
    how = {name: getattr(options, name) for name in ("betas", "epsilon", "weight_decay", "gradient_clip")}
    (tmp_path / "optimizer.json").write_text(json.dumps({**how, "learning_rates": rates}))
    subprocess.run([python, str(SCRIPT), kind, str(tmp_path)], check=True)
    wanted = np.load(tmp_path / "losses.npy")
    print(f"{kind}: first loss {losses[0]:.6f}, last {losses[-1]:.6f}, furthest {np.abs(wanted - losses).max():.2e}")
    assert losses[-1] < losses[0] - 1
    np.testing.assert_allclose(losses, wanted, rtol=0, atol=1e-6)
