"""Models of deepmd-kit, read from and written to its own .dp and .yaml files; its .pt checkpoints are read.

Arrays keep their values exactly; whatever a file asks for that is not supported here is named.
"""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import numpy as np

from zoo.errors import UserError
from zoo.models.deepmd import serial, short_range, torch_file
from zoo.models.deepmd.config import ALIASES, SHORT, Hybrid, Potential, SeA, SeAtten, SeR, parts, potential
from zoo.models.deepmd.model import Params, Statistics, descriptor_width
from zoo.models.deepmd.se_e2_a import net_names
from zoo.models.deepmd.short_range import ShortRange

Tree = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Model:
    """A potential with its numbers.

    Attributes:
        config: what it is made of.
        params: what training changes.
        statistics: what it does not: mean and deviation of the rows, energy bias.
        nearest_a: the smallest distance between atoms of the training frames, in angstrom, where it is known.
        compressed: whether the embedding nets run as series, which are made for distances from there on.
    """

    config: Potential
    params: Params
    statistics: Statistics
    nearest_a: float | None = None
    compressed: bool = False


def read(file: Path) -> Model:
    """Reads a .dp or .yaml model, or a .pt checkpoint of deepmd-kit's PyTorch backend.

    Raises:
        UserError: the file is missing, damaged or of another format, or its model is not supported.
    """
    file = Path(file)
    if file.suffix.lower() == ".pt":
        found = torch_file.load(file)
        try:
            config, params, statistics, nearest = torch_file.model_of(*found, str(file))
        except (KeyError, TypeError, IndexError) as error:
            raise UserError(
                f"{file}: the model's tensors are not as expected ({type(error).__name__}: {error})"
            ) from None
        refuse_order_dependent(config, statistics["descriptor"], str(file))
        return Model(config, params, statistics, nearest)
    tree = serial.load(file)
    try:
        model = _model(tree["model"], str(file))
        nearest = (tree.get("@variables") or {}).get("min_nbor_dist")
        nearest = None if nearest is None else float(np.asarray(nearest).reshape(()))
        return dataclasses.replace(model, nearest_a=nearest, compressed=bool(tree.get("compressed")))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise UserError(f"{file}: the model's tree is not as expected ({type(error).__name__}: {error})") from None


def write(file: Path, model: Model) -> None:
    """Writes a model that deepmd-kit 3 reads: `dp convert-backend FILE.dp FILE.pb` and the like take it from there."""
    script = definition(model.config)
    now = str(datetime.datetime.now(tz=datetime.UTC))
    head = {"software": "flowaware-zoo", "version": "3.2.0", "time": now, "backend": "dpmodel"}
    known = {} if model.nearest_a is None else {"min_nbor_dist": np.asarray(model.nearest_a)}
    tree: Tree = {"model": tree_of(model), "model_def_script": script, "@variables": known}
    if model.compressed:
        tree["compressed"] = True  # ours alone: deepmd-kit finds the nets, and compresses them its own way
    serial.save(Path(file), {**head, **tree})


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


# --- from a tree -----------------------------------------------------------------------------------------------------


def _model(tree: Tree, file: str) -> Model:
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
    refuse_order_dependent(config, statistics, file)
    nets = fit["nets"]["networks"]
    fitted = {str(index): _layers(net) for index, net in enumerate(nets)}
    bias = np.zeros(config.num_types)
    for value in (fit["@variables"].get("bias_atom_e"), tree.get("@variables", {}).get("out_bias")):
        if value is not None:
            bias = bias + np.asarray(value, np.float64).reshape(-1)
    return Model(config, {"descriptor": params, "fitting": fitted}, {"descriptor": statistics, "bias": bias})


def _with_table(tree: Tree, file: str) -> Model:
    """A model with a short-range table: the bias inside the net is blended, the one of the whole is not."""
    net, pairs = tree["models"]
    inner = _model({**net, "@variables": {}, "pair_exclude_types": tree.get("pair_exclude_types")}, file)
    tab, types = pairs["tab"], inner.config.num_types
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
    constants = {"splines": splines, "inside": inner.statistics["bias"]}
    config = dataclasses.replace(inner.config, short_range=short)
    return Model(config, inner.params, {**inner.statistics, "bias": bias, "short_range": constants})


def refuse_order_dependent(config: Potential, statistics: Any, file: str) -> None:
    """deepmd-kit gives empty slots the type of a frame's first atom; with a mean other than 0 that atom then matters."""
    for index, part in enumerate(parts(config.descriptor)):
        mean = np.asarray(statistics[str(index)]["davg"])
        if isinstance(part, SeAtten) and part.tebd_input_mode == "concat" and mean.any():
            raise UserError(
                f"{file}: a se_atten model with tebd_input_mode=concat and a mean (davg) other than 0 depends on the order "
                "of atoms, which is not supported; train it with set_davg_zero=true, or take se_atten_v2"
            )


def _parts(node: Tree) -> list[Tree]:
    return node["list"] if node["type"] == "hybrid" else [node]


SHARED = (
    "rcut rcut_smth neuron resnet_dt type_one_side activation_function precision env_protection set_davg_zero".split()
)
ATTENTION = (
    "tebd_dim attn attn_layer attn_dotr attn_mask scaling_factor normalize temperature concat_output_tebd "
    "use_econf_tebd trainable_ln ln_eps"
).split()


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
    wanted = [*SHARED]
    section: Tree = {"type": kind, "exclude_types": _type_pairs(node.get("exclude_types"))}
    if ALIASES.get(kind, kind) in ("se_atten", "se_atten_v2"):
        wanted += ["axis_neuron", *ATTENTION]
        section["sel"] = int(sum(node["sel"])) if isinstance(node["sel"], list) else int(node["sel"])
        # Models of the first version say nothing of a bias, and have one.
        section["use_tebd_bias"] = node.get("use_tebd_bias", True)
        if kind != "se_atten_v2":
            section["tebd_input_mode"] = node["tebd_input_mode"]
            section["smooth_type_embedding"] = node["smooth_type_embedding"]
    else:
        section["sel"] = node["sel"]
        wanted += ["axis_neuron"] if "axis_neuron" in node else []
    return {**section, **{name: _number(name, node[name]) for name in wanted if name in node}}


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


# --- to a tree -------------------------------------------------------------------------------------------------------


def tree_of(model: Model) -> Tree:
    """The model's tree as deepmd-kit 3.2 writes it."""
    return _plain_tree(model) if model.config.short_range is None else _table_tree(model)


def _table_tree(model: Model) -> Tree:
    """With a table; deepmd-kit 3.2 itself loads it where the descriptor is se_atten."""
    config, constants = model.config, model.statistics["short_range"]
    short = config.short_range
    assert short is not None
    net = _plain_tree(Model(dataclasses.replace(config, short_range=None), model.params, model.statistics))
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


def _plain_tree(model: Model) -> Tree:
    config = model.config
    trees = [
        _descriptor_tree(
            part,
            config,
            model.params["descriptor"][str(index)],
            model.statistics["descriptor"][str(index)],
        )
        for index, part in enumerate(parts(config.descriptor))
    ]
    described = trees[0]
    if isinstance(config.descriptor, Hybrid):
        described = {"@class": "Descriptor", "type": "hybrid", "@version": 1, "list": trees}
    bias = np.asarray(model.statistics["bias"], np.float64).reshape(1, -1, 1)
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
        "fitting": _fitting_tree(config, model.params["fitting"]),
    }


def _descriptor_tree(part: Any, config: Potential, params: Any, statistics: Any) -> Tree:
    sel = [part.sel] if isinstance(part.sel, int) else list(part.sel)
    node: Tree = {"@class": "Descriptor", "type": {"se_atten": "dpa1", "se_e2_r": "se_r"}.get(part.type, part.type)}
    node["@version"] = 2
    wide = {
        name: np.repeat(np.asarray(statistics[name])[:, None], sum(sel), axis=1).astype(np.float64)
        for name in ("davg", "dstd")
    }
    node |= {name: _plain(getattr(part, name)) for name in SHARED}
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
    node: Tree = {name: getattr(part, name) for name in ATTENTION}
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
