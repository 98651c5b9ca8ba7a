"""`python -m zoo.plan recipe=NAME cluster=NAME`: a plan; audit=true compiles it, compare=all shows the others too."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jax

import flowaware_core as fa
from zoo.config import Config, compose
from zoo.errors import DONE, UserError, exit_code
from zoo.runtime import devices
from zoo.runtime.devices import Machine
from zoo.runtime.processes import Group
from zoo.training import comparison, program, words
from zoo.training.environment import environment
from zoo.training.job import check_strategy, load
from zoo.training.run_folder import RunFolder, check_place


def main(argv: list[str]) -> int:
    """Plans and writes config.yaml, plan.json, plan.txt and environment.json; needs no accelerator and no data.

    Raises:
        UserError: an option is wrong. DoesNotFit: no plan fits in the cluster's memory.
    """
    config = compose(argv)
    if config.audit_target is not None:
        target(config, 1)
    check_strategy(config.strategy)
    check_place(config.run_dir)
    plan(config, devices.settle(config.cluster, Group()), argv)
    return DONE


def plan(config: Config, machine: Machine, argv: Sequence[str]) -> None:
    """Plans; compares and audits where asked to.

    Args:
        config: the configuration.
        machine: what the named cluster runs on.
        argv: the words of the command, for the record.
    """
    recipe, folder = load(config.recipe, config.data_dir, machine.level), RunFolder(config.run_dir)
    task = recipe.task()
    print(recipe.summary())
    if config.compare == "all":
        comparison.show(comparison.compare(task, machine.cluster))
    with folder.held():
        write(config, machine, argv, task, folder)


def write(config: Config, machine: Machine, argv: Sequence[str], task: fa.Task, folder: RunFolder) -> None:
    """Plans into a folder, and audits there where asked to."""
    found = program.planned(task, machine.cluster, config, what_if=config.compare == "all")
    level = "audited" if config.audit else "predicted"
    facts = environment(words.command("zoo.plan", argv), level, jax.devices() if config.audit else (), {})
    program.write_plan(folder, config, found, facts)
    print(fa.describe(found), flush=True)
    if config.audit:
        cards = jax.devices() if config.audit_target is None else target(config, found.num_devices)
        program.audited(program.compiled(found, task, cards, print, runs=False), folder, print)
    print(f"written to {folder.path}")


def target(config: Config, count: int) -> list[jax.Device]:
    """Cards that are not here, to compile for.

    Raises:
        UserError: their compiler is not installed.
    """
    try:
        return fa.unattached(str(config.audit_target), count)
    except ValueError as error:
        raise UserError(str(error)) from None


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
