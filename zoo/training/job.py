"""One training, checked before anything is planned or written."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax

import flowaware_core as fa
from zoo.config import Config, RecipeConfig
from zoo.conversion import FAMILIES, is_foreign
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.training import state
from zoo.training.checkpoints import locate
from zoo.training.judge import check_metric
from zoo.training.origin import Origin, origin
from zoo.training.run_folder import RunFolder, check_place
from zoo.typed import nearest

Level = Literal["emulated", "cluster"]

KEPT_CHECKPOINTS = 3
"""How many checkpoints stay; one more exists while it is written."""


@dataclasses.dataclass(frozen=True)
class Job:
    """What is trained, where it starts and ends, and what is said meanwhile.

    Attributes:
        config: the configuration.
        recipe: model, data, loss and optimizer.
        task: one step at the recipe's full batch.
        folder: where the run writes.
        level: how true the figures of the steps are; "emulated" is a rehearsal, where a few steps on virtual devices
            stand for the training, "cluster" the training itself.
        steps: the step that the run ends with.
        origin: where it starts.
        say: prints a line; does nothing on processes beside the first.
    """

    config: Config
    recipe: Any
    task: fa.Task
    folder: RunFolder
    level: Level
    steps: int
    origin: Origin
    say: Callable[[str], None]

    @property
    def rehearses(self) -> bool:
        return self.level == "emulated"

    @property
    def saved_bytes(self) -> int:
        """What the checkpoints take that exist at the same time."""
        count = min(KEPT_CHECKPOINTS + 1, -(-(self.steps - self.origin.step) // self.config.checkpoint_every))
        return count * state.num_bytes(self.task.args[0])


def prepare(config: Config, level: Level, processes: int = 1, first: bool = True) -> Job:
    """Checks everything that can be wrong with a training: recipe, strategy, folder, checkpoint, data, batch.

    Args:
        config: the configuration.
        level: see `Job`.
        processes: how many share each batch.
        first: whether this is the process that writes and prints.

    Raises:
        UserError: something is; nothing was written.
    """
    recipe = load(config.recipe, config.data_dir, level)
    check_strategy(config.strategy)
    folder = RunFolder(config.run_dir, writes=first)
    start = origin(config, folder, level)
    if hasattr(recipe, "recall"):
        recipe.recall(start.meta)
    task = recipe.task()
    check_batch(rows_of(task), processes, "recipe.data.global_batch")
    check_metric(recipe, *task.args)
    if config.init_from is not None and config.init_from.is_file() and hasattr(recipe, "beginning"):
        recipe.beginning(config.init_from)
    elif config.init_from is not None:
        check_beginning(config.init_from, recipe, task.args[0])
    rehearses = level == "emulated"
    steps = config.steps or (config.recipe.rehearsal.steps if rehearses else recipe.training.steps)
    say = (lambda line: print(line, flush=True)) if first else (lambda line: None)
    if start.meta.get("ended_early") and config.steps is None:
        steps = start.step
    job = Job(config, recipe, task, folder, level, steps, start, say)
    if not start.reaches(steps):
        check_place(config.run_dir, 0 if rehearses else job.saved_bytes)
        announce(recipe.dataset(rehearsal=rehearses), say)
        if not rehearses:
            announce_schedule(config.recipe, steps, say)
    return job


def check_beginning(place: Path, recipe: Any, initial: Any) -> None:
    """Raises UserError where `init_from` holds neither a checkpoint nor weights that fit the recipe's state."""
    if not is_foreign(place):
        state.check_beginning(*locate(place, "init_from"), recipe, initial)
    elif getattr(recipe, "family", None) not in FAMILIES:
        raise UserError(f"init_from={place} is a file of weights; this recipe starts from runs of the zoo only")
    else:
        family = FAMILIES[recipe.family]
        heads = tuple(getattr(recipe, "heads", ()))
        family.from_theirs(weight_files.read(place), recipe.model_config, f"init_from={place}", heads)


def announce_schedule(recipe: RecipeConfig, steps: int, say: Callable[[str], None]) -> None:
    """Says where a shorter training leaves the learning rate elsewhere than the recipe's own would."""
    rises, whole = recipe.optimizer.get("warmup_steps", 0), recipe.training.get("steps", steps)
    if rises > steps:
        say(
            f"the learning rate rises during all of the {steps} steps: recipe.optimizer.warmup_steps={rises}; a smaller "
            "number brings it to its full value"
        )
    elif steps < whole and recipe.optimizer.get("schedule", "cosine") in ("cosine", "linear"):
        say(
            f"the learning rate falls as in a training of {whole} steps, of which these are the first {steps}; "
            f"recipe.training.steps={steps} makes it fall to 0 within them"
        )


def announce(dataset: Any, say: Callable[[str], None]) -> None:
    if dataset.announcement:
        say(dataset.announcement)


def load(config: RecipeConfig, data_dir: Path, level: Level = "emulated") -> Any:
    """The recipe that `_target_` names, built; switches 64-bit types on for this process where it needs them.

    Args:
        config, data_dir: of the recipe.
        level: see `Job`; what runs for real on processors may be written otherwise than what accelerators are planned for.

    Raises:
        UserError: there is no such class, or it refuses its configuration.
    """
    module, _, attribute = config.target.rpartition(".")
    try:
        recipe_class = getattr(importlib.import_module(module or attribute), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and not config.target.startswith(str(error.name)):
            raise  # the module is there; something that it imports is missing
        raise UserError(
            f"recipe._target_={config.target}: {error}; "
            "give the dotted name of a class, such as recipes.resnet.ResNetRecipe"
        ) from None
    if not (isinstance(recipe_class, type) and hasattr(recipe_class, "task")):
        raise UserError(
            f"recipe._target_={config.target} is no recipe: it has no method `task`; "
            "give the dotted name of a class, such as recipes.resnet.ResNetRecipe"
        )
    recipe = recipe_class(config, data_dir)
    if level == "cluster" and hasattr(recipe, "for_processor") and jax.default_backend() == "cpu":
        recipe.for_processor()
    if getattr(recipe, "needs_float64", False):
        jax.config.update("jax_enable_x64", True)  # before anything is traced; off, JAX would quietly take float32
    return recipe


def check_strategy(strategy: str) -> None:
    if strategy not in fa.STRATEGIES:
        hint = nearest(strategy, fa.STRATEGIES)
        raise UserError(f"strategy={strategy} is not known{hint}; choose one of {', '.join(fa.STRATEGIES)}")


def check_batch(rows: int, processes: int, option: str) -> None:
    """Raises UserError when the processes cannot share a batch evenly; says what they could."""
    if rows % processes == 0:
        return
    counts = [str(count) for count in range(1, rows + 1) if rows % count == 0 and count <= 2 * processes]
    below, above = rows - rows % processes, rows - rows % processes + processes
    fitting = f"{below} or {above}" if below else f"{above}"
    raise UserError(
        f"{option}={rows} is not divisible by processes={processes}; {rows} is divisible by {', '.join(counts)}, "
        f"and {processes} processes can share {fitting} examples"
    )


def rows_of(task: fa.Task) -> int:
    """Examples in one batch of the task."""
    return jax.tree.leaves(task.args[task.batch[0]])[0].shape[0]
