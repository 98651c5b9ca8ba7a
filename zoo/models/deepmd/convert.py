"""Models of deepmd-kit, read from and written to its own .dp and .yaml files; its .pt checkpoints are read.

Arrays keep their values exactly; whatever a file asks for that is not supported here is named.
"""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import jax
import numpy as np

from zoo.errors import UserError
from zoo.models.deepmd import from_tree, serial, to_tree, torch_file
from zoo.models.deepmd.config import Potential
from zoo.models.deepmd.model import Params, Statistics


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
        return finite(Model(config, params, statistics, nearest), file)
    tree = serial.load(file)
    try:
        model = Model(*from_tree.model_of(tree["model"], str(file)))
        nearest = (tree.get("@variables") or {}).get("min_nbor_dist")
        nearest = None if nearest is None else float(np.asarray(nearest).reshape(()))
        model = dataclasses.replace(model, nearest_a=nearest, compressed=bool(tree.get("compressed")))
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise UserError(f"{file}: the model's tree is not as expected ({type(error).__name__}: {error})") from None
    return finite(model, file)


def finite(model: Model, file: Path) -> Model:
    """The model, if all its numbers are finite. Raises UserError."""
    numbers = {"params": model.params, "statistics": model.statistics}
    for path, leaf in jax.tree_util.tree_leaves_with_path(numbers):
        if not np.all(np.isfinite(np.asarray(leaf, np.float64))):
            name = "/".join(str(part.key) for part in path)
            raise UserError(
                f"{file}: {name} holds numbers that are not finite, so its training has failed; take an earlier checkpoint"
            )
    return model


def write(file: Path, model: Model) -> None:
    """Writes a model that deepmd-kit 3 reads: `dp convert-backend FILE.dp FILE.pb` and the like take it from there."""
    script = to_tree.definition(model.config)
    now = str(datetime.datetime.now(tz=datetime.UTC))
    head = {"software": "flowaware-zoo", "version": "3.2.0", "time": now, "backend": "dpmodel"}
    known = {} if model.nearest_a is None else {"min_nbor_dist": np.asarray(model.nearest_a)}
    whole = to_tree.tree_of(model.config, model.params, model.statistics)
    tree: serial.Tree = {"model": whole, "model_def_script": script, "@variables": known}
    if model.compressed:
        tree["compressed"] = True  # ours alone: deepmd-kit finds the nets, and compresses them its own way
    serial.save(Path(file), {**head, **tree})
