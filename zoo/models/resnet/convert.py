"""ResNet parameters under the names that torchvision, timm and Hugging Face give them, and back.

    conv1.weight, bn1.{weight, bias, running_mean, running_var},
    layer{1-4}.{i}.{conv, bn}{1-3}, layer{1-4}.{i}.downsample.{0, 1}, fc.{weight, bias}

PyTorch keeps convolutions as (out, in, height, width) and matrices as (out, in); here they are (height, width, in, out)
and (in, out).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.models.exchange import Imported, Name, exported, flat, imported
from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.model import abstract_variables

# What follows from the weights; the rest of a configuration may be chosen anew.
SIZES = ("blocks", "block_kind", "width", "expansion", "stem", "shortcut")
IGNORED = {r".*num_batches_tracked": "it counts batches and is not used"}
LEAVES = {"kernel": "weight", "scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}

# Other spellings -> torchvision's, tried in this order on every name.
SPELLINGS = (
    (r"^module\.", ""),
    (r"^resnet\.", ""),
    (r"^linear\.", "fc."),
    (r"\.shortcut\.([01])\.", r".downsample.\1."),
    (r"^embedder\.embedder\.convolution\.", "conv1."),
    (r"^embedder\.embedder\.normalization\.", "bn1."),
    (r"\.shortcut\.convolution\.", ".downsample.0."),
    (r"\.shortcut\.normalization\.", ".downsample.1."),
    (r"^classifier\.1\.", "fc."),
)
STAGE = re.compile(r"^encoder\.stages\.(\d+)\.layers\.(\d+)\.")
LAYER = re.compile(r"\.layer\.(\d+)\.(convolution|normalization)\.")


def torch_name(name: str) -> str:
    """The name of torchvision for a name of timm, Hugging Face, or the CIFAR networks that say `linear` and `shortcut`."""
    for pattern, replacement in SPELLINGS:
        name = re.sub(pattern, replacement, name)
    name = STAGE.sub(lambda match: f"layer{int(match[1]) + 1}.{match[2]}.", name)
    return LAYER.sub(lambda m: f".{'conv' if m[2] == 'convolution' else 'bn'}{int(m[1]) + 1}.", name)


def config_from(hugging_face: Mapping[str, Any], **changes: Any) -> ResNetConfig:
    """Our configuration from Hugging Face's config.json.

    Raises:
        UserError: it is no ResNet, or of a kind that this model is not.
    """
    if hugging_face.get("model_type", "resnet") != "resnet":
        raise UserError(f"config.json is of model_type={hugging_face['model_type']}, and this model is resnet")
    kind, sizes = hugging_face.get("layer_type", "bottleneck"), list(hugging_face["hidden_sizes"])
    width = sizes[0] // (4 if kind == "bottleneck" else 1)
    expected = {
        "embedding_size": width,
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
    }
    for name, value in expected.items():
        if hugging_face.get(name, value) != value:
            raise UserError(f"config.json has {name}={hugging_face[name]}, and this model has {value}")
    if sizes != [sizes[0] * 2**stage for stage in range(len(sizes))]:
        raise UserError(f"config.json has hidden_sizes={sizes}, and in this model each is twice the one before")
    values = {
        "blocks": tuple(hugging_face["depths"]),
        "block_kind": kind,
        "width": width,
        "num_classes": len(hugging_face.get("id2label") or {}) or 1000,
    }
    return ResNetConfig(**(values | changes))


def names(variables: Mapping[str, Any]) -> tuple[Name, ...]:
    """The table for the variables {"params", "batch_stats"} of a network."""
    return tuple(_name(path, leaf.ndim) for path, leaf in flat(variables).items())


def _name(path: str, rank: int) -> Name:
    """`params/layer1_0/downsample_1/scale` is `layer1.0.downsample.1.weight`."""
    _, *modules, leaf = path.split("/")
    theirs = ".".join([*(re.sub(r"_(\d+)$", r".\1", module) for module in modules), LEAVES[leaf]])
    if leaf != "kernel":
        return Name(path, theirs)
    return Name(path, theirs, "linear" if rank == 2 else "convolution")


def from_torch(
    arrays: Mapping[str, np.ndarray], config: ResNetConfig, source: str = "the weights", heads: Sequence[str] = ()
) -> Imported:
    """Our variables {"params", "batch_stats"} from theirs, with names as `torch_name` understands them.

    Raises:
        UserError: a name is unknown or missing, or a shape does not fit and is not of one of the `heads`.
    """
    wanted = abstract_variables(config)
    found = imported(
        {torch_name(name): value for name, value in arrays.items()}, names(wanted), wanted, IGNORED, source, heads
    )
    if found.missing:
        raise UserError(f"{source} has nothing for {found.missing[0]}; are the blocks those of the weights?")
    return found


def to_torch(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The state dictionary, with torchvision's names, of our tree {"params", "batch_stats"} of arrays."""
    return exported(variables, names(variables))
