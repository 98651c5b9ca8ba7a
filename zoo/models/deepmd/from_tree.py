"""From the tree of a deepmd-kit model to what it is made of and its numbers; what is not supported is named."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.models.deepmd.config import ALIASES, Potential, potential
from zoo.models.deepmd.descriptors import ATTENTION_KEYS, SHARED_KEYS, SeAtten, parts
from zoo.models.deepmd.model import Params, Statistics
from zoo.models.deepmd.se_e2_a import net_names
from zoo.models.deepmd.serial import Tree
from zoo.models.deepmd.short_range import ShortRange


def model_of(tree: Tree, file: str) -> tuple[Potential, Params, Statistics]:
    """Configuration, parameters and statistics of the tree below "model" in a file.

    Raises:
        UserError: the model is of a kind that is not supported.
        KeyError, TypeError, IndexError, AttributeError, ValueError: the tree is none of a model.
    """
    kind = tree.get("type", "standard")
    if kind == "zbl":
        return _with_table(tree, file)
    if kind not in ("standard", "ener"):
        raise UserError(f"{file}: models of type {kind!r} are not supported; supported are standard (energy) and zbl")
    fit = tree["fitting"]
    if fit.get("type", "ener") not in ("ener", "invar"):
        raise UserError(f"{file}: a fitting net of type {fit['type']!r} is not supported; supported is ener")
    for name in ("numb_fparam", "numb_aparam", "dim_case_embd"):
        if fit.get(name):
            raise UserError(f"{file}: a fitting net with {name}={fit[name]} is not supported")
    section = {
        "type_map": tree["type_map"],
        "descriptor": _descriptor_section(tree["descriptor"], file),
        "fitting_net": _fitting_section(fit),
        "pair_exclude_types": tree.get("pair_exclude_types") or [],
        "atom_exclude_types": sorted({*(tree.get("atom_exclude_types") or []), *(fit.get("exclude_types") or [])}),
    }
    config = potential(section, file)
    trees = _parts(tree["descriptor"])
    params, statistics = {}, {}
    for index, (part, node) in enumerate(zip(parts(config.descriptor), trees, strict=True)):
        params[str(index)] = _descriptor_params(part, node, config.num_types)
        statistics[str(index)] = {name: _rows(node, name, config.num_types, file) for name in ("davg", "dstd")}
    nets = fit["nets"]["networks"]
    fitted = {str(index): _layers(net) for index, net in enumerate(nets)}
    bias = np.zeros(config.num_types)
    for value in (fit["@variables"].get("bias_atom_e"), tree.get("@variables", {}).get("out_bias")):
        if value is not None:
            bias = bias + np.asarray(value, np.float64).reshape(-1)
    return config, {"descriptor": params, "fitting": fitted}, {"descriptor": statistics, "bias": bias}


def _with_table(tree: Tree, file: str) -> tuple[Potential, Params, Statistics]:
    """A model with a short-range table: the bias inside the net is blended, the one of the whole is not."""
    net, pairs = tree["models"]
    inner = {**net, "@variables": {}, "pair_exclude_types": tree.get("pair_exclude_types")}
    config, params, statistics = model_of(inner, file)
    tab, types = pairs["tab"], config.num_types
    short = ShortRange(
        f"{file} (its table)",
        float(tree["sw_rmin"]),
        float(tree["sw_rmax"]),
        float(tree.get("smin_alpha", 0.1)),
        float(tab["rmin"]),
        float(tab["hh"]),
        int(tab["nspline"]),
    )
    splines = np.asarray(tab["@variables"]["tab_data"], np.float64).reshape(types, types, short.points, 4)
    bias = np.asarray(tree["@variables"]["out_bias"], np.float64).reshape(-1)
    constants = {"splines": splines, "inside": statistics["bias"]}
    config = dataclasses.replace(config, short_range=short)
    return config, params, {**statistics, "bias": bias, "short_range": constants}


def _parts(node: Tree) -> list[Tree]:
    return node["list"] if node["type"] == "hybrid" else [node]


def _descriptor_section(node: Tree, file: str) -> Tree:
    kind = node["type"]
    if kind == "hybrid":
        return {"type": kind, "list": [_descriptor_section(part, file) for part in node["list"]]}
    if node.get("compress") or node.get("spin"):
        raise UserError(f"{file}: compressed and spin models are not supported; give the model they were made from")
    if node.get("env_mat", {}).get("use_exp_switch"):
        raise UserError(f"{file}: the exponential switch (use_exp_switch) is not supported")
    if node.get("lmax", 1) != 1:
        raise UserError(f"{file}: descriptor.lmax={node['lmax']} is not supported; supported is 1")
    wanted = [*SHARED_KEYS]
    section: Tree = {"type": kind, "exclude_types": _type_pairs(node.get("exclude_types"))}
    if ALIASES.get(kind, kind) in ("se_atten", "se_atten_v2"):
        wanted += ["axis_neuron", *ATTENTION_KEYS]
        section["sel"] = int(sum(node["sel"])) if isinstance(node["sel"], list) else int(node["sel"])
        # Models of the first version say nothing of a bias, and have one.
        section["use_tebd_bias"] = node.get("use_tebd_bias", True)
        if kind != "se_atten_v2":
            section["tebd_input_mode"] = node["tebd_input_mode"]
            section["smooth_type_embedding"] = node["smooth_type_embedding"]
    else:
        section["sel"] = node["sel"]
        wanted += ["axis_neuron"] if "axis_neuron" in node else []
    found = {**section, **{name: _number(name, node[name]) for name in wanted if name in node}}
    # What a file calls its mean says less than the mean itself.
    return found if not np.any(node["@variables"]["davg"]) else {**found, "set_davg_zero": False}


def _type_pairs(given: Any) -> list[list[int]]:
    return [[int(a), int(b)] for a, b in given or []]


def _number(name: str, value: Any) -> Any:
    return float(value) if name in ("rcut", "rcut_smth", "env_protection", "scaling_factor", "ln_eps") else value


def _fitting_section(node: Tree) -> Tree:
    wanted = ("neuron", "resnet_dt", "activation_function", "precision")
    section = {name: node[name] for name in wanted if name in node}
    if node.get("atom_ener"):
        section["atom_ener"] = [
            None if value is None else float(np.asarray(value).reshape(-1)[0]) for value in node["atom_ener"]
        ]
    return section


def _descriptor_params(part: Any, node: Tree, num_types: int) -> Any:
    nets = node["embeddings"]["networks"]
    if not isinstance(part, SeAtten):
        names = net_names(part, num_types)
        hidden = {pair for a, b in part.exclude_types for pair in ((a, b), (b, a))}
        found = {}
        for index, name in enumerate(names):
            net: Any = nets[index] if index < len(nets) else None
            if net is None and not part.type_one_side and tuple(map(int, name.split("-"))) in hidden:
                net = next(one for one in nets if one is not None)  # never used
            found[name] = _layers(net)
        return found
    params = {
        "types": _layers(node["type_embedding"]["embedding"]),
        "embedding": _layers(nets[0]),
        "attention": {
            str(index): {
                "in": _layer(layer["attention_layer"]["in_proj"]),
                "out": _layer(layer["attention_layer"]["out_proj"]),
                "norm": {name: np.asarray(layer["attn_layer_norm"]["@variables"][name]) for name in ("w", "b")},
            }
            for index, layer in enumerate(node["attention_layers"]["attention_layers"])
        },
    }
    if part.tebd_input_mode == "strip":
        params["strip"] = _layers(node["embeddings_strip"]["networks"][0])
    return params


def _layers(net: Tree) -> Any:
    return {str(index): _layer(layer) for index, layer in enumerate(net["layers"])}


def _layer(layer: Tree) -> dict[str, np.ndarray]:
    values = layer["@variables"]
    found = {"w": np.asarray(values["w"])}
    for name in ("b", "idt"):
        if values.get(name) is not None:
            found[name] = np.asarray(values[name]).reshape(-1)
    return found


def _rows(node: Tree, name: str, num_types: int, file: str) -> np.ndarray:
    """Mean or deviation of the rows per type, [T, A]; deepmd-kit writes them once per neighbour slot."""
    values = np.asarray(node["@variables"][name])
    values = values.reshape(num_types, -1, values.shape[-1])
    if np.ptp(values, axis=1).any():
        raise UserError(f"{file}: {name} differs between the neighbours of one type, which is not supported")
    return values[:, 0]
