"""`python -m zoo.train recipe=NAME cluster=NAME`: plans a training for a cluster, proves the plan, and trains."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence

import jax

import flowaware_core as fa
from zoo.config import Config, compose
from zoo.errors import DONE, exit_code
from zoo.runtime import devices, launcher, processes
from zoo.runtime.devices import Machine
from zoo.runtime.processes import Group
from zoo.runtime.signals import StopSignals
from zoo.training import agreement, program, rehearsal, words
from zoo.training.environment import environment
from zoo.training.fit import fit
from zoo.training.job import Job, prepare, rows_of
from zoo.training.origin import Origin
from zoo.training.program import Program
from zoo.training.rehearsal import Sizes
from zoo.training.run_folder import check_place
from zoo.training.state import num_bytes

MIB = 2**20


def main(argv: list[str]) -> int:
    """Trains; the README says what it prints and writes.

    Raises:
        UserError, DoesNotFit, Stopped: `zoo.errors` turns them into exit codes.
    """
    config = compose(argv)
    group = processes.here()
    if launcher.needed(config.processes, group):
        machine = devices.settle(config.cluster, Group(count=config.processes, launched=True))
        prepare(config, machine.level, config.processes, first=False)  # says what is wrong once, before anything starts
        return launcher.launch([sys.executable, "-m", "zoo.train", *argv], config.processes)
    machine = devices.settle(config.cluster, group)
    processes.join(group)
    with StopSignals() as stop:
        train(config, machine, stop.wanted, argv)
    return DONE


def train(config: Config, machine: Machine, stopped: Callable[[], bool], argv: Sequence[str]) -> None:
    """One training, from the checks to the last checkpoint.

    Args:
        config: the configuration.
        machine: what the named cluster runs on.
        stopped: whether a signal asked this process to stop.
        argv: the words of the command, for the record.
    """
    job = prepare(config, machine.level, jax.process_count(), first=jax.process_index() == 0)
    if job.origin.reaches(job.steps):
        return job.say(words.finished(config, job.origin.step, job.steps))
    for sentence in (machine.sentence, job.recipe.summary(), *job.origin.notes):
        job.say(sentence)
    with job.folder.held():
        while (onward := run(job, machine, stopped, argv)) is not None:
            job.say(f"step {onward.step}: {job.recipe.summary()}; planned again, with another program")
            job = dataclasses.replace(job, task=job.recipe.task(), origin=onward)


def run(job: Job, machine: Machine, stopped: Callable[[], bool], argv: Sequence[str]) -> Origin | None:
    """A checked job: planned, audited, trained; returns from where the next program goes on, where this one is outgrown."""
    config = job.config
    known = program.kept(job.folder, job.task, machine.cluster, config, job.say)
    plan = program.planned(job.task, machine.cluster, config, known=known)
    if job.rehearses:  # whether the plan fits is worth more than whether this machine could try it
        check_place(config.run_dir, job.saved_bytes)
    leave_if(stopped)
    full = Sizes(plan.mesh["axes"], rows_of(job.task))
    small = rehearsed_sizes(job, full, plan.schedule["micro_batches"]) if job.rehearses else full
    changed = rehearsal.changes(full, small)
    facts = environment(words.command("zoo.train", argv), job.level, jax.devices(), {"rehearsal": changed})
    program.write_plan(job.folder, config, plan, facts)
    job.say(fa.describe(plan))
    everywhere = program.spread(jax.devices(), full.num_devices)
    ready = program.compiled(plan, job.task, everywhere, job.say, runs=not changed)
    program.audited(ready, job.folder, job.say)
    leave_if(stopped)
    if job.rehearses:
        job.say(words.rehearsal(machine.cluster.name, job.steps, small.num_devices, changed))
        ready = shrunk(job, ready, small) if changed else ready
    onward = fit(job, ready, stopped)
    if onward is None and job.rehearses:
        job.say(words.for_the_cluster(config, argv))
    return onward


def leave_if(stopped: Callable[[], bool]) -> None:
    """Ends a run that was told to stop before its first step: there is nothing to save."""
    if stopped():
        raise KeyboardInterrupt


def rehearsed_sizes(job: Job, full: Sizes, parts: int) -> Sizes:
    """The plan's sizes, cut to the memory of this host; each of so many parts of the batch is as large as a batch of one part."""
    return rehearsal.shrink(
        full,
        job.config.recipe.rehearsal.examples_per_device * parts,
        state_bytes=num_bytes(job.task.args[0]),
        free_bytes=agreement.smallest(devices.free_host_memory() // MIB) * MIB,
        processes=jax.process_count(),
    )


def shrunk(job: Job, full: Program, small: Sizes) -> Program:
    """The same plan with smaller axes and batch, compiled on its own."""
    task = job.recipe.task(small.global_batch)
    plan = fa.resize(full.plan, task, axes=small.axes)
    return program.compiled(plan, task, program.spread(jax.devices(), small.num_devices), job.say)


def command(argv: list[str]) -> int:
    """`main` with exit codes for its errors; one of several processes ends here."""
    code = exit_code(main)(argv)
    processes.leave(code, processes.here())
    return code


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
