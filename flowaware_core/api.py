"""The verbs: `plan` a task for a cluster, `apply` a plan to a task, `resize` a plan to fewer devices, `audit` what was compiled."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from flowaware_core import explain, versions
from flowaware_core.cluster.mesh import Axis, Mesh, meshes
from flowaware_core.cluster.model import Cluster, Device
from flowaware_core.cost.estimate import estimate
from flowaware_core.cost.unknown import unknown
from flowaware_core.drafting import alternative, drafted, prospects, shortfall
from flowaware_core.graph.placement import Choices, Placement, place
from flowaware_core.identity import differences, identity
from flowaware_core.outline import outline
from flowaware_core.plan import Plan, decode
from flowaware_core.program import Program
from flowaware_core.search.operators import Candidate
from flowaware_core.search.pins import Pin
from flowaware_core.search.prepared import Prepared
from flowaware_core.search.schedule import Trial, scheduled
from flowaware_core.search.space import fits
from flowaware_core.search.strategies import MOST_AXES, STRATEGIES, Planner, Result
from flowaware_core.step import Step, step_of
from flowaware_core.task import Schedule, Task, abstract

# The strategies that "auto" is shown beside; `fa.plan` with another strategy prices any of the others.
BASELINES = ("data", "fsdp", "tensor")


class DoesNotFit(Exception):
    """No plan fits in the memory of the devices; the sentence says how much is missing and the nearest thing that fits."""


def plan(
    task: Task | Prepared | Callable[..., Any],
    cluster: Cluster | Sequence[Any],
    *rest: Any,
    strategy: str = "auto",
    what_if: bool = False,
    pins: Sequence[Pin] = (),
    axes: int | None = MOST_AXES,
    beside: Sequence[str] = BASELINES,
) -> Plan:
    """Finds how to split a task over a cluster.

    Args:
        task: what to run. Where it leaves its schedule open, as those of `Training.task` do, micro-batches and recomputation
            are chosen where memory binds. A bare function is accepted too: `plan(step, args, cluster)`, where an argument whose
            leaves equal those of a result is taken as carried from call to call. A `Prepared` task is traced and reduced once
            for many clusters.
        cluster: the devices.
        strategy: "auto" searches; the others of `STRATEGIES` are what people write by hand and what other systems choose.
        what_if: plans for one more of the cluster's outermost members and for twice the memory too, and says what they would bring.
        pins: dimensions of arguments that shall be on a level of the cluster, whatever else is found.
        axes: the most axes that a mesh may have, besides that of one axis a level. On 8 nodes of 4 cards, 3 finds a plan of
            ResNet-152 that is 5 % faster than what 2 finds, and of AlphaFold2 14 %, in three times as long. None: of all
            meshes, in half a minute or several: the plan is then within `gap` of the best that any of them has.
        beside: what "auto" is shown beside, and never worse than by its estimate. Without any, planning a `Prepared` task again
            takes half as long; the search's own costs are never worse than those of a template either way.

    Returns:
        the plan, with predictions of its time, memory and collectives. Operators without a rule run whole on every device: a
        warning and the plan's notes say where they stand and what they cost.

    Raises:
        DoesNotFit: no plan of this strategy fits in memory.
        ValueError: unknown strategy, or a pin that no plan can follow.
    """
    if not isinstance(task, Task | Prepared):
        task, cluster = _bare(task, cluster), rest[0]
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}; allowed are {', '.join(STRATEGIES)}")
    assert isinstance(cluster, Cluster)

    prepared = task if isinstance(task, Prepared) else Prepared(task)

    def trial(schedule: Schedule, below: float | None = None) -> Trial:
        program, planner = prepared.on(schedule, cluster, pins, axes)
        if strategy != "auto":
            return Trial(program, planner, planner.plan(strategy))
        return Trial(program, planner, planner.glance(below) if below is not None else planner.first())

    begin = time.perf_counter()
    first = trial(prepared.task.schedule)
    found = scheduled(first, trial)
    program, planner = found.program, found.planner
    traced = 0.0 if isinstance(task, Prepared) else program.capture_s + program.analyse_s
    made, result = _planned(program, planner, strategy, begin + traced, beside)
    made = dataclasses.replace(made, made_for=identity(first.program, cluster, strategy))
    if found is not first and np.isfinite(first.planner.least):
        # Parts of the batch and what is computed again only add to what the whole at once takes.
        made = dataclasses.replace(made, searched={**made.searched, "least_s": first.planner.least})
    for note in unknown(program.graph, cluster.device):
        warnings.warn(str(note), stacklevel=2)
    return dataclasses.replace(made, what_if=prospects(program, planner, strategy, result)) if what_if else made


def changes(
    plan: Plan, task: Task, cluster: Cluster, strategy: str = "auto", axes: int | None = MOST_AXES
) -> tuple[str, ...]:
    """What has changed since a plan was made, a line each: program, cluster, strategy or the version of jax.

    Where all meshes are wanted, by `axes` None, that only some were searched is a change too.

    A plan of which nothing has changed can be used again without a search; what `resize` or `compare` gave names no origin,
    and a plan with pins or more axes than usual is the caller's to remember.
    """
    found = differences(plan.made_for, identity(Program.of(task), cluster, strategy))
    searched, there = plan.searched.get("meshes", 0), len(meshes(cluster))
    if axes is None and strategy == "auto" and searched < there:
        return (*found, f"meshes: {searched} of {there} were searched")
    return found


def compare(task: Task, cluster: Cluster, strategies: Sequence[str] = STRATEGIES) -> dict[str, Plan | DoesNotFit]:
    """The plan of each strategy, or why it has none; the task is traced once."""
    program = Program.of(task)
    planner = Planner(program.graph, program.structure, cluster)
    found: dict[str, Plan | DoesNotFit] = {}
    for strategy in strategies:
        try:
            found[strategy] = _planned(program, planner, strategy, time.perf_counter(), strategies)[0]
        except DoesNotFit as error:
            found[strategy] = error
    return found


def _planned(
    program: Program, planner: Planner, strategy: str, begin: float, beside: Sequence[str] = BASELINES
) -> tuple[Plan, Result]:
    """Searches, which began at `begin`, and prices what "auto" is shown beside, which it is never worse than."""
    cluster, result = planner.cluster, planner.plan(strategy)
    middle = time.perf_counter()
    names = [name for name in beside if name != "auto"] if strategy == "auto" else []
    result = planner.against(result, names)
    if not result.best.fits:
        raise DoesNotFit(shortfall(program, planner, result.best))
    others = [planner.plan(name).best for name in names]
    spent = {
        "capture": program.capture_s,
        "analyse": program.analyse_s,
        "search": middle - begin,
        "baselines": time.perf_counter() - middle,
    }
    alternatives = tuple(map(alternative, others))
    return drafted(program, cluster.name, cluster.device, strategy, result, spent, alternatives), result


def describe(what: Plan | Task | Callable[..., Any], args: Sequence[Any] = ()) -> str:
    """A few dozen lines of plain text for a person.

    Args:
        what: a plan; or a task, or a bare function with its `args`: then its logical dimensions, where they conflict, the blocks it
            repeats and its backbone, which is what a plan is made from.
        args: of a bare function, arrays or shapes.
    """
    if isinstance(what, Plan):
        return explain.describe(what)
    return outline(Program.of(what if isinstance(what, Task) else _bare(what, args)))


def resize(original: Plan, task: Task, axes: Mapping[str, int]) -> Plan:
    """The same choices on a mesh with other axis sizes and for a task with another batch: what a rehearsal runs.

    Args:
        original: the plan whose choices are kept.
        task: the same program with sizes that the smaller mesh divides.
        axes: axis name -> new size; the others keep theirs.

    Raises:
        ValueError: another program, an unknown axis, or a dimension that the axes on it do not divide.
    """
    program = Program.of(task.scheduled(Schedule.from_json(original.schedule)))
    _same_program(original, program)
    mesh = _mesh(original).resized(axes)
    choices = _choices(original, program)
    device = _device(original)
    placed = _placed(program, choices, mesh)
    found = estimate(program.graph, placed, mesh, device)
    candidate = Candidate(original.requested, mesh, choices, found.step_s, found, device.usable_bytes)
    seconds = {"capture": program.capture_s, "analyse": program.analyse_s, "search": 0.0}
    return drafted(program, original.cluster, device, original.requested, Result(candidate), seconds, ())


def apply(
    plan: Plan, task: Task | Callable[..., Any], args: Sequence[Any] = (), devices: Sequence[Any] | None = None
) -> Step:
    """Makes the split function that a plan describes.

    Args:
        plan: made for this task, perhaps on another machine.
        task: the task, or the bare function with its `args`.
        devices: as many as the plan has, in the order of its mesh; the first of `jax.devices()` if not given.

    Raises:
        ValueError: the plan is for another program, or there are too few devices.
    """
    if not isinstance(task, Task):
        task = _bare(task, args)
    program = Program.of(task.scheduled(Schedule.from_json(plan.schedule)))
    _same_program(plan, program)
    available = list(jax.devices() if devices is None else devices)
    if len(available) < plan.num_devices:
        raise ValueError(
            f"the plan needs {plan.num_devices} devices and {len(available)} are here; resize the plan or emulate devices"
        )
    mesh = _mesh(plan)
    placed = _placed(program, _choices(plan, program), mesh)
    real = versions.mesh(np.array(available[: plan.num_devices]).reshape(mesh.sizes), mesh.names)
    return step_of(program, placed, real)


def _bare(function: Callable[..., Any], args: Any) -> Task:
    """A task of which nothing is said: arguments whose leaves equal those of a result are carried."""
    arguments = tuple(abstract(argument) for argument in args)
    returned = jax.eval_shape(function, *arguments)
    results = returned if isinstance(returned, tuple) else (returned,)
    carried: dict[int, int] = {}
    for position, argument in enumerate(arguments):
        for index, result in enumerate(results):
            structure: Any = jax.tree.structure(argument)
            same = structure == jax.tree.structure(result) and jax.tree.leaves(argument)
            if same and index not in carried.values() and _equal_leaves(argument, result):
                carried[position] = index
                break
    return Task(function, arguments, carried=carried, name=getattr(function, "__name__", "task"))


def _equal_leaves(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs)


def _same_program(plan: Plan, program: Program) -> None:
    if plan.fingerprint != program.fingerprint:
        raise ValueError(
            f"the plan is for program {plan.fingerprint} and this task is program {program.fingerprint}: "
            "the model, the optimizer or the version of jax changed; plan again"
        )


def _mesh(plan: Plan) -> Mesh:
    links = ((plan.links[name]["bandwidth_bytes_per_s"], plan.links[name]["latency_s"]) for name in plan.axes)
    return Mesh(tuple(Axis(name, size, *link) for (name, size), link in zip(plan.axes.items(), links, strict=True)))


def _device(plan: Plan) -> Device:
    return Device(**{key: value for key, value in plan.device.items() if key != "usable_bytes"})


def _choices(plan: Plan, program: Program) -> Choices:
    names = tuple(plan.axes)
    groups = decode(plan.choices["groups"], names)
    count = len(program.structure.groups)
    if sorted(groups) != list(range(count)):
        raise ValueError(f"the plan describes {len(groups)} groups of tensors and this program has {count}; plan again")
    return Choices(
        tuple(groups[index] for index in range(count)),
        decode(plan.choices["operators"], names),
        decode(plan.choices["views"], names),
    )


def _placed(program: Program, choices: Choices, mesh: Mesh) -> Placement:
    for index, (group, assignment) in enumerate(zip(program.structure.groups, choices.groups, strict=True)):
        for dim, length in enumerate(group.sizes):
            cut = int(np.prod([size for size, chosen in zip(mesh.sizes, assignment, strict=True) if chosen == dim]))
            if not fits(length, cut, group.shardable[dim]):
                raise ValueError(
                    f"dimension {dim} of group {index}, {length} long, does not divide into {cut} parts; "
                    f"choose sizes that the mesh {dict(zip(mesh.names, mesh.sizes, strict=True))} divides"
                )
    return place(program.graph, program.structure, choices)


__all__ = [
    "MOST_AXES",
    "STRATEGIES",
    "DoesNotFit",
    "Pin",
    "Prepared",
    "Step",
    "apply",
    "changes",
    "compare",
    "describe",
    "plan",
    "resize",
]
