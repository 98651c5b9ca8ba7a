"""Names of other projects, both ways, and a trained network whose published outputs must come out again."""

from __future__ import annotations

from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import pytest

from zoo.data import cifar10
from zoo.errors import UserError
from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.convert import from_torch, to_torch, torch_name
from zoo.models.resnet.model import ResNet, abstract_variables
from zoo.models.weight_files import read

TINY = ResNetConfig(blocks=(1, 2), width=4, num_classes=5)
RESNET20 = ResNetConfig(
    blocks=(3, 3, 3), block_kind="basic", shortcut="padding", stem="cifar", width=16, num_classes=10
)


def drawn(config: ResNetConfig) -> dict:
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype), abstract_variables(config))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("layer1.0.conv1.weight", "layer1.0.conv1.weight"),
        ("module.linear.bias", "fc.bias"),
        ("layer2.0.shortcut.1.running_var", "layer2.0.downsample.1.running_var"),
        ("resnet.embedder.embedder.convolution.weight", "conv1.weight"),
        ("resnet.embedder.embedder.normalization.running_mean", "bn1.running_mean"),
        ("resnet.encoder.stages.0.layers.2.layer.1.convolution.weight", "layer1.2.conv2.weight"),
        ("resnet.encoder.stages.3.layers.0.layer.2.normalization.bias", "layer4.0.bn3.bias"),
        ("resnet.encoder.stages.1.layers.0.shortcut.convolution.weight", "layer2.0.downsample.0.weight"),
        ("resnet.encoder.stages.1.layers.0.shortcut.normalization.weight", "layer2.0.downsample.1.weight"),
        ("classifier.1.weight", "fc.weight"),
    ],
)
def test_spellings(theirs: str, ours: str) -> None:
    assert torch_name(theirs) == ours


def test_names_and_shapes_are_torchvision_s() -> None:
    names = to_torch(drawn(ResNetConfig(blocks=(3, 4, 6, 3), width=4)))
    # 320 entries in torchvision's resnet50, of which 53 count batches.
    assert len(names) == 320 - 53
    assert names["conv1.weight"].shape == (4, 3, 7, 7)
    assert names["layer4.0.downsample.0.weight"].shape == (128, 64, 1, 1)
    assert names["layer3.5.conv3.weight"].shape == (64, 16, 1, 1)
    assert names["fc.weight"].shape == (1000, 128)


def test_there_and_back_is_the_same() -> None:
    variables = drawn(TINY)
    found = from_torch(to_torch(variables), TINY)
    assert len(found.used) == len(jax.tree.leaves(variables))
    jax.tree.map(np.testing.assert_array_equal, found.params, variables)


def test_what_does_not_fit_is_named() -> None:
    tensors = to_torch(drawn(TINY)) | {"bn1.num_batches_tracked": np.zeros((), np.int64)}
    assert set(from_torch(tensors, TINY).ignored) == {"bn1.num_batches_tracked"}
    for change, text in (
        ({"layer9.0.conv1.weight": np.zeros(3)}, "has layer9.0.conv1.weight .*which this model does not know"),
        ({"fc.weight": np.zeros((7, 32))}, r"fc.weight gives params/fc/kernel of shape \[32, 7\]"),
    ):
        with pytest.raises(UserError, match=text):
            from_torch(tensors | change, TINY)
    lost = {name: value for name, value in tensors.items() if name != "layer2.1.conv2.weight"}
    with pytest.raises(UserError, match="nothing for params/layer2_1/conv2/kernel; are the blocks"):
        from_torch(lost, TINY)


def test_a_head_for_other_labels_starts_anew() -> None:
    tensors = to_torch(drawn(TINY)) | {"fc.weight": np.zeros((7, 32)), "fc.bias": np.zeros(7)}
    found = from_torch(tensors, TINY, heads=("fc",))
    assert found.renewed["params/fc/kernel"] == "[32, 7] there, [32, 5] here" and "fc" not in found.params["params"]
    assert "params/fc/bias starts anew: [7] there, [5] here" in list(found.report())


def test_bfloat16_becomes_the_dtype_of_the_model() -> None:
    tensors = {name: value.astype(ml_dtypes.bfloat16) for name, value in to_torch(drawn(TINY)).items()}
    assert {leaf.dtype for leaf in jax.tree.leaves(from_torch(tensors, TINY).params)} == {np.dtype("float32")}


def test_a_trained_network_gives_its_published_logits(reference_data: Path) -> None:
    folder = reference_data / "reference_models"
    variables = from_torch(read(folder / "resnet20_cifar10.npz"), RESNET20).params
    files = cifar10.find(reference_data / "images")
    assert files is not None
    images, labels = cifar10.open_cifar10(files).test.take(np.arange(1000), 32)
    # This network was trained with ImageNet's statistics.
    mean, std = np.asarray([0.485, 0.456, 0.406], np.float32), np.asarray([0.229, 0.224, 0.225], np.float32)
    expected = np.load(folder / "resnet20_cifar10_test1000_logits.npz")
    apply = jax.jit(lambda image: ResNet(RESNET20).apply(variables, image, train=False))
    logits = np.concatenate([apply(part) for part in np.split((images / np.float32(255) - mean) / std, 5)])
    np.testing.assert_allclose(logits, expected["logits"], atol=2e-4, rtol=2e-4)
    assert (logits.argmax(axis=1) == labels).sum() == 915
