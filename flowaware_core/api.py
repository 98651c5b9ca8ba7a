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
from flowaware_core.cluster.mesh import Axis, Mesh
from flowaware_core.cluster.model import GIB, Cluster, Device
from flowaware_core.cost import communication
from flowaware_core.cost.estimate import Estimate, estimate
from flowaware_core.cost.memory import Usage
from flowaware_core.cost.profile import profile
from flowaware_core.cost.unknown import unknown
from flowaware_core.execute import spmd
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Choices, Placement, place
from flowaware_core.graph.structure import Structure
from flowaware_core.identity import differences, identity
from flowaware_core.outline import outline
from flowaware_core.plan import Alternative, Plan, Predicted, WhatIf, decode, encode
from flowaware_core.program import Program
from flowaware_core.search.operators import Candidate
from flowaware_core.search.pins import Pin
from flowaware_core.search.prepared import Prepared
from flowaware_core.search.schedule import Trial, scheduled
from flowaware_core.search.space import fits
from flowaware_core.search.strategies import MOST_AXES, STRATEGIES, Planner, Result
from flowaware_core.search.templates import batch_classes
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
    axes: int = MOST_AXES,
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
            ResNet-152 that is 5 % faster than what 2 finds, in three times as long.

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

    def trial(schedule: Schedule) -> Trial:
        program, planner = prepared.on(schedule, cluster, pins, axes)
        return Trial(program, planner, planner.plan(strategy))

    begin = time.perf_counter()
    first = trial(prepared.task.schedule)
    found = scheduled(first, trial)
    program, planner = found.program, found.planner
    traced = 0.0 if isinstance(task, Prepared) else program.capture_s + program.analyse_s
    made, result = _planned(program, planner, strategy, begin + traced)
    made = dataclasses.replace(made, made_for=identity(first.program, cluster, strategy))
    for note in unknown(program.graph, cluster.device):
        warnings.warn(str(note), stacklevel=2)
    return dataclasses.replace(made, what_if=_what_if(program, planner, strategy, result)) if what_if else made


def changes(plan: Plan, task: Task, cluster: Cluster, strategy: str = "auto") -> tuple[str, ...]:
    """What has changed since a plan was made, a line each: program, cluster, strategy or the version of jax.

    A plan of which nothing has changed can be used again without a search; what `resize` or `compare` gave names no origin,
    and a plan with pins or more axes than usual is the caller's to remember.
    """
    return differences(plan.made_for, identity(Program.of(task), cluster, strategy))


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
        raise DoesNotFit(_shortfall(program, cluster, result.best))
    others = [planner.plan(name).best for name in names]
    spent = {
        "capture": program.capture_s,
        "analyse": program.analyse_s,
        "search": middle - begin,
        "baselines": time.perf_counter() - middle,
    }
    alternatives = tuple(map(_alternative, others))
    return _plan(program, cluster.name, cluster.device, strategy, result, spent, alternatives), result


def _what_if(program: Program, planner: Planner, strategy: str, result: Result) -> tuple[WhatIf, ...]:
    """The step on a cluster with one more of its outermost members, and with twice the memory where memory binds."""
    cluster = planner.cluster
    outer, device = cluster.levels[0], cluster.device
    levels = (dataclasses.replace(outer, size=outer.size + 1), *cluster.levels[1:])
    changes = {f"{outer.size + 1} {outer.name}s instead of {outer.size}": dataclasses.replace(cluster, levels=levels)}
    twice = f"twice the memory, {2 * device.memory_bytes / GIB:.0f} GiB a device"
    if result.limited:
        changes[twice] = dataclasses.replace(
            cluster, device=dataclasses.replace(device, memory_bytes=2 * device.memory_bytes)
        )
    found = []
    for change, other in changes.items():
        best = planner.on(other, planner.axes).plan(strategy).best
        found.append(WhatIf(change, best.estimate.step_s if best.fits else None))
    if not result.limited:
        found.append(WhatIf(twice, result.best.estimate.step_s))
    return tuple(found)


def _limits(candidate: Candidate) -> dict[str, float]:
    """Seconds of a step by what they are spent on."""
    found, mesh = candidate.estimate, candidate.mesh
    spent = {"compute": found.compute_s}
    for move in found.trace.communications:
        name = " x ".join(mesh.names[axis] for axis in sorted(move.axes))
        spent[name] = spent.get(name, 0.0) + move.times * communication.seconds(move.kind, move.bytes, move.axes, mesh)
    return dict(sorted(spent.items(), key=lambda item: -item[1]))


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
    return _plan(program, original.cluster, device, original.requested, Result(candidate), seconds, ())


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """A task split as planned: call it like the task's function.

    Attributes:
        mesh: the devices.
        in_shardings, out_shardings: as the task's arguments and results, a `NamedSharding` per leaf.
        task: what is run.
        jitted: the function under `jax.jit`.
        graph, placement: the captured program and where each of its values lies.
    """

    mesh: jax.sharding.Mesh
    in_shardings: tuple[Any, ...]
    out_shardings: Any
    task: Task
    jitted: Any
    graph: Graph
    placement: Placement

    def __call__(self, *args: Any) -> Any:
        """One call on arrays; the memory of carried arguments goes to the results."""
        leaves = jax.tree.leaves(args)
        if self.task.carried and len({id(leaf) for leaf in leaves}) < len(leaves):
            args = _apart(args)
        return self.jitted(*args)

    def lower(self) -> jax.stages.Lowered:
        """The program for abstract arguments; makes no array."""
        return self.jitted.lower(*self.task.args)

    def compile(self, optimise: bool = True) -> jax.stages.Compiled:
        """Compiles ahead of time, from abstract arguments.

        Args:
            optimise: False makes machine code in a third of the time that runs slower; collectives and memory are the
                same, so it is what an audit of a cluster that is not here needs.
        """
        platform = self.mesh.devices.flat[0].platform
        return self.lower().compile(compiler_options=versions.compiler_options(platform, optimise))


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
    return _step(program, placed, real)


def _step(program: Program, placed: Placement, mesh: jax.sharding.Mesh) -> Step:
    graph, task = program.graph, program.task
    run = spmd.replay(graph, placed, mesh)

    def step(*args: Any) -> Any:
        return jax.tree.unflatten(graph.out_tree, run(*jax.tree.leaves(args)))

    inputs = [spmd.sharding(placed.tensors[tensor], mesh) for tensor in graph.inputs]
    outputs = [
        spmd.sharding(placed.tensors[output] if isinstance(output, int) else (), mesh) for output in graph.outputs
    ]
    for index, output in graph.carried.items():
        outputs[output] = inputs[index]
    in_shardings = jax.tree.unflatten(graph.in_tree, inputs)
    out_shardings = jax.tree.unflatten(graph.out_tree, outputs)
    jitted = jax.jit(
        step, in_shardings=in_shardings, out_shardings=out_shardings, donate_argnums=tuple(sorted(task.carried))
    )
    return Step(mesh, in_shardings, out_shardings, task, jitted, graph, placed)


def _apart(args: Sequence[Any]) -> Any:
    """The arguments with a copy of every array that was met before: memory can be given away once only.

    The CPU's runtime of jax 0.10 does not survive an array that is donated twice.
    """
    met: set[int] = set()

    def own(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and id(leaf) in met:
            return leaf.copy()
        met.add(id(leaf))
        return leaf

    return jax.tree.map(own, args)


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


def _plan(
    program: Program,
    cluster: str,
    device: Device,
    requested: str,
    result: Result,
    seconds: Mapping[str, float],
    alternatives: tuple[Alternative, ...],
) -> Plan:
    candidate = result.best
    mesh, choices, found = candidate.mesh, candidate.choices, candidate.estimate
    return Plan(
        task=program.task.name,
        cluster=cluster,
        device={**dataclasses.asdict(device), "usable_bytes": device.usable_bytes},
        requested=requested,
        strategy=sentence(program, candidate),
        axes=dict(zip(mesh.names, mesh.sizes, strict=True)),
        links={
            axis.name: {"bandwidth_bytes_per_s": axis.bandwidth_bytes_per_s, "latency_s": axis.latency_s}
            for axis in mesh.axes
        },
        choices={
            "groups": encode(dict(enumerate(choices.groups)), mesh.names),
            "operators": encode(choices.operators, mesh.names),
            "views": encode(choices.views, mesh.names),
        },
        schedule=program.task.schedule.to_json(),
        picture=profile(program.graph, place(program.graph, program.structure, choices), mesh, device, found),
        fingerprint=program.fingerprint,
        operators=program.graph.num_operators,
        seconds=dict(seconds),
        predicted=_predicted(found),
        gap=result.gap,
        limits=_limits(candidate),
        searched={"meshes": result.meshes, "digits": round(result.digits)} if result.digits else {},
        alternatives=alternatives,
        notes=tuple(map(str, unknown(program.graph, device))),
    )


def _predicted(found: Estimate) -> Predicted:
    return Predicted(
        step_s=found.step_s,
        compute_s=found.compute_s,
        communication_s=found.communication_s,
        flops=found.flops,
        memory=_memory(found.usage),
        memory_on_cpu=_memory(found.usage_on_cpu()),
        collectives=found.collectives,
    )


def _memory(usage: Usage) -> dict[str, int]:
    return {**dataclasses.asdict(usage), "total": usage.total}


def _alternative(candidate: Candidate) -> Alternative:
    axes = dict(zip(candidate.mesh.names, candidate.mesh.sizes, strict=True))
    found = candidate.estimate
    return Alternative(candidate.strategy, axes, found.step_s, found.usage.total, candidate.fits)


def sentence(program: Program, candidate: Candidate) -> str:
    """What is split over what: the examples, the state, and the widths of what lies between."""
    graph, structure, mesh, choices = program.graph, program.structure, candidate.mesh, candidate.choices
    placed = place(graph, structure, choices)
    batch = batch_classes(graph, structure)
    parts = []
    examples, widths = _activation_axes(structure, choices, batch, len(mesh.axes))
    if examples:
        parts.append("examples over " + _names(mesh, examples))
    state = [graph.inputs[index] for index in graph.carried]
    whole = sum(graph.tensors[t].bytes for t in state)
    for axis in range(len(mesh.axes)):
        cut = sum(graph.tensors[t].bytes for t in state if any(axis in axes for axes in placed.tensors[t]))
        if cut:
            parts.append(f"{100 * cut / whole:.0f} % of the state over {mesh.names[axis]}")
    if widths:
        parts.append("other dimensions of activations over " + _names(mesh, widths))
    return "; ".join(parts) if parts else "everything on every device"


def _activation_axes(
    structure: Structure, choices: Choices, batch: frozenset[int], count: int
) -> tuple[list[int], list[int]]:
    """Axes that cut examples in most of the memory of batched tensors, and axes that cut something else in them."""
    examples, others = [0.0] * count, [0.0] * count
    total = 0.0
    for index, group in enumerate(structure.groups):
        if not any(c in batch for c in structure.classes[index]):
            continue
        weight = float(np.prod(group.sizes)) * len(group.members)
        total += weight
        for axis, dim in enumerate(choices.groups[index]):
            if dim >= 0:
                (examples if structure.classes[index][dim] in batch else others)[axis] += weight
    return (
        [axis for axis in range(count) if examples[axis] > 0.5 * total],
        [axis for axis in range(count) if others[axis] > 0.05 * total],
    )


def _names(mesh: Mesh, axes: Sequence[int]) -> str:
    return " x ".join(f"{mesh.names[axis]} ({mesh.sizes[axis]})" for axis in axes)


def _shortfall(program: Program, cluster: Cluster, best: Candidate) -> str:
    """How much is missing, and the nearest cluster on which the same strategy fits."""
    needed, usable = best.estimate.usage.total, cluster.device.usable_bytes
    text = (
        f"{program.task.name} does not fit on {cluster.name}: the leanest plan found ({best.strategy}) needs {needed / GIB:.2f} GiB"
        f" a device and {usable / GIB:.2f} GiB are usable"
    )
    outer = cluster.levels[0]
    for factor in (2, 4, 8):
        levels = (dataclasses.replace(outer, size=outer.size * factor), *cluster.levels[1:])
        larger = dataclasses.replace(cluster, levels=levels)
        if Planner(program.graph, program.structure, larger).plan(best.strategy).best.fits:
            return f"{text}. It would fit on {outer.size * factor} {outer.name}s instead of {outer.size}"
    memory = needed / cluster.device.usable_fraction / GIB
    return f"{text}. It would fit on devices with {memory:.1f} GiB of memory; a smaller batch needs less"


def _same_program(plan: Plan, program: Program) -> None:
    if plan.fingerprint != program.fingerprint:
        raise ValueError(
            f"the plan is for program {plan.fingerprint} and this task is program {program.fingerprint}: "
            "the model, the optimizer or the version of jax changed; plan again"
        )


def _mesh(plan: Plan) -> Mesh:
    return Mesh(tuple(Axis(name, size, **plan.links[name]) for name, size in plan.axes.items()))


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
