"""Where a training starts: at step 0, or after the step of a checkpoint, and whether anything is left to do."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from zoo.config import Config, plain
from zoo.errors import UserError
from zoo.training.changes import refuse
from zoo.training.checkpoints import Checkpoints, locate
from zoo.training.run_folder import RunFolder

NOT_LEARNED = ("rehearsal", "init_from", "predicts")
OWED = "evaluation_owed"
"""In the meta of a checkpoint: it was to be evaluated, and a stop came first."""


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a training goes on from.

    Attributes:
        step: steps already done.
        source: the checkpoints that hold that step; None for a new training.
        meta: what was saved with it.
        notes: sentences for the user.
    """

    step: int = 0
    source: Checkpoints | None = None
    meta: dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def owed(self) -> bool:
        """Whether an evaluation is to be made up for."""
        return bool(self.meta.get(OWED))

    def reaches(self, steps: int) -> bool:
        """Whether nothing is left to do in a training of so many steps."""
        return self.step > steps or (self.step == steps and not self.owed)


def origin(config: Config, folder: RunFolder, level: str) -> Origin:
    """Decides by `resume`: auto (the latest checkpoint of run_dir, if any), never, or a folder of checkpoints.

    Args:
        level: of this run. A training does not go on from its rehearsal, which saw few steps and perhaps other data.

    Raises:
        UserError: the named folder holds no checkpoint or a damaged one, its recipe or seed is not this run's and may not
            change, or a rehearsal was asked for in the folder of a real training.
    """
    if config.resume == "never":
        return Origin()
    if config.resume == "auto":
        source = Checkpoints(folder.checkpoints)
        step = source.latest()
        if step is None:
            return Origin()
    else:
        source, step = locate(Path(config.resume), "resume")
    meta = source.meta(step)
    if config.resume == "auto" and meta["level"] != level:
        if level == "emulated":
            raise UserError(f"run_dir={folder.path} holds a training at step {step}; rehearse in another run_dir")
        return Origin(notes=(f"{folder.path} holds a rehearsal; the training starts afresh",))
    changed = refuse(identity(meta), identity(record(config)), config.allow_changed_recipe)
    source.verify(step)  # now, and not after minutes of planning and compiling
    return Origin(step, source, meta, tuple(f"changed since the checkpoint: {line}" for line in changed))


def record(config: Config) -> dict[str, Any]:
    """What a checkpoint says about the configuration that it was trained with."""
    return {"recipe": plain(config.recipe), "seed": config.seed}


def identity(meta: dict[str, Any]) -> dict[str, Any]:
    """The part of it that decides what is learned: not how a rehearsal is cut, what the first step began with, who reads."""
    recipe = {key: value for key, value in meta.get("recipe", {}).items() if key not in NOT_LEARNED}
    data = {key: value for key, value in recipe.get("data", {}).items() if key != "readers"}
    return {**recipe, **({"data": data} if "data" in recipe else {}), "seed": meta.get("seed")}
