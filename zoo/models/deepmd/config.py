"""What a potential is made of, under the names that deepmd-kit's input.json uses.

Lengths are in angstrom. `typed` turns the sections of a YAML or of an input.json into these dataclasses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from zoo.errors import UserError
from zoo.models.deepmd.short_range import ShortRange
from zoo.typed import join, nearest, typed

Precision = Literal["float64", "float32"]
Activation = Literal["tanh", "relu", "relu6", "softplus", "sigmoid", "gelu", "gelu_tf", "silu", "linear", "none"]

ALIASES = {"se_a": "se_e2_a", "se_r": "se_e2_r", "dpa1": "se_atten"}
PRECISIONS = {"default": "float64", "double": "float64", "single": "float32"}


@dataclasses.dataclass(frozen=True)
class SeA:
    """DeepPot-SE with distances and angles (se_e2_a).

    Attributes:
        rcut, rcut_smth: where the switch reaches 0, and where it leaves 1.
        sel: the most neighbours of each type, or "auto", "auto:FACTOR": from the data, times the factor (1.1).
        neuron: widths of the embedding net.
        axis_neuron: how many of its outputs form the second factor of the descriptor.
        resnet_dt: whether residual layers learn a step size.
        type_one_side: one embedding net per neighbour type; otherwise one per pair of types.
        exclude_types: pairs of types that do not see each other.
        env_protection: added to distances before dividing by them.
        set_davg_zero: keep the mean of the environment matrix at 0.
        trainable: whether training changes the embedding nets.
        seed: accepted, not used: all random numbers come from the seed of the command.
    """

    rcut: float
    rcut_smth: float = 0.5
    sel: tuple[int, ...] | str = "auto"
    neuron: tuple[int, ...] = (10, 20, 40)
    axis_neuron: int = 4
    resnet_dt: bool = False
    type_one_side: bool = False
    activation_function: Activation = "tanh"
    precision: Precision = "float64"
    exclude_types: tuple[tuple[int, int], ...] = ()
    env_protection: float = 0.0
    set_davg_zero: bool = False
    trainable: bool = True
    seed: int | None = None
    type: Literal["se_e2_a"] = "se_e2_a"

    def __post_init__(self) -> None:
        check_range(self)
        check_axis(self)


@dataclasses.dataclass(frozen=True)
class SeR:
    """DeepPot-SE with distances alone (se_e2_r); attributes as `SeA`."""

    rcut: float
    rcut_smth: float = 0.5
    sel: tuple[int, ...] | str = "auto"
    neuron: tuple[int, ...] = (10, 20, 40)
    resnet_dt: bool = False
    type_one_side: bool = False
    activation_function: Activation = "tanh"
    precision: Precision = "float64"
    exclude_types: tuple[tuple[int, int], ...] = ()
    env_protection: float = 0.0
    set_davg_zero: bool = False
    trainable: bool = True
    seed: int | None = None
    type: Literal["se_e2_r"] = "se_e2_r"

    def __post_init__(self) -> None:
        check_range(self)


@dataclasses.dataclass(frozen=True)
class SeAtten:
    """DPA-1: one embedding net that knows types by an embedding, and attention between neighbours (se_atten).

    Attributes:
        sel: the most neighbours of all types together.
        tebd_dim: width of the type embedding.
        tebd_input_mode: "concat" feeds types into the embedding net; "strip" multiplies by a net of types alone.
        attn, attn_layer: width and number of attention layers; 0 layers is no attention.
        attn_dotr: attention weights are multiplied by the cosine between the neighbours' directions.
        normalize: queries, keys and values have norm 1.
        scaling_factor, temperature: queries are divided by sqrt(attn * scaling_factor), or by 1 / temperature.
        smooth_type_embedding: attention and type factors vanish smoothly at the cutoff.
        concat_output_tebd: the fitting net sees the type embedding too.
        use_econf_tebd, use_tebd_bias, trainable_ln, ln_eps: details of embedding and layer norm.
        The rest is as in `SeA`.
    """

    rcut: float
    rcut_smth: float = 0.5
    sel: int | tuple[int, ...] | str = "auto"
    neuron: tuple[int, ...] = (25, 50, 100)
    axis_neuron: int = 16
    tebd_dim: int = 8
    tebd_input_mode: Literal["concat", "strip"] = "concat"
    resnet_dt: bool = False
    type_one_side: bool = False
    attn: int = 128
    attn_layer: int = 2
    attn_dotr: bool = True
    attn_mask: bool = False
    activation_function: Activation = "tanh"
    precision: Precision = "float64"
    exclude_types: tuple[tuple[int, int], ...] = ()
    env_protection: float = 0.0
    set_davg_zero: bool = True
    scaling_factor: float = 1.0
    normalize: bool = True
    temperature: float | None = None
    smooth_type_embedding: bool = True
    concat_output_tebd: bool = True
    use_econf_tebd: bool = False
    use_tebd_bias: bool = False
    trainable_ln: bool = True
    ln_eps: float = 1e-5
    trainable: bool = True
    seed: int | None = None
    type: Literal["se_atten"] = "se_atten"

    def __post_init__(self) -> None:
        check_range(self)
        check_axis(self)
        for name, unsupported in (("attn_mask", self.attn_mask), ("use_econf_tebd", self.use_econf_tebd)):
            if unsupported:
                raise ValueError(f"{name}=true is not supported; leave it out")


@dataclasses.dataclass(frozen=True)
class Hybrid:
    """Several descriptors side by side; the fitting net sees them all."""

    list: tuple[Any, ...]
    type: Literal["hybrid"] = "hybrid"

    @property
    def rcut(self) -> float:
        return max(part.rcut for part in self.list)

    @property
    def precision(self) -> Precision:
        return self.list[0].precision


Descriptor = SeA | SeR | SeAtten | Hybrid
KINDS: dict[str, Any] = {"se_e2_a": SeA, "se_e2_r": SeR, "se_atten": SeAtten, "hybrid": Hybrid}


@dataclasses.dataclass(frozen=True)
class Fitting:
    """From an atom's descriptor to its energy in eV.

    Attributes:
        neuron: widths of the hidden layers.
        resnet_dt, activation_function, precision, seed: as in `SeA`.
        trainable: whether training changes the nets.
        rcond: cut-off of the least squares that gives the energy bias of each type.
        atom_ener: energy of an isolated atom of each type; what the net gives for an empty environment is taken off.
    """

    neuron: tuple[int, ...] = (120, 120, 120)
    resnet_dt: bool = True
    activation_function: Activation = "tanh"
    precision: Precision = "float64"
    trainable: bool = True
    rcond: float | None = None
    atom_ener: tuple[float | None, ...] = ()
    seed: int | None = None
    type: Literal["ener"] = "ener"


@dataclasses.dataclass(frozen=True)
class Potential:
    """A potential: energies of atoms from what surrounds them.

    Attributes:
        type_map: chemical symbols; an atom's type is its number in this list.
        descriptor: what the net sees of the surroundings.
        fitting_net: from there to the energy.
        pair_exclude_types: pairs of types that do not see each other in the whole model.
        atom_exclude_types: types that have no energy.
        short_range: what takes over where atoms come very near.
    """

    type_map: tuple[str, ...]
    descriptor: Descriptor
    fitting_net: Fitting = Fitting()
    pair_exclude_types: tuple[tuple[int, int], ...] = ()
    atom_exclude_types: tuple[int, ...] = ()
    short_range: ShortRange | None = None

    def __post_init__(self) -> None:
        if not self.type_map or len(set(self.type_map)) != len(self.type_map):
            raise ValueError(f"type_map={list(self.type_map)}; name each element once, such as [O, H]")
        for part in parts(self.descriptor):
            sel = part.sel
            if isinstance(part, SeA | SeR) and isinstance(sel, tuple) and len(sel) != len(self.type_map):
                raise ValueError(
                    f"descriptor.sel={list(sel)} has {len(sel)} numbers and type_map={list(self.type_map)} has "
                    f"{len(self.type_map)} types; give one number per type, or sel: auto"
                )

    @property
    def num_types(self) -> int:
        return len(self.type_map)

    @property
    def rcut(self) -> float:
        return self.descriptor.rcut

    @property
    def mixed_types(self) -> bool:
        """Whether one fitting net serves all types, told apart by the type embedding in the descriptor."""
        return all(isinstance(part, SeAtten) for part in parts(self.descriptor))

    @property
    def settled(self) -> bool:
        """Whether every `sel` is a number."""
        return all(not isinstance(part.sel, str) for part in parts(self.descriptor))


def parts(descriptor: Descriptor) -> tuple[Any, ...]:
    """The descriptors that a hybrid consists of; any other consists of itself."""
    return descriptor.list if isinstance(descriptor, Hybrid) else (descriptor,)


def potential(section: Mapping[str, Any], path: str) -> Potential:
    """The model section of a YAML or an input.json.

    Raises:
        UserError: an option is unknown, not supported, or out of its range.
    """
    if not isinstance(section, Mapping) or "descriptor" not in section:
        raise UserError(f"{join(path, 'descriptor')} is missing; give a section with type, rcut, sel and neuron")
    tree = dict(section)
    described = descriptor(tree.pop("descriptor"), join(path, "descriptor"))
    fitted = fitting(tree.pop("fitting_net", {}), join(path, "fitting_net"))
    short = short_range(tree, path)
    return typed(Potential, {**tree, "descriptor": described, "fitting_net": fitted, "short_range": short}, path)


SHORT = ("sw_rmin", "sw_rmax", "smin_alpha")


def short_range(tree: dict[str, Any], path: str) -> ShortRange | None:
    """Takes the keys of the short-range table out of a model section."""
    file = tree.pop("use_srtab", None)
    given = {name: tree.pop(name) for name in SHORT if name in tree}
    if file is None:
        if given:
            raise UserError(
                f"{join(path, next(iter(given)))} needs use_srtab: the file of a table of pair energies, or zbl"
            )
        return None
    return typed(ShortRange, {"file": str(file), **given}, path)


def descriptor(section: Any, path: str) -> Descriptor:
    """One descriptor section, of whatever type it names."""
    if not isinstance(section, Mapping):
        raise UserError(f"{path}={section!r}: expected a section with type, rcut, sel and neuron")
    tree = {key: value for key, value in section.items() if not str(key).startswith("_")}
    name = str(tree.pop("type", "se_e2_a"))
    name = ALIASES.get(name, name)
    if name == "se_atten_v2":
        forced = {"tebd_input_mode": "strip", "smooth_type_embedding": True}
        tree = {"set_davg_zero": False, **tree, **forced}
        name = "se_atten"
    if name not in KINDS:
        known = (*KINDS, "se_atten_v2")
        raise UserError(
            f"{path}.type={name!r} is not supported{nearest(name, known)}; supported are {', '.join(known)}"
        )
    if name == "hybrid":
        inner = tuple(descriptor(part, f"{path}.list[{i}]") for i, part in enumerate(tree.pop("list", ())))
        if not inner or tree:
            raise UserError(f"{path}: a hybrid needs `list` with at least one descriptor, and nothing beside it")
        return Hybrid(inner)
    return typed(KINDS[name], plain_precision(tree), path)


def fitting(section: Mapping[str, Any], path: str) -> Fitting:
    tree = {key: value for key, value in section.items() if not str(key).startswith("_")}
    for name in ("numb_fparam", "numb_aparam", "dim_case_embd"):
        if tree.pop(name, 0):
            raise UserError(f"{path}.{name} is not supported; leave it out")
    return typed(Fitting, plain_precision(tree), path)


def plain_precision(tree: dict[str, Any]) -> dict[str, Any]:
    name = tree.get("precision")
    return tree if name is None else {**tree, "precision": PRECISIONS.get(name, name)}


def check_range(config: Any) -> None:
    if not 0 <= config.rcut_smth < config.rcut:
        raise ValueError(f"rcut_smth={config.rcut_smth}; it must be at least 0 and below rcut={config.rcut}")
    if not config.neuron or any(width < 1 for width in config.neuron):
        raise ValueError(f"neuron={list(config.neuron)}; give the width of each layer, at least 1")
    sel = config.sel
    numbers = (sel,) if isinstance(sel, int) else sel if isinstance(sel, tuple) else ()
    if any(number < 0 for number in numbers) or (numbers and sum(numbers) == 0):
        raise ValueError(f"sel={sel}; give numbers of neighbours, or auto")
    if isinstance(sel, str) and not auto_factor(sel):
        raise ValueError(
            f"sel={sel!r}; give numbers, auto, or auto:FACTOR with a factor of at least 1, such as auto:1.2"
        )


def auto_factor(sel: str) -> float | None:
    """The factor of "auto" or "auto:FACTOR"; None where it is neither."""
    word, colon, factor = sel.partition(":")
    try:
        value = float(factor) if colon else 1.1
    except ValueError:
        return None
    return value if word == "auto" and value >= 1 else None


def check_axis(config: Any) -> None:
    if not 1 <= config.axis_neuron <= config.neuron[-1]:
        raise ValueError(
            f"axis_neuron={config.axis_neuron}; it must lie between 1 and the last of neuron, {config.neuron[-1]}"
        )


def unlike(one: Potential, other: Potential) -> str:
    """The first difference that matters between two models, in words; empty where parameters of one fit the other."""
    harmless = {"seed", "trainable", "rcond", "atom_ener", "fitting_net", "descriptor", "short_range", "file"}
    pairs: list[tuple[str, Any, Any]] = [("model", one, other), ("fitting_net", one.fitting_net, other.fitting_net)]
    if (one.short_range is None) != (other.short_range is None):
        return "use_srtab is given for one of them and not for the other"
    if one.short_range is not None:
        pairs.append(("model", one.short_range, other.short_range))
    mine, theirs = parts(one.descriptor), parts(other.descriptor)
    if [part.type for part in mine] != [part.type for part in theirs]:
        return f"descriptor {[part.type for part in mine]} and {[part.type for part in theirs]}"
    for place, a, b in [*pairs, *(("descriptor", a, b) for a, b in zip(mine, theirs, strict=True))]:
        for field in dataclasses.fields(a):
            values = getattr(a, field.name), getattr(b, field.name)
            if field.name not in harmless and values[0] != values[1]:
                return f"{place}.{field.name} is {values[0]} there and {values[1]} here"
    return ""
