"""From a task to a program that runs: planned, written down, compiled ahead of time, and held against the plan."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import yaml
from jax.experimental import multihost_utils

import flowaware_core as fa
from zoo.config import Config, plain
from zoo.training.run_folder import RunFolder

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Program:
    """A step that is ready to run.

    Attributes:
        task: what it computes, and on how many examples.
        plan: how it is split.
        step: gives the shardings of arguments and results.
        compiled: runs it: `(state, batch) -> (state, metrics)`.
    """

    task: fa.Task
    plan: fa.Plan
    step: fa.Step
    compiled: Any


def planned(
    task: fa.Task, cluster: fa.Cluster, config: Config, what_if: bool = False, known: fa.Plan | None = None
) -> fa.Plan:
    """The plan, the same on all processes: the first one solves and the others are told. `what_if` as in `fa.plan`.

    Args:
        config: says by which strategy, and over which meshes.
        known: a plan for this very task and cluster, which is then not searched for again.

    Raises:
        DoesNotFit: no plan of this strategy fits in memory (on every process).
    """

    def found_here() -> fa.Plan:
        return known or fa.plan(task, cluster, strategy=config.strategy, what_if=what_if, axes=most_axes(config))

    if jax.process_count() == 1:
        return found_here()
    found: dict[str, Any] = {}
    if jax.process_index() == 0:
        try:
            plan = found_here()
            found = {"plan": plan.to_json(), "hash": plan.hash}
        except fa.DoesNotFit as error:
            found = {"does not fit": str(error)}
            told(found)
            raise
    found = told(found)
    if "does not fit" in found:
        raise fa.DoesNotFit(found["does not fit"])
    plan = fa.Plan.from_json(found["plan"])
    assert plan.hash == found["hash"], f"this process read plan {plan.hash}, and process 0 made {found['hash']}"
    return plan


def most_axes(config: Config) -> int | None:
    """The most axes of a mesh that is searched; None for all meshes."""
    return None if config.meshes == "all" else fa.MOST_AXES


def kept(folder: RunFolder, task: fa.Task, cluster: fa.Cluster, config: Config, say: Say) -> fa.Plan | None:
    """The plan that lies in a run folder, where nothing it was made for has changed; what has is said."""
    file = folder.path / "plan.json"
    if jax.process_index() or not file.is_file():
        return None
    try:
        plan = fa.Plan.from_json(json.loads(file.read_text()))
    except ValueError as error:
        say(f"{file} cannot be used again: {error}; planning anew")
        return None
    changes = fa.changes(plan, task, cluster, config.strategy, most_axes(config))
    if changes:
        say(f"{file} was made for something else, planning anew:\n  " + "\n  ".join(changes))
        return None
    say(f"program and cluster are those of {file}: that plan is used again")
    return plan


def told(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message of process 0, on all processes; the others' own is ignored. All call it together."""
    data = np.frombuffer(json.dumps(message).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(data.size)))
    room = data if jax.process_index() == 0 else np.zeros(size, np.uint8)
    # Old versions hand the bytes back as 32-bit numbers.
    return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(room)).astype(np.uint8).tobytes())


def write_plan(folder: RunFolder, config: Config, plan: fa.Plan, facts: Mapping[str, Any]) -> None:
    """config.yaml, plan.json, .txt and .html, predicted_trace.json, environment.json: what is known before anything is compiled."""
    folder.write("config.yaml", yaml.safe_dump(plain(config), sort_keys=False))
    folder.write("plan.json", plan.to_json())
    folder.write("plan.txt", fa.describe(plan) + "\n")
    folder.write("plan.html", fa.page(plan))
    folder.write("predicted_trace.json", fa.timeline(plan))
    folder.write("environment.json", facts)


def compiled(plan: fa.Plan, task: fa.Task, devices: Sequence[jax.Device], say: Say, runs: bool = True) -> Program:
    """Compiles the planned step for the devices, from abstract arguments: no array is made.

    Args:
        plan, task: what to compile.
        devices: as many as the plan has.
        say: prints how long it took.
        runs: whether it will run here; one that is only audited is compiled faster, with the same collectives and memory.
    """
    begin = time.perf_counter()
    step = fa.apply(plan, task, devices=devices)
    program = Program(task, plan, step, step.compile(optimise=runs))
    say(f"compiled the step for {step.mesh.size} devices in {time.perf_counter() - begin:.1f} s")
    return program


def audited(program: Program, folder: RunFolder, say: Say) -> fa.Audit:
    """Holds what was compiled against what was planned; writes audit.json and prints it."""
    audit = fa.audit(program.compiled, program.plan, program.step)
    folder.write("audit.json", audit.to_json())
    say(audit.describe())
    return audit


def spread(devices: Sequence[jax.Device], count: int) -> list[jax.Device]:
    """The first `count` devices, evenly from all processes, in the order given."""
    per_process = count // len({device.process_index for device in devices})
    taken: dict[int, int] = {}
    chosen = []
    for device in devices:
        taken[device.process_index] = taken.get(device.process_index, 0) + 1
        if taken[device.process_index] <= per_process:
            chosen.append(device)
    assert len(chosen) == count, (len(chosen), count)
    return chosen
