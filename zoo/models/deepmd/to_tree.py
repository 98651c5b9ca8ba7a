"""From a model to the tree that deepmd-kit 3.2 writes for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from zoo.models.deepmd import short_range
from zoo.models.deepmd.config import SHORT, Potential
from zoo.models.deepmd.descriptors import ATTENTION_KEYS, SHARED_KEYS, Hybrid, SeA, SeAtten, SeR, parts
from zoo.models.deepmd.model import Params, Statistics, descriptor_width
from zoo.models.deepmd.se_e2_a import net_names
from zoo.models.deepmd.serial import Tree


def definition(config: Potential) -> Tree:
    """The model section of an input.json that makes this model."""
    found = dataclasses.asdict(config)
    described = found["descriptor"]
    for part in described["list"] if isinstance(config.descriptor, Hybrid) else [described]:
        part.pop("seed")
    if isinstance(config.descriptor, Hybrid):
        described["list"] = list(described["list"])
    found["fitting_net"].pop("seed")
    if not config.fitting_net.atom_ener:
        found["fitting_net"].pop("atom_ener")
    short = found.pop("short_range")
    if short is not None:
        found |= {"use_srtab": short["file"], **{name: short[name] for name in SHORT}}
    return plain_lists(found)


def plain_lists(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: plain_lists(value) for key, value in node.items()}
    return [plain_lists(value) for value in node] if isinstance(node, tuple | list) else node


def tree_of(config: Potential, params: Params, statistics: Statistics) -> Tree:
    """The tree below "model" in a file."""
    if config.short_range is None:
        return _plain_tree(config, params, statistics)
    return _table_tree(config, params, statistics)


def _table_tree(config: Potential, params: Params, statistics: Statistics) -> Tree:
    """With a table; deepmd-kit 3.2 itself loads it where the descriptor is se_atten."""
    constants, short = statistics["short_range"], config.short_range
    assert short is not None
    net = _plain_tree(dataclasses.replace(config, short_range=None), params, statistics)
    outer = {
        name: net[name] for name in ("type_map", "atom_exclude_types", "pair_exclude_types", "rcond", "preset_out_bias")
    }
    variables = net["@variables"]
    still = {"out_bias": np.zeros_like(variables["out_bias"]), "out_std": variables["out_std"]}
    net["@variables"] = still
    inside = np.asarray(constants["inside"], np.float64).reshape(-1, 1)
    net["fitting"]["@variables"] = {**net["fitting"]["@variables"], "bias_atom_e": inside}
    tab: Tree = {"@class": "PairTab", "@version": 1, "rmin": short.first, "hh": short.step, "ntypes": config.num_types}
    tab |= {"rmax": short.first + short.step * short.points, "rcut": config.rcut, "nspline": short.points}
    tab["@variables"] = {
        "vdata": short_range.rows(short, constants["splines"]),
        "tab_info": np.asarray([short.first, short.step, short.points, config.num_types]),
        "tab_data": np.asarray(constants["splines"], np.float64).reshape(-1),
    }
    sel = max(part.sel if isinstance(part.sel, int) else sum(part.sel) for part in parts(config.descriptor))
    pairs = {**outer, "@variables": still, "@class": "Model", "type": "pairtab", "@version": 2, "tab": tab}
    pairs |= {"rcut": config.rcut, "sel": sel}
    head = {"@class": "Model", "type": "zbl", "@version": 2, "models": [net, pairs], "weights": "sum"}
    blend = {"sw_rmin": short.sw_rmin, "sw_rmax": short.sw_rmax, "smin_alpha": short.smin_alpha}
    return {**outer, **head, **blend, "@variables": variables}


def _plain_tree(config: Potential, params: Params, statistics: Statistics) -> Tree:
    trees = [
        _descriptor_tree(part, config, params["descriptor"][str(index)], statistics["descriptor"][str(index)])
        for index, part in enumerate(parts(config.descriptor))
    ]
    described = trees[0]
    if isinstance(config.descriptor, Hybrid):
        described = {"@class": "Descriptor", "type": "hybrid", "@version": 1, "list": trees}
    bias = np.asarray(statistics["bias"], np.float64).reshape(1, -1, 1)
    return {
        "@class": "Model",
        "type": "standard",
        "@version": 2,
        "type_map": list(config.type_map),
        "atom_exclude_types": list(config.atom_exclude_types),
        "pair_exclude_types": plain_lists(config.pair_exclude_types),
        "rcond": config.fitting_net.rcond,
        "preset_out_bias": None,
        "@variables": {"out_bias": bias, "out_std": np.ones_like(bias)},
        "descriptor": described,
        "fitting": _fitting_tree(config, params["fitting"]),
    }


def _descriptor_tree(part: Any, config: Potential, params: Any, statistics: Any) -> Tree:
    sel = [part.sel] if isinstance(part.sel, int) else list(part.sel)
    node: Tree = {"@class": "Descriptor", "type": {"se_atten": "dpa1", "se_e2_r": "se_r"}.get(part.type, part.type)}
    node["@version"] = 2
    wide = {
        name: np.repeat(np.asarray(statistics[name])[:, None], sum(sel), axis=1).astype(np.float64)
        for name in ("davg", "dstd")
    }
    node |= {name: _plain(getattr(part, name)) for name in SHARED_KEYS}
    node |= {
        "sel": sel,
        "exclude_types": plain_lists(part.exclude_types),
        "env_mat": {"rcut": part.rcut, "rcut_smth": part.rcut_smth, "protection": part.env_protection},
        "type_map": list(config.type_map),
        "trainable": part.trainable,
        "spin": None,
        "@variables": wide,
    }
    if isinstance(part, SeA):
        node["axis_neuron"] = part.axis_neuron
    if not isinstance(part, SeAtten):
        return {**node, "embeddings": _embeddings(part, params, config.num_types)}
    return {**node, **_attention_tree(part, config, params)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _embeddings(part: SeA | SeR, params: Any, num_types: int) -> Tree:
    nets = [_network(params[name], part, 1) for name in net_names(part, num_types)]
    return _collection("embedding_network", 1 if part.type_one_side else 2, num_types, nets)


def _collection(kind: str, ndim: int, num_types: int, nets: list[Any]) -> Tree:
    head = {"@class": "NetworkCollection", "@version": 1, "ndim": ndim, "ntypes": num_types}
    return {**head, "network_type": kind, "networks": nets}


def _network(layers: Any, part: Any, inside: int, activation: str | None = None) -> Tree:
    act = activation or part.activation_function
    widths = [int(layers[str(index)]["w"].shape[1]) for index in range(len(layers))]
    return {
        "@class": "EmbeddingNetwork",
        "@version": 2,
        "in_dim": inside,
        "neuron": widths,
        "activation_function": act,
        "resnet_dt": bool(part.resnet_dt),
        "bias": "b" in layers["0"],
        "precision": part.precision,
        "layers": [_layer_tree(layers[str(index)], act, part.precision, True) for index in range(len(layers))],
    }


def _layer_tree(layer: Any, activation: str, precision: str, skips: bool) -> Tree:
    return {
        "@class": "Layer",
        "@version": 1,
        "bias": "b" in layer,
        "use_timestep": "idt" in layer,
        "activation_function": activation,
        "resnet": skips,
        "precision": precision,
        "@variables": {name: np.asarray(layer[name]) if name in layer else None for name in ("w", "b", "idt")},
    }


def _attention_tree(part: SeAtten, config: Potential, params: Any) -> Tree:
    sides = part.tebd_dim * (1 if part.type_one_side else 2)
    strip = part.tebd_input_mode == "strip"
    shared = {
        "nnei": part.sel,
        "embed_dim": part.neuron[-1],
        "hidden_dim": part.attn,
        "dotr": part.attn_dotr,
        "do_mask": False,
        "scaling_factor": part.scaling_factor,
        "normalize": part.normalize,
        "temperature": part.temperature,
        "precision": part.precision,
    }
    norm = {"trainable_ln": part.trainable_ln, "ln_eps": part.ln_eps}
    layers = []
    for index in range(part.attn_layer):
        layer = params["attention"][str(index)]
        inner: Tree = {**shared, "num_heads": 1, "bias": True, "smooth": part.smooth_type_embedding}
        inner["in_proj"] = _layer_tree(layer["in"], "none", part.precision, False)
        inner["out_proj"] = _layer_tree(layer["out"], "none", part.precision, False)
        values = {name: np.asarray(layer["norm"][name]) for name in ("w", "b")}
        normed = {"@class": "LayerNorm", "@version": 1, "eps": part.ln_eps, "trainable": part.trainable_ln}
        normed |= {"precision": part.precision, "@variables": values}
        layers.append({**shared, **norm, "attention_layer": inner, "attn_layer_norm": normed})
    head = {"@class": "NeighborGatedAttention", "@version": 1, "layer_num": part.attn_layer}
    embedding = _network(params["types"], part, config.num_types, "Linear")
    node: Tree = {name: getattr(part, name) for name in ATTENTION_KEYS}
    node |= {
        "axis_neuron": part.axis_neuron,
        "tebd_input_mode": part.tebd_input_mode,
        "smooth_type_embedding": part.smooth_type_embedding,
        "use_tebd_bias": part.use_tebd_bias,
        "ntypes": config.num_types,
        "embeddings": _collection(
            "embedding_network", 0, config.num_types, [_network(params["embedding"], part, 1 if strip else 1 + sides)]
        ),
        "attention_layers": {**head, **shared, **norm, "attention_layers": layers},
        "type_embedding": {
            "@class": "TypeEmbedNet",
            "@version": 2,
            "ntypes": config.num_types,
            "neuron": [part.tebd_dim],
            "resnet_dt": False,
            "precision": part.precision,
            "activation_function": "Linear",
            "trainable": part.trainable,
            "padding": True,
            "use_econf_tebd": False,
            "use_tebd_bias": part.use_tebd_bias,
            "type_map": list(config.type_map),
            "embedding": {**embedding, "resnet_dt": False},
        },
    }
    if strip:
        net = _network(params["strip"], part, sides)
        node["embeddings_strip"] = _collection("embedding_network", 0, config.num_types, [net])
    return node


def _fitting_tree(config: Potential, params: Any) -> Tree:
    fit = config.fitting_net
    wide = descriptor_width(config.descriptor)
    nets = []
    for name in sorted(params, key=int):
        layers = params[name]
        last = len(layers) - 1
        tree = _network(layers, fit, wide)
        tree["layers"][last] |= {"activation_function": "none", "resnet": False}
        del tree["bias"]
        tree |= {"@class": "FittingNetwork", "@version": 1, "neuron": list(fit.neuron), "out_dim": 1, "bias_out": True}
        nets.append(tree)
    variables = dict.fromkeys(("case_embd", "fparam_avg", "fparam_inv_std", "aparam_avg", "aparam_inv_std"))
    return {
        "@class": "Fitting",
        "type": "ener",
        "@version": 2,
        "var_name": "energy",
        "ntypes": config.num_types,
        "dim_descrpt": wide,
        "neuron": list(fit.neuron),
        "resnet_dt": fit.resnet_dt,
        "numb_fparam": 0,
        "numb_aparam": 0,
        "rcond": fit.rcond,
        "activation_function": fit.activation_function,
        "precision": fit.precision,
        "mixed_types": config.mixed_types,
        "exclude_types": [],
        "nets": _collection("fitting_network", 0 if config.mixed_types else 1, config.num_types, nets),
        "@variables": {"bias_atom_e": np.zeros((config.num_types, 1)), **variables},
        "type_map": list(config.type_map),
        "tot_ener_zero": False,
        "trainable": [fit.trainable] * (len(fit.neuron) + 1),
        "layer_name": None,
        "use_aparam_as_mask": False,
        "spin": None,
        "dim_out": 1,
        "atom_ener": list(fit.atom_ener) if fit.atom_ener else None,
    }
