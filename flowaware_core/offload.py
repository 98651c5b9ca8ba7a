"""A training step whose optimizer state lies in the memory of the hosts: the last resort, where nothing else fits.

Forward and backward pass are one program, split over the devices as any other; the gradients stay on the devices. Then the update
runs part by part: some parameters' state comes to the devices, they are updated, and it goes back before the next part comes. What
is on the links to the hosts is often most of such a step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flowaware_core.api import BASELINES, DoesNotFit
from flowaware_core.cluster.model import Cluster, Device, positive
from flowaware_core.cost import hosting
from flowaware_core.cost.estimate import Estimate, estimate, shard_bytes
from flowaware_core.drafting import sentence, shortfall
from flowaware_core.explain import size
from flowaware_core.garbage import collection_paused
from flowaware_core.graph.model import Graph
from flowaware_core.graph.owners import Inseparable
from flowaware_core.graph.placement import Placement, place
from flowaware_core.graph.update import Cut, Division, Part
from flowaware_core.program import Program
from flowaware_core.search.operators import Candidate
from flowaware_core.search.schedule import Trial, scheduled
from flowaware_core.search.strategies import Planner
from flowaware_core.task import Schedule, Task
from flowaware_core.training import Training

# Plans, each with as much less memory for the gradients as the update was short of.
ROUNDS = 3


class Stateless(ValueError):
    """An optimizer that keeps no arrays from step to step, so nothing can lie on the hosts."""


@dataclasses.dataclass(frozen=True, eq=False)
class Offloaded:
    """A training step with the optimizer's state in the memory of the hosts.

    Attributes:
        training, state, batch: what is trained, abstract.
        cluster: the devices.
        program: of the gradients, on `candidate.mesh`; its task has the schedule.
        candidate, placement: its plan, and where everything lies, the update's values too.
        cut, division: the update, and its parts.
        parts: what each part costs.
        name: what it is called.
    """

    training: Training
    state: Any
    batch: Any
    cluster: Cluster
    program: Program
    candidate: Candidate
    placement: Placement
    cut: Cut
    division: Division
    parts: tuple[PlannedPart, ...]
    name: str

    @property
    def schedule(self) -> Schedule:
        return self.program.task.schedule

    @property
    def hosted_bytes(self) -> int:
        """What one device has in the memory of its host."""
        return sum(part.hosted_bytes for part in self.parts)

    @property
    def hosting_s(self) -> float:
        """Seconds of a step on the links to the hosts."""
        twice = sum(part.hosted_bytes for part in self.parts if part.part.numbers is not None)
        spent = float(hosting.seconds(np.array(twice), self.cluster.device)) / 2  # comes once more and is dropped
        return spent + self.candidate.estimate.hosting_s

    @property
    def step_s(self) -> float:
        """Predicted seconds of a step."""
        return self.candidate.estimate.step_s - self.candidate.estimate.hosting_s + self.hosting_s

    @property
    def memory_bytes(self) -> int:
        """The most that one device holds: while gradients are found, or while some part is updated."""
        return max(self.candidate.estimate.usage.total, *(part.memory_bytes for part in self.parts))

    @property
    def fits(self) -> bool:
        device = self.cluster.device
        return self.memory_bytes <= device.usable_bytes and self.hosted_bytes <= device.host_memory_bytes

    def describe(self) -> str:
        """A few lines for a person."""
        found, device = self.candidate.estimate, self.cluster.device
        first = max(self.parts, key=lambda part: part.memory_bytes)
        axes = " x ".join(f"{axis.name} {axis.size}" for axis in self.candidate.mesh.axes)
        strategy = sentence(self.program, self.candidate, self.placement)
        return "\n".join(
            [
                f"{self.name} on {self.cluster.name}: the optimizer's state on the hosts, predicted step "
                f"{self.step_s * 1e3:.3g} ms",
                f"mesh          {axes}; {strategy}",
                f"schedule      {self.schedule}",
                f"of the step   {found.compute_s * 1e3:.3g} ms compute, {found.communication_s * 1e3:.3g} ms collectives, "
                f"{self.hosting_s * 1e3:.3g} ms between hosts and devices",
                f"host          {size(self.hosted_bytes)} a device at {device.host_bandwidth_bytes_per_s:.3g} B/s",
                f"update        {len(self.parts)} parts, at most {size(max(p.hosted_bytes for p in self.parts))} of "
                "state on a device at a time",
                f"memory        {size(found.usage.total)} a device for the gradients, {size(first.memory_bytes)} "
                f"for the update, {size(device.usable_bytes)} usable",
            ]
        )


@dataclasses.dataclass(frozen=True, eq=False)
class PlannedPart:
    """A part of the update, and what it costs.

    Attributes:
        part: what it runs.
        estimate: of its program, as if that were all there is.
        hosted_bytes: of the state that comes to one device.
        memory_bytes: on one device, with all that waits there meanwhile.
    """

    part: Part
    estimate: Estimate
    hosted_bytes: int
    memory_bytes: int


def offload(
    training: Training, state: Any, batch: Any, cluster: Cluster, name: str = "task", part_bytes: int | None = None
) -> Offloaded:
    """Plans a training step with the arrays of the optimizer's state in the memory of the hosts.

    Args:
        training: loss and optimizer.
        state, batch: arrays or shapes.
        cluster: the devices; what they say of their hosts is what the state's way back and forth costs.
        name: what it is called.
        part_bytes: the most of the state that shall be on a device at a time, where parameters can be updated so far apart; None:
            whatever there is room for.

    Raises:
        DoesNotFit: gradients, some part of the update, or the state on the hosts: the sentence says which, and what is missing.
        Stateless: a ValueError: the optimizer's state has no arrays.
        ValueError: part_bytes is not above 0.
    """
    if part_bytes is not None:
        positive("part_bytes", part_bytes)
    task = training.task(state, batch, name)
    task = dataclasses.replace(task, step=training.exposed(), build=training.exposed)
    usable, missing = cluster.device, math.inf
    with collection_paused():
        search = _Search(task, training.extra)
        for _ in range(ROUNDS):
            cut, trial = search.best(dataclasses.replace(cluster, device=usable))
            best = trial.result.best
            if not best.fits:
                break
            placed = place(cut.gradients, trial.program.structure, best.choices)
            division, parts = _divided(cut, placed, best, cluster.device, part_bytes)
            state, batch = task.args
            found = Offloaded(training, state, batch, cluster, trial.program, best, placed, cut, division, parts, name)
            if found.hosted_bytes > cluster.device.host_memory_bytes:
                raise DoesNotFit(
                    f"{name} does not fit on {cluster.name}: the optimizer's state takes {size(found.hosted_bytes)} a "
                    f"device of the hosts' memory and {size(cluster.device.host_memory_bytes)} are there"
                )
            if found.fits:
                return found
            short = found.memory_bytes - cluster.device.usable_bytes
            missing, fewer = min(missing, short), usable.memory_bytes - math.ceil(short / usable.usable_fraction)
            if fewer <= 0:
                break
            usable = dataclasses.replace(usable, memory_bytes=fewer)
    if missing < math.inf:
        raise DoesNotFit(
            f"{name} does not fit on {cluster.name}: with the optimizer's state on the hosts, parameters, gradients and one part "
            f"of the update miss {size(missing)} a device"
        )
    raise DoesNotFit(
        f"{shortfall(trial.program, trial.planner, best)}; the optimizer's state lies on the hosts already"
    )


class _Search:
    """The plan of the gradients with the schedule that is best, on any cluster; every schedule is traced once."""

    def __init__(self, task: Task, extra: str | None):
        self.task, self.extra = task, extra
        self._known: dict[Schedule, tuple[Cut, Program, Planner]] = {}

    def best(self, cluster: Cluster) -> tuple[Cut, Trial]:
        def trial(schedule: Schedule, below: float | None = None) -> Trial:
            _, program, planner = self._on(schedule, cluster)
            return Trial(program, planner, planner.glance(below) if below is not None else planner.first())

        found = scheduled(trial(self.task.schedule), trial)
        result = found.planner.against(found.planner.plan("auto"), BASELINES)
        return self._known[found.schedule][0], dataclasses.replace(found, result=result)

    def _on(self, schedule: Schedule, cluster: Cluster) -> tuple[Cut, Program, Planner]:
        if schedule not in self._known:
            whole = Program.of(self.task.scheduled(schedule))
            cut = Cut(whole.graph, self.extra)
            if not cut.gradients.hosted:
                raise Stateless(f"the optimizer of {self.task.name} keeps no arrays, so nothing can lie on the hosts")
            program = dataclasses.replace(whole, graph=cut.gradients)
            self._known[schedule] = cut, program, Planner(program.graph, program.structure, cluster)
        cut, program, planner = self._known[schedule]
        return cut, program, planner.on(cluster, planner.axes)


def _divided(
    cut: Cut, placed: Placement, candidate: Candidate, device: Device, part_bytes: int | None
) -> tuple[Division, tuple[PlannedPart, ...]]:
    """The fewest parts that fit, or the smallest there are."""
    mesh, used = candidate.mesh, candidate.estimate.usage
    sizes = [sum(shard_bytes(cut.whole, placed, mesh, tensor) for tensor in unit.hosted) for unit in cut.units]
    room = device.usable_bytes - (used.arguments + used.outputs - used.aliases)
    room = room if part_bytes is None else min(room, part_bytes)
    while True:
        try:
            division = cut.parts(_packed(sizes, room))
        except Inseparable:
            division, room = cut.parts([range(len(sizes))]), 0
        planned = _planned(cut.whole, division, placed, candidate, device)
        if room <= max(sizes) or max(part.memory_bytes for part in planned) <= device.usable_bytes:
            return division, planned
        room //= 2


def _packed(sizes: Sequence[int], room: int) -> list[list[int]]:
    """Neighbours together while they take no more than the room there is; what is larger stands alone."""
    groups: list[list[int]] = []
    filled = 0
    for unit, own in enumerate(sizes):
        if not groups or filled + own > room:
            groups.append([])
            filled = 0
        groups[-1].append(unit)
        filled += own
    return groups


def _planned(
    whole: Graph, division: Division, placed: Placement, candidate: Candidate, device: Device
) -> tuple[PlannedPart, ...]:
    mesh, used = candidate.mesh, candidate.estimate.usage

    def held(tensors: Sequence[int]) -> int:
        return sum(shard_bytes(whole, placed, mesh, tensor) for tensor in tensors)

    waiting, found = used.arguments + used.outputs - used.aliases, []
    everything = waiting
    for part in division.parts:
        priced, hosted = estimate(part.graph, placed, mesh, device), held(part.hosted)
        # Its parameters and gradients are among what waits; its state comes on top, and so does what it needs meanwhile.
        most = waiting + hosted + priced.usage.total - priced.usage.arguments
        if part.numbers is not None:
            before = estimate(part.numbers, placed, mesh, device).usage
            most = max(most, everything + hosted + before.total - before.arguments)
        found.append(PlannedPart(part, priced, hosted, most))
        waiting -= held(part.gradients)
    return tuple(found)
