"""From what a search has found to a plan, and what is said of it: its strategy in words, what limits it, what would fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import GIB, Device
from flowaware_core.cost import communication
from flowaware_core.cost.estimate import Estimate
from flowaware_core.cost.memory import Usage
from flowaware_core.cost.profile import profile
from flowaware_core.cost.unknown import unknown
from flowaware_core.graph.placement import Choices, Placement, place
from flowaware_core.graph.structure import Structure
from flowaware_core.plan import Alternative, Plan, Predicted, WhatIf, encode
from flowaware_core.program import Program
from flowaware_core.search.operators import Candidate
from flowaware_core.search.strategies import Planner, Result
from flowaware_core.search.templates import batch_classes


def drafted(
    program: Program,
    cluster: str,
    device: Device,
    requested: str,
    result: Result,
    seconds: Mapping[str, float],
    alternatives: tuple[Alternative, ...],
) -> Plan:
    """The plan that a search has come to, with what it predicts and what it was chosen over."""
    candidate = result.best
    mesh, choices, found = candidate.mesh, candidate.choices, candidate.estimate
    placed = place(program.graph, program.structure, choices)
    return Plan(
        task=program.task.name,
        cluster=cluster,
        device={**device.to_json(), "usable_bytes": device.usable_bytes},
        requested=requested,
        strategy=sentence(program, candidate, placed),
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
        picture=profile(program.graph, placed, mesh, device, found),
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


def alternative(candidate: Candidate) -> Alternative:
    axes = dict(zip(candidate.mesh.names, candidate.mesh.sizes, strict=True))
    found = candidate.estimate
    return Alternative(candidate.strategy, axes, found.step_s, found.usage.total, candidate.fits)


def sentence(program: Program, candidate: Candidate, placed: Placement) -> str:
    """What is split over what: the examples, the state, and the widths of what lies between."""
    graph, structure, mesh, choices = program.graph, program.structure, candidate.mesh, candidate.choices
    batch = batch_classes(graph, structure)
    parts = []
    examples, widths = _activation_axes(structure, choices, batch, len(mesh.axes))
    if examples:
        parts.append("examples over " + _names(mesh, examples))
    state = [*(graph.inputs[index] for index in graph.carried), *graph.hosted]
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


def shortfall(program: Program, planner: Planner, best: Candidate) -> str:
    """How much is missing, and the nearest cluster on which the same strategy fits."""
    cluster = planner.cluster
    needed, usable = best.estimate.usage.total, cluster.device.usable_bytes
    text = (
        f"{program.task.name} does not fit on {cluster.name}: the leanest plan found ({best.strategy}) needs {needed / GIB:.2f} GiB"
        f" a device and {usable / GIB:.2f} GiB are usable"
    )
    outer = cluster.levels[0]
    for factor in (2, 4, 8):
        levels = (dataclasses.replace(outer, size=outer.size * factor), *cluster.levels[1:])
        larger = dataclasses.replace(cluster, levels=levels)
        # What people write by hand is found at once, and the search is never worse.
        tried = ("fsdp", "auto") if best.strategy == "auto" else (best.strategy,)
        other = planner.on(larger, planner.axes)
        if any(other.plan(strategy).best.fits for strategy in tried):
            return f"{text}. It would fit on {outer.size * factor} {outer.name}s instead of {outer.size}"
    memory = needed / cluster.device.usable_fraction / GIB
    return f"{text}. It would fit on devices with {memory:.1f} GiB of memory; a smaller batch needs less"


def prospects(program: Program, planner: Planner, strategy: str, result: Result) -> tuple[WhatIf, ...]:
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
