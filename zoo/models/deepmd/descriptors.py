"""Descriptors: what a net sees of the atoms around one, under the names that deepmd-kit's input.json uses.

Lengths are in angstrom.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Precision = Literal["float64", "float32"]
Activation = Literal["tanh", "relu", "relu6", "softplus", "sigmoid", "gelu", "gelu_tf", "silu", "linear", "none"]


@dataclasses.dataclass(frozen=True)
class DeepPot:
    """What the two forms of DeepPot-SE have in common.

    Attributes:
        rcut, rcut_smth: where the switch reaches 0, and where it leaves 1.
        sel: the most neighbours of each type, or "auto", "auto:FACTOR": from the data, times the factor (1.1).
        neuron: widths of the embedding net.
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
    resnet_dt: bool = False
    type_one_side: bool = False
    activation_function: Activation = "tanh"
    precision: Precision = "float64"
    exclude_types: tuple[tuple[int, int], ...] = ()
    env_protection: float = 0.0
    set_davg_zero: bool = False
    trainable: bool = True
    seed: int | None = None

    def __post_init__(self) -> None:
        check_range(self)


@dataclasses.dataclass(frozen=True)
class SeA(DeepPot):
    """DeepPot-SE with distances and angles (se_e2_a).

    Attributes:
        axis_neuron: how many outputs of the embedding net form the second factor of the descriptor.
    """

    axis_neuron: int = 4
    type: Literal["se_e2_a"] = "se_e2_a"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_axis(self)


@dataclasses.dataclass(frozen=True)
class SeR(DeepPot):
    """DeepPot-SE with distances alone (se_e2_r)."""

    type: Literal["se_e2_r"] = "se_e2_r"


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
        The rest is as in `DeepPot`.
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


SHARED_KEYS = (
    "rcut rcut_smth neuron resnet_dt type_one_side activation_function precision env_protection set_davg_zero".split()
)
"""Of all descriptors, in the order in which files list them."""

ATTENTION_KEYS = (
    "tebd_dim attn attn_layer attn_dotr attn_mask scaling_factor normalize temperature concat_output_tebd "
    "use_econf_tebd trainable_ln ln_eps"
).split()
"""Of se_atten alone."""


def parts(descriptor: Descriptor) -> tuple[Any, ...]:
    """The descriptors that a hybrid consists of; any other consists of itself."""
    return descriptor.list if isinstance(descriptor, Hybrid) else (descriptor,)


def auto_factor(sel: str) -> float | None:
    """The factor of "auto" or "auto:FACTOR"; None where it is neither."""
    word, colon, factor = sel.partition(":")
    try:
        value = float(factor) if colon else 1.1
    except ValueError:
        return None
    return value if word == "auto" and value >= 1 else None


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


def check_axis(config: Any) -> None:
    if not 1 <= config.axis_neuron <= config.neuron[-1]:
        raise ValueError(
            f"axis_neuron={config.axis_neuron}; it must lie between 1 and the last of neuron, {config.neuron[-1]}"
        )
