"""ResNet parameters under the names that torchvision, timm and Hugging Face give them, and back.

    conv1.weight, bn1.{weight, bias, running_mean, running_var},
    layer{1-4}.{i}.{conv, bn}{1-3}, layer{1-4}.{i}.downsample.{0, 1}, fc.{weight, bias}

PyTorch keeps convolutions as (out, in, height, width) and matrices as (out, in); here they are (height, width, in, out)
and (in, out).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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
