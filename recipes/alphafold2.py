"""AlphaFold2: the network as a task for the engine, and prediction over a set of proteins."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from flowaware_core.task import Task
from zoo.errors import UserError
from zoo.folding.models import configured
from zoo.folding.options import PredictOptions
from zoo.folding.run import Say, predict
from zoo.models.alphafold2.config import flattened
from zoo.models.alphafold2.model import AlphaFold2
from zoo.runtime.signals import StopSignals
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """`config` holds values of the models' own configuration, nested as it is."""

    config: dict[str, Any] = dataclasses.field(default_factory=dict)


class AlphaFold2Recipe:
    """Predicts structures; it does not train."""

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """Checks the configuration; makes no array and reads no file.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        self.name = config.name
        self.data_dir = Path(data_dir)
        self.options = typed(PredictOptions, config.predict)
        self.changes = dict(flattened(typed(ModelOptions, config.model, "recipe.model").config))
        self.models = {name: configured(name, self.options, self.changes) for name in self.options.model_names()}

    def summary(self) -> str:
        """The models in one line."""
        return f"AlphaFold2: {', '.join(self.models)}"

    def task(
        self, global_batch: int | None = None, num_res: int = 256, num_msa: int = 128, num_extra: int = 256
    ) -> Task:
        """One pass of the first model over one protein of these sizes, for the engine to plan."""
        if global_batch not in (None, 1):
            raise UserError(f"global batch {global_batch}; a pass of AlphaFold2 is of one protein")
        model = AlphaFold2(next(iter(self.models.values())))
        previous = jax.eval_shape(lambda: model.first_previous(num_res))
        args = (model.parameter_shapes(), model.feature_shapes(num_res, num_msa, num_extra), previous)
        return Task(model.iterate, jax.tree.map(abstract, args), mode="inference", carried={}, batch=(), name=self.name)

    def predict(self, words: Mapping[str, str], run_dir: Path, say: Say) -> None:
        """Predicts every protein of a file or folder.

        Args:
            words: input, output and seed of `zoo.predict`.
            run_dir: not used; nothing was trained.
            say: prints a line.

        Raises:
            UserError: nothing can be predicted as asked.
            PartlyFailed: some proteins failed.
            Stopped: a signal came; some proteins wait for the next run.
        """
        del run_dir
        for name, what in (("input", "a file or folder of sequences"), ("output", "a folder")):
            if name not in words:
                raise UserError(f"{name}= is missing; name {what}")
        source, output = Path(words["input"]), Path(words["output"])
        with StopSignals() as stop:
            predict(source, output, self.options, self.changes, int(words["seed"]), say, stop.wanted)


def abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, np.dtype(leaf.dtype))
