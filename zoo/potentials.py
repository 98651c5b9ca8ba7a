"""Files of potentials: to and from deepmd-kit's formats, compressed, or with energies per type fitted to other frames.

What `python -m zoo.checkpoint convert | compress | change-bias` does with .dp, .yaml and .pt files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax
import numpy as np

from zoo.data.deepmd import frames, systems
from zoo.data.deepmd.bias import refitted
from zoo.errors import UserError
from zoo.models.deepmd import convert, series
from zoo.models.deepmd.convert import Model
from zoo.models.deepmd.descriptors import parts

SUFFIXES = (".dp", ".yaml", ".yml")
FILE = "model.dp"
"""What a training leaves in its run folder."""

Words = Mapping[str, str]


def is_potential(source: Path, target: Path) -> bool:
    """Whether a conversion is one between files of potentials."""
    return target.suffix.lower() in SUFFIXES or source.suffix.lower() in SUFFIXES


def read(source: Path) -> Model:
    """A file, or the one in a run folder. Raises UserError where there is none."""
    file = source / FILE if source.is_dir() else source
    if not file.exists():
        raise UserError(
            f"from={source}: {file} does not exist; name a run folder with {FILE}, or a .dp, .yaml or .pt file"
        )
    return convert.read(file)


def write(target: Path, model: Model) -> None:
    """Writes a file that is not there yet."""
    if target.suffix.lower() not in SUFFIXES:
        raise UserError(f"to={target}: potentials are written as {', '.join(SUFFIXES)} files")
    if target.exists():
        raise UserError(f"to={target} is there already; name another file")
    try:
        convert.write(target, model)
    except OSError as error:
        raise UserError(f"to={target}: cannot be written ({error}); name a file in a folder that is there") from None


def converted(source: Path, target: Path) -> Iterator[str]:
    """The same model in another format."""
    model = read(source)
    write(target, model)
    yield described(model)


def compressed(source: Path, target: Path, words: Words) -> Iterator[str]:
    """The same model, marked to run with its embedding nets as series.

    The smallest distance between atoms is that of the training frames, which models trained here know; of the frames that
    `data` names; or `min_distance_a`.
    """
    model = read(source)
    if model.compressed:
        yield f"compressed before, for a smallest distance of {model.nearest_a:.4f} A; the nets are still there and are used"
    nearest = distance(words, model)
    model = dataclasses.replace(model, nearest_a=nearest, compressed=True)
    fast = series.compressed(model.config, model.params, model.statistics, nearest)  # here, so that it is refused here
    write(target, model)
    yield f"smallest distance {nearest:.4f} A"
    for index, part in fast["descriptor"].items():
        for name, net in part.items():
            if series.is_series(net):
                yield f"descriptor/{index}/{name}: {len(net['series'])} terms from {net['low']:.3f} to {net['high']:.3f}"


def distance(words: Words, model: Model) -> float:
    """The smallest distance between atoms, in angstrom."""
    given = words.get("min_distance_a")
    if given is not None:
        try:
            value = float(given)
        except ValueError:
            value = -1.0
        if not 0 < value < model.config.rcut:
            raise UserError(f"min_distance_a={given}; it must be a number between 0 and rcut={model.config.rcut}")
        return value
    if "data" in words:
        nearest = found_frames(words, model).nearest
        if not np.isfinite(nearest):
            raise UserError(
                f"data={words['data']}: no two atoms are within {model.config.rcut} A; give min_distance_a="
            )
        return nearest
    if model.nearest_a is None:
        raise UserError("the model does not know its training frames; name some with data=, or give min_distance_a=0.7")
    return model.nearest_a


def found_frames(words: Words, model: Model) -> frames.Frames:
    if "data" not in words:
        raise UserError("data= is missing; name folders or files of frames, such as data=water/data_3")
    read_in = systems.read(words["data"].split(","), model.config.type_map)
    return frames.find(read_in, model.config.num_types, model.config.rcut)


def biased(source: Path, target: Path, words: Words) -> Iterator[str]:
    """The model with the energy per type such that it fits the frames of `data`: mode=change (default) or mode=set."""
    mode = words.get("mode", "change")
    if mode not in ("change", "set"):
        raise UserError(f"mode={mode}; allowed are change (to what the model leaves) and set (to the energies alone)")
    model = read(source)
    found = found_frames(words, model)
    if not any(system.known["energy"].any() for system in found.systems):
        raise UserError(f"data={words['data']}: no frame has an energy")
    statistics = refitted(model, found, afresh=mode == "set")
    write(target, dataclasses.replace(model, statistics=statistics))
    for name, before, after in zip(model.config.type_map, model.statistics["bias"], statistics["bias"], strict=True):
        yield f"{name}: {float(before):.6f} -> {float(after):.6f} eV"


def is_file(path: Path) -> bool:
    """Whether a path is a file of a potential."""
    return path.is_file() and path.suffix.lower() in (*SUFFIXES, ".pt", ".pb", ".pth")


def shown(file: Path) -> Iterator[str]:
    """What a file of a potential holds, for people."""
    model = convert.read(file)
    config = model.config
    yield described(model)
    for part in parts(config.descriptor):
        yield f"{part.type}: rcut {part.rcut}, rcut_smth {part.rcut_smth}, sel {part.sel}, neuron {list(part.neuron)}"
    fit = config.fitting_net
    yield f"fitting net: neuron {list(fit.neuron)}, {fit.precision}"
    yield f"{sum(np.size(leaf) for leaf in jax.tree.leaves(model.params)):,} parameters"
    for name, bias in zip(config.type_map, np.asarray(model.statistics["bias"]).reshape(-1), strict=True):
        yield f"energy of {name}: {float(bias):.6f} eV"
    if config.short_range is not None:
        yield f"short-range table: {config.short_range.sw_rmin} to {config.short_range.sw_rmax} A"
    if model.nearest_a is not None:
        yield f"smallest distance in the training frames: {model.nearest_a:.4f} A"
    yield f"compressed: {'yes' if model.compressed else 'no'}"


def described(model: Model) -> str:
    kinds = ", ".join(part.type for part in parts(model.config.descriptor))
    return f"{kinds} potential for {', '.join(model.config.type_map)}, cutoff {model.config.rcut} A"


Action = Callable[[Path, Path, Words], Iterator[str]]
CHANGES: dict[str, tuple[Action, tuple[str, ...]]] = {
    "compress": (compressed, ("data", "min_distance_a")),
    "change-bias": (biased, ("data", "mode")),
}
