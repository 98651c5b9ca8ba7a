"""What a potential is made of, under the names that deepmd-kit's input.json uses.

`typed` turns the sections of a YAML or of an input.json into these dataclasses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from zoo.errors import UserError
from zoo.models.deepmd.descriptors import KINDS, Activation, Descriptor, Hybrid, Precision, SeA, SeAtten, SeR, parts
from zoo.models.deepmd.short_range import ShortRange
from zoo.typed import join, nearest, typed

ALIASES = {"se_a": "se_e2_a", "se_r": "se_e2_r", "dpa1": "se_atten"}
PRECISIONS = {"default": "float64", "double": "float64", "single": "float32"}


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
        pairs = [*self.pair_exclude_types, *(pair for part in parts(self.descriptor) for pair in part.exclude_types)]
        for kind in (*self.atom_exclude_types, *(kind for pair in pairs for kind in pair)):
            if not 0 <= kind < len(self.type_map):
                raise ValueError(
                    f"exclude_types has type {kind}; type_map={list(self.type_map)} has 0 to {len(self.type_map) - 1}"
                )
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


def vacancies_matter(config: Potential) -> bool:
    """Whether energies depend on the type that slots without a neighbour count as.

    deepmd-kit takes that of the frame's first atom, so such models depend on the order of atoms.
    """
    return any(
        isinstance(part, SeAtten)
        and not part.set_davg_zero
        and (part.tebd_input_mode == "concat" or not part.smooth_type_embedding)
        for part in parts(config.descriptor)
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
