"""PNASNet by the names of timm's pnasnet5large, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.models.exchange import Imported, Name, exported, flat, imported
from zoo.models.pnasnet.config import PNASNetConfig
from zoo.models.pnasnet.model import abstract_variables

IGNORED = {r".*\.num_batches_tracked": "it counts batches and is not used"}
ENDINGS = {"scale": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var", "kernel": "weight"}
# Ours join with "_" what is a module of a module there; final_path_bn is one module there too.
PARTS = re.compile(r"(?<!final_path)_(conv|bn|depthwise_conv2d|pointwise_conv2d)$")


def names(variables: Mapping[str, Any]) -> tuple[Name, ...]:
    """The table for the variables {"params", "batch_stats"} of a network."""
    return tuple(_name(path, leaf.ndim) for path, leaf in flat(variables).items())


def _name(path: str, rank: int) -> Name:
    _, *modules, last = path.split("/")
    theirs = ".".join([*(PARTS.sub(r".\1", module) for module in modules), ENDINGS[last]])
    if last != "kernel":
        return Name(path, theirs)
    return Name(path, theirs, "linear" if rank == 2 else "convolution")


def from_timm(
    arrays: Mapping[str, np.ndarray], config: PNASNetConfig, source: str = "the weights", heads: Sequence[str] = ()
) -> Imported:
    """Our variables {"params", "batch_stats"} from theirs; `heads` as in `imported`.

    Raises:
        UserError: a name is unknown or missing, or a shape does not fit.
    """
    wanted = abstract_variables(config)
    found = imported(arrays, names(wanted), wanted, IGNORED, source, heads)
    if found.missing:
        raise UserError(f"{source} has nothing for {found.missing[0]}; are the cells those of the weights?")
    return found


def to_timm(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Their arrays from our variables."""
    return exported(variables, names(variables))
