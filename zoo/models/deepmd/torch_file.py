"""Checkpoints of deepmd-kit's PyTorch backend (.pt): plain tensors by name and the model section that they belong to.

Nothing in such a file is run: PyTorch reads it with weights_only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.models.deepmd.config import Potential, potential
from zoo.models.deepmd.descriptors import SeAtten, parts
from zoo.models.deepmd.networks import Network
from zoo.models.deepmd.se_e2_a import net_names

Arrays = Mapping[str, np.ndarray]
NAMES = {"matrix": "w", "bias": "b", "idt": "idt"}
PREFIX = "model.Default."


def load(file: Path) -> tuple[Arrays, dict[str, Any]]:
    """Tensors by their names, and the model section.

    Raises:
        UserError: the file is missing or no such checkpoint, PyTorch is missing, or it holds several models.
    """
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{file} is a file of PyTorch, which is not installed here; pip install torch, or convert it with: "
            f"dp convert-backend {file} {file.with_suffix('.dp')}"
        ) from None
    if not file.is_file():
        raise UserError(f"{file} does not exist")
    try:
        whole = torch.load(file, map_location="cpu", weights_only=True)
        state = whole.get("model", whole)
        section = state["_extra_state"]["model_params"]
    except Exception as error:  # PyTorch's errors are of many kinds, and all say that the file is not what it should be
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{file} is no checkpoint of deepmd-kit's PyTorch backend: {reason[:200]}") from None
    if "model_dict" in section:
        heads = ", ".join(section["model_dict"])
        raise UserError(
            f"{file} holds several models ({heads}); take one out with: dp freeze --head NAME, and convert that"
        )
    arrays = {name.removeprefix(PREFIX): value.numpy() for name, value in state.items() if hasattr(value, "numpy")}
    return arrays, section


def model_of(arrays: Arrays, section: Mapping[str, Any], file: str) -> tuple[Potential, Any, Any, float | None]:
    """Configuration, parameters, statistics and the smallest distance (None: not known) of a checkpoint.

    Raises:
        UserError: the model is of a kind that is not supported.
        KeyError: a tensor is missing.
    """
    places = descriptor_places(section["descriptor"])
    wanted = {key: value for key, value in section.items() if key not in ("data_stat_nbatch", "data_stat_protect")}
    wanted["descriptor"] = described(section["descriptor"], arrays, places, len(section["type_map"]))
    config = potential(wanted, file)
    params, statistics = {}, {}
    for index, (part, place) in enumerate(zip(parts(config.descriptor), places, strict=True)):
        params[str(index)] = descriptor_params(part, arrays, place, config.num_types)
        # Mean and deviation are written once per neighbour slot.
        theirs = {"davg": arrays[f"{place}mean"], "dstd": arrays[f"{place}stddev"]}
        statistics[str(index)] = {name: values[:, 0] for name, values in theirs.items()}
    atomic = "atomic_model."
    count = 1 if config.mixed_types else config.num_types
    fitted = {
        str(index): layers(arrays, f"{atomic}fitting_net.filter_layers.networks.{index}.") for index in range(count)
    }
    bias = np.zeros(config.num_types)
    for name in (f"{atomic}fitting_net.bias_atom_e", f"{atomic}out_bias"):
        if name in arrays:
            bias = bias + np.asarray(arrays[name], np.float64).reshape(-1)
    nearest = float(arrays["min_nbor_dist"]) if "min_nbor_dist" in arrays else -1.0
    found = {"descriptor": params, "fitting": fitted}
    return config, found, {"descriptor": statistics, "bias": bias}, nearest if nearest > 0 else None


def descriptor_places(section: Mapping[str, Any], inside: str = "atomic_model.descriptor.") -> list[str]:
    """Where the tensors of each part of a descriptor lie."""
    kind = section.get("type", "se_e2_a")
    if kind == "hybrid":
        return [
            place
            for index, part in enumerate(section["list"])
            for place in descriptor_places(part, f"{inside}descrpt_list.{index}.")
        ]
    block = {
        "se_e2_a": "sea.",
        "se_a": "sea.",
        "se_atten": "se_atten.",
        "se_atten_v2": "se_atten.",
        "dpa1": "se_atten.",
    }
    return [inside + block.get(kind, "")]


def described(section: Mapping[str, Any], arrays: Arrays, places: list[str], num_types: int) -> dict[str, Any]:
    """The descriptor section; whether nets are per pair of types is seen from how many there are."""
    if section.get("type") == "hybrid":
        inner = [
            described(part, arrays, [place], num_types) for part, place in zip(section["list"], places, strict=True)
        ]
        return {**section, "list": inner}
    found = dict(section)
    one_by_one = found.get("type", "se_e2_a") in ("se_e2_a", "se_a", "se_e2_r", "se_r")
    if isinstance(found.get("sel"), list) and not one_by_one:
        found["sel"] = int(sum(found["sel"]))
    if one_by_one and num_types > 1:
        per_pair = f"{places[0]}filter_layers.networks.{num_types}.layers.0.matrix" in arrays
        found["type_one_side"] = not per_pair
    return found


def descriptor_params(part: Any, arrays: Arrays, inside: str, num_types: int) -> Any:
    """Parameters as our descriptors take them."""
    nets = f"{inside}filter_layers.networks."
    if not isinstance(part, SeAtten):
        return {name: layers(arrays, f"{nets}{index}.") for index, name in enumerate(net_names(part, num_types))}
    around = inside.removesuffix("se_atten.")
    attention = {}
    for index in range(part.attn_layer):
        layer = f"{inside}dpa1_attention.attention_layers.{index}."
        norm = f"{layer}attn_layer_norm."
        attention[str(index)] = {
            "in": one_layer(arrays, f"{layer}attention_layer.in_proj."),
            "out": one_layer(arrays, f"{layer}attention_layer.out_proj."),
            "norm": {"w": arrays[f"{norm}matrix"], "b": arrays[f"{norm}bias"]},
        }
    found = {
        "types": layers(arrays, f"{around}type_embedding.embedding.embedding_net."),
        "embedding": layers(arrays, f"{nets}0."),
        "attention": attention,
    }
    if part.tebd_input_mode == "strip":
        found["strip"] = layers(arrays, f"{inside}filter_layers_strip.networks.0.")
    return found


def layers(arrays: Arrays, inside: str) -> Network:
    """All layers of a net."""
    found: dict[str, Any] = {}
    while f"{inside}layers.{len(found)}.matrix" in arrays:
        found[str(len(found))] = one_layer(arrays, f"{inside}layers.{len(found)}.")
    if not found:
        raise KeyError(f"{inside}layers.0.matrix")
    return found


def one_layer(arrays: Arrays, inside: str) -> dict[str, Any]:
    found = {ours: arrays[f"{inside}{theirs}"] for theirs, ours in NAMES.items() if f"{inside}{theirs}" in arrays}
    return {name: value if name == "w" else value.reshape(-1) for name, value in found.items()}
