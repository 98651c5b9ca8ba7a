"""ResNet-20 trained from scratch on CIFAR-10's subset, here and in torch: the same start and batches, and no worse an end.

ZOO_PARITY_PYTHON names the Python of an environment with torch; ZOO_REFERENCE_DATA holds the images.
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

from recipes.resnet import ResNetRecipe
from zoo.config import RecipeConfig, Rehearsal
from zoo.models import weight_files
from zoo.models.resnet.convert import to_torch

SCRIPT = Path(__file__).with_name("resnet_reference.py")
STEPS, BATCH = 500, 64


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_resnet20_ends_no_worse_than_in_torch(python: str, reference_data: Path, tmp_path: Path) -> None:
    model = {"blocks": [3, 3, 3], "block_kind": "basic", "shortcut": "padding", "stem": "cifar", "width": 16}
    model |= {"num_classes": 10, "convolution": "products"}
    data = {"name": "cifar10", "image_size": 32, "global_batch": BATCH}
    optimizer = {"learning_rate": 0.1, "nesterov": True, "weight_decay": 5e-4, "warmup_steps": 50}
    target = "recipes.resnet.ResNetRecipe"
    config = RecipeConfig("resnet20", target, model, data, optimizer, {"steps": STEPS}, Rehearsal(3, 1))
    recipe = ResNetRecipe(config, reference_data / "images" / "cifar10")
    state: Any = jax.jit(recipe.initial_state)(jax.random.key(0))
    variables = jax.device_get({name: state[name] for name in ("params", "batch_stats")})
    weight_files.write(tmp_path / "weights.npz", to_torch(variables))

    shape = (STEPS, BATCH, 3, 32, 32)
    images: Any = np.lib.format.open_memmap(tmp_path / "image.npy", "w+", np.float32, shape)
    labels, rates = np.zeros((STEPS, BATCH), np.int32), []
    step = jax.jit(recipe.step, donate_argnums=0)
    for number, batch in enumerate(itertools.islice(recipe.batches("train", 0, 0, BATCH), STEPS)):
        images[number], labels[number] = batch["image"].transpose(0, 3, 1, 2), batch["label"]
        state, metrics = step(state, batch)
        rates.append(float(metrics["learning_rate"]))
    images.flush()
    np.save(tmp_path / "label.npy", labels)
    test = next(recipe.batches("test", 0, 0, 1000))
    assert test["weight"].all()
    np.save(tmp_path / "test_image.npy", np.ascontiguousarray(test["image"].transpose(0, 3, 1, 2)))
    np.save(tmp_path / "test_label.npy", test["label"])
    ours = float(jax.jit(recipe.evaluate)(state, test)["accuracy"]) / 1000
    how = {"learning_rates": rates, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
    (tmp_path / "optimizer.json").write_text(json.dumps(how))
    subprocess.run([python, str(SCRIPT), str(tmp_path)], check=True)
    theirs = int(np.load(tmp_path / "correct.npy")) / 1000
    print(f"resnet20 after {STEPS} steps: {ours:.3f} here, {theirs:.3f} in torch")
    # One standard deviation of a share of 1000 images is 1.6 %.
    assert ours > 0.45 and ours >= theirs - 0.03
