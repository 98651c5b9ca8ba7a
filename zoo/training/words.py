"""What a training says about itself: the command that was typed, what a rehearsal leaves out, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from zoo.config import Config

ONLY_REHEARSED = ("steps=", "processes=", "resume=", "recipe.rehearsal.")
"""Options that shape a rehearsal and have no place in the real training's command."""


def command(module: str, argv: Sequence[str]) -> str:
    """The command as it can be typed again."""
    return f"python -m {module} {shlex.join(argv)}"


def rehearsal(cluster: str, steps: int, devices: int, changed: Mapping[str, Sequence[int]]) -> str:
    """What is rehearsed and which sizes are not the plan's."""
    sizes = ", ".join(f"{name} {full} -> {small}" for name, (full, small) in changed.items()) or "all sizes as planned"
    return (
        f"rehearsal of {cluster}: {steps} steps on {devices} virtual devices ({sizes}); "
        "its figures are of level emulated, no speed of an accelerator"
    )


def finished(config: Config, step: int, steps: int) -> str:
    """Why a finished run does nothing when it is started again."""
    done = f"{config.run_dir} is finished: {step} of {steps} steps are done"
    return f"{done}; steps=N with a larger N goes on, resume=never starts again, another run_dir keeps both"


def for_the_cluster(config: Config, argv: Sequence[str]) -> str:
    """How to train for real what was rehearsed here."""
    kept = [word for word in argv if not word.startswith(ONLY_REHEARSED)]
    if config.cluster.kind == "emulated":
        kept = [word for word in kept if not word.startswith("cluster.")]
        kept = ["cluster=local" if word.startswith("cluster=") else word for word in kept]
        return f"to train for real, on the devices of this machine: {command('zoo.train', kept)}"
    start = "once per host, by srun or with ZOO_PROCESS_COUNT, ZOO_PROCESS_INDEX and ZOO_COORDINATOR set"
    return f"to train for real, on {config.cluster.name} ({start}): {command('zoo.train', kept)}"
