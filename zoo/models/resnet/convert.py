<<<<<<< HEAD
"""ResNet parameters under the names that torchvision, timm and Hugging Face give them, and back.

    conv1.weight, bn1.{weight, bias, running_mean, running_var},
    layer{1-4}.{i}.{conv, bn}{1-3}, layer{1-4}.{i}.downsample.{0, 1}, fc.{weight, bias}

PyTorch keeps convolutions as (out, in, height, width) and matrices as (out, in); here they are (height, width, in, out)
and (in, out).
"""
=======
"""ResNet by the names of torchvision and timm, and of Hugging Face, both ways."""
>>>>>>> 6cdd132 (PNASNet, MNIST, converters, labels on one's own table, predictions)

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

<<<<<<< HEAD
import jax
import numpy as np

from zoo.models.weights import KeyReport

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


def from_torch(tensors: Mapping[str, np.ndarray], variables: Any) -> tuple[dict[str, Any], KeyReport]:
    """Our tree with the values of a PyTorch state dictionary in it.

    Args:
        tensors: name -> array, of any floating dtype; names as `torch_name` understands them.
        variables: {"params", "batch_stats"} of the model, arrays or abstract; says shapes and dtypes.

    Returns:
        The tree, and what became of every name. Where a value is missing or has another shape, the leaf of `variables` stays.
    """
    known = {torch_name(name): name for name in tensors}
    ignored = tuple(sorted(name for name in tensors if name.endswith("num_batches_tracked")))
    matched, missing, wrong_shape = [], [], []

    def leaf(path: Any, ours: Any) -> Any:
        name = _name(path)
        if name not in known:
            missing.append(name)
            return ours
        found = np.asarray(tensors[known.pop(name)])
        needed = tuple(ours.shape[dim] for dim in _order(len(ours.shape), to_torch=True))
        if found.shape != needed:
            wrong_shape.append((name, needed, found.shape))
            return ours
        array = _transposed(found, to_torch=False)
        matched.append(name)
        return array.astype(ours.dtype)

    tree = jax.tree_util.tree_map_with_path(leaf, dict(variables))
    unexpected = tuple(sorted(name for name in known.values() if name not in ignored))
    report = KeyReport(tuple(sorted(matched)), tuple(sorted(missing)), unexpected, tuple(wrong_shape), ignored)
    return tree, report


def to_torch(variables: Any) -> dict[str, np.ndarray]:
    """The state dictionary, with torchvision's names, of our tree {"params", "batch_stats"} of arrays."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(dict(variables))
    return {_name(path): _transposed(np.asarray(leaf), to_torch=True) for path, leaf in leaves}


def _name(path: Any) -> str:
    """`params/layer1_0/downsample_1/scale` is `layer1.0.downsample.1.weight`."""
    _, *modules, leaf = (str(key.key) for key in path)
    return ".".join([*(re.sub(r"_(\d+)$", r".\1", module) for module in modules), LEAVES[leaf]])


def _order(rank: int, to_torch: bool) -> tuple[int, ...]:
    if rank == 4:
        return (3, 2, 0, 1) if to_torch else (2, 3, 1, 0)
    return (1, 0) if rank == 2 else tuple(range(rank))


def _transposed(array: np.ndarray, to_torch: bool) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(_order(array.ndim, to_torch)))
=======
import numpy as np

from zoo.errors import UserError
from zoo.models.exchange import Imported, Name, exported, flat, imported
from zoo.models.resnet.config import ResNetConfig
from zoo.models.resnet.model import abstract_variables

IGNORED = {r".*\.num_batches_tracked": "it counts batches and is not used"}
ENDINGS = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var", "kernel": "weight"}


def names(variables: Mapping[str, Any]) -> tuple[Name, ...]:
    """The table of torchvision's and timm's names for the variables {"params", "batch_stats"} of a network."""
    return tuple(_name(path, leaf.ndim) for path, leaf in flat(variables).items())


def _name(path: str, rank: int) -> Name:
    _, *modules, last = path.split("/")
    # layer1_0 is layer1.0 there, and downsample_1 is downsample.1.
    theirs = ".".join([*(re.sub(r"_(\d+)$", r".\1", module) for module in modules), ENDINGS[last]])
    if last != "kernel":
        return Name(path, theirs)
    return Name(path, theirs, "linear" if rank == 2 else "convolution")


def from_torch(arrays: Mapping[str, np.ndarray], config: ResNetConfig, source: str = "the weights") -> Imported:
    """Our variables {"params", "batch_stats"} from theirs; the output may be called `linear` in place of `fc`.

    Raises:
        UserError: a name is unknown or missing, or a shape does not fit.
    """
    plain = {_plain(name): value for name, value in arrays.items()}
    wanted = abstract_variables(config)
    found = imported(plain, names(wanted), wanted, IGNORED, source)
    if found.missing:
        raise UserError(f"{source} has nothing for {found.missing[0]}; are the blocks those of the weights?")
    return found


def to_torch(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by torchvision's names."""
    return exported(variables, names(variables))


def to_hugging_face(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by Hugging Face's names."""
    return {_to_hugging_face(name): value for name, value in to_torch(variables).items()}


def _plain(name: str) -> str:
    """Any of the known names as torchvision's."""
    name = re.sub(r"^linear\.", "fc.", name.removeprefix("module."))
    name = re.sub(r"^(resnet\.)?embedder\.embedder\.convolution\.", "conv1.", name)
    name = re.sub(r"^(resnet\.)?embedder\.embedder\.normalization\.", "bn1.", name)
    name = re.sub(r"^classifier\.1\.", "fc.", name)
    place = re.match(
        r"(?:resnet\.)?encoder\.stages\.(\d+)\.layers\.(\d+)\.(?:layer\.(\d+)|(shortcut))\.(\w+)\.(\w+)$", name
    )
    if place is None:
        return name
    stage, block, layer, shortcut, kind, last = place.groups()
    if shortcut:
        part = "downsample.0" if kind == "convolution" else "downsample.1"
    else:
        part = f"{'conv' if kind == 'convolution' else 'bn'}{int(layer) + 1}"
    return f"layer{int(stage) + 1}.{block}.{part}.{last}"


def _to_hugging_face(name: str) -> str:
    for ours, theirs in (("conv1.", "convolution."), ("bn1.", "normalization.")):
        if name.startswith(ours):
            return f"resnet.embedder.embedder.{theirs}{name.removeprefix(ours)}"
    if name.startswith("fc."):
        return f"classifier.1.{name.removeprefix('fc.')}"
    place = re.fullmatch(r"layer(\d+)\.(\d+)\.(conv|bn|downsample\.)(\d+)\.(\w+)", name)
    assert place is not None, name
    stage, block, kind, number, last = place.groups()
    prefix = f"resnet.encoder.stages.{int(stage) - 1}.layers.{block}"
    if kind == "downsample.":
        return f"{prefix}.shortcut.{'convolution' if number == '0' else 'normalization'}.{last}"
    return f"{prefix}.layer.{int(number) - 1}.{'convolution' if kind == 'conv' else 'normalization'}.{last}"
>>>>>>> 6cdd132 (PNASNet, MNIST, converters, labels on one's own table, predictions)
