"""Many inputs on one cluster: how large a group of devices each runs on, and which group takes which input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jax

from flowaware_core.api import DoesNotFit, apply, plan
from flowaware_core.cluster.model import Cluster
from flowaware_core.plan import Plan
from flowaware_core.search.prepared import Prepared
from flowaware_core.spreading import Shares, imbalance, most_loaded, spread
from flowaware_core.step import Step
from flowaware_core.task import Task

Objective = Literal["throughput", "latency"]
OBJECTIVES: tuple[Objective, ...] = ("throughput", "latency")

Seconds = Mapping[int, float]
"""Number of devices -> predicted seconds of one input on so many."""


@dataclasses.dataclass(frozen=True)
class Shift:
    """A stretch of time in which all groups are of one size.

    Attributes:
        devices: of each group; group k has those from k * devices on, in the order of the cluster.
        groups: the inputs of each group, by their place in the list.
        seconds: predicted, of the group with the most to do.
        imbalance: by how much that group exceeds the mean; 0 is even.
    """

    devices: int
    groups: Shares
    seconds: float
    imbalance: float


@dataclasses.dataclass(frozen=True, eq=False)
class Deployment:
    """Which devices run which input, and with which plan; all times are predicted.

    Attributes:
        objective: what it was made for.
        tasks: one an input; inputs of one size share a task.
        shifts: one after the other.
        plans: (place of a task in the list, devices of a group) -> its plan there, for the first input of every size.
        seconds: from the first input to the last.
        bound: no choice of groups and no spreading takes less by these plans.
    """

    objective: Objective
    tasks: tuple[Task, ...]
    shifts: tuple[Shift, ...]
    plans: Mapping[tuple[int, int], Plan]
    seconds: float
    bound: float

    def __str__(self) -> str:
        sizes = len({id(task) for task in self.tasks})
        head = f"{len(self.tasks)} inputs of {sizes} sizes in {self.seconds:.4g} s, of {self.bound:.4g} s at least; all predicted"
        return "\n".join([head, *(f"  {line}" for line in map(_line, self.shifts))])

    def run(self, work: Callable[[Step, int], Any], devices: Sequence[Any] | None = None) -> list[Any]:
        """Does the work of every input on its group, the groups of a shift at the same time.

        Args:
            work: gets the split task of a group and the place of an input in the list; puts the input's arguments on the devices
                by `step.in_shardings`, calls the step, and returns what is wanted of its results. It is called from one thread a
                group. What it raises is raised here, once the other groups are through with their shift.
            devices: as many as the cluster has, in its order; the first of `jax.devices()` if not given.

        Returns:
            what `work` returned, in the order of the inputs.

        Raises:
            ValueError: there are too few devices.
        """
        needed = max(shift.devices * len(shift.groups) for shift in self.shifts) if self.shifts else 0
        available = list(jax.devices() if devices is None else devices)
        if len(available) < needed:
            raise ValueError(
                f"the deployment needs {needed} devices and {len(available)} are here; deploy on a part of the cluster"
            )
        results: list[Any] = [None] * len(self.tasks)
        first = _first_of_each(self.tasks)

        def group(number: int, size: int, members: Sequence[int]) -> None:
            own, steps = available[number * size : (number + 1) * size], {}
            for index in members:
                kind = first[index]
                if kind not in steps:
                    steps[kind] = apply(self.plans[kind, size], self.tasks[kind], devices=own)
                results[index] = jax.block_until_ready(work(steps[kind], index))

        for shift in self.shifts:
            busy = [(number, members) for number, members in enumerate(shift.groups) if members]
            with ThreadPoolExecutor(len(busy)) as pool:
                pending = [pool.submit(group, number, shift.devices, members) for number, members in busy]
            for future in pending:
                future.result()
        return results


def deployment(tasks: Sequence[Task], cluster: Cluster, objective: Objective = "throughput") -> Deployment:
    """Chooses the groups of devices that a list of inputs runs on.

    Every size of input is planned for every size of group, from one device to the whole cluster; memory is counted in each plan,
    with parameters, caches (arguments that are carried) and whatever else a call has.

    Args:
        tasks: one an input, in any order. Inputs of one size should share one task object: it is planned once.
        cluster: the devices.
        objective: "throughput": the whole list is done as early as possible. "latency": each input by itself is done as fast as
            possible, on the smallest group that is as fast; the rest of the cluster takes other inputs meanwhile.

    Raises:
        DoesNotFit: an input fits on no group; the sentence is that of the whole cluster.
        ValueError: an unknown objective, no inputs, or a training.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective={objective!r}; allowed are {', '.join(OBJECTIVES)}")
    if not tasks:
        raise ValueError("no inputs; a deployment has one task for each")
    training = next((task for task in tasks if task.mode == "training"), None)
    if training is not None:
        raise ValueError(
            f"{training.name} is a training, whose steps follow one another; a deployment runs inputs side by side"
        )
    first = _first_of_each(tasks)
    found = {kind: _on_groups(tasks[kind], cluster) for kind in dict.fromkeys(first)}
    plans = {(kind, devices): made for kind, on in found.items() for devices, made in on.items()}
    seconds = {kind: {devices: made.predicted.step_s for devices, made in on.items()} for kind, on in found.items()}
    costs = [seconds[kind] for kind in first]
    if objective == "latency":
        chosen = {kind: min(times, key=lambda devices: (times[devices], devices)) for kind, times in seconds.items()}
    else:
        chosen = _soonest(first, seconds, cluster.num_devices)
    shifts = _shifts([chosen[kind] for kind in first], costs, cluster.num_devices)
    work = sum(min(devices * each for devices, each in times.items()) for times in costs)
    bound = max(work / cluster.num_devices, max(min(times.values()) for times in costs))
    return Deployment(objective, tuple(tasks), shifts, plans, sum(shift.seconds for shift in shifts), bound)


def _on_groups(task: Task, cluster: Cluster) -> dict[int, Plan]:
    """Number of devices -> the plan on so many, where it fits."""
    prepared, found = Prepared(task), {}
    for part in cluster.parts():
        try:
            found[part.num_devices] = plan(prepared, part)
        except DoesNotFit:
            if part.num_devices == cluster.num_devices and not found:
                raise
    return found


def _soonest(first: Sequence[int], seconds: Mapping[int, Seconds], total: int) -> dict[int, int]:
    """Size of input -> devices of its groups: the best of what single changes reach from a few beginnings.

    The beginnings are the least work for every size, and one size of group for all that fit on it.
    """
    least = {
        kind: min(found, key=lambda devices: (devices * found[devices], devices)) for kind, found in seconds.items()
    }
    sizes = sorted({devices for found in seconds.values() for devices in found})
    beginnings = [least, *({kind: _at_least(found, size) for kind, found in seconds.items()} for size in sizes)]

    def time(chosen: Mapping[int, int]) -> float:
        shifts = _shifts([chosen[kind] for kind in first], [seconds[kind] for kind in first], total)
        return sum(shift.seconds for shift in shifts)

    best, soonest = least, math.inf
    for chosen in beginnings:
        now, better = time(chosen), True
        while better:
            others = [
                {**chosen, kind: size} for kind, found in seconds.items() for size in found if size != chosen[kind]
            ]
            times = [time(other) for other in others]
            better = bool(times) and min(times) < now
            if better:
                now = min(times)
                chosen = others[times.index(now)]
        if now < soonest:
            best, soonest = chosen, now
    return best


def _at_least(found: Seconds, size: int) -> int:
    """The group of so many devices, the next larger one that it fits on, or the largest."""
    return min((devices for devices in found if devices >= size), default=max(found))


def _shifts(devices: Sequence[int], costs: Sequence[Seconds], total: int) -> tuple[Shift, ...]:
    """One for each size of group, the largest groups first."""
    found = []
    for size in sorted(set(devices), reverse=True):
        members = [index for index, own in enumerate(devices) if own == size]
        own = [costs[index][size] for index in members]
        shares = spread(own, total // size)
        groups = tuple(tuple(members[place] for place in share) for share in shares)
        found.append(Shift(size, groups, most_loaded(own, shares), imbalance(own, shares)))
    return tuple(found)


def _first_of_each(tasks: Sequence[Task]) -> list[int]:
    """For every input the first one of its size."""
    known: dict[int, int] = {}
    return [known.setdefault(id(task), index) for index, task in enumerate(tasks)]


def _line(shift: Shift) -> str:
    count = sum(map(len, shift.groups))
    groups = "1 group" if len(shift.groups) == 1 else f"{len(shift.groups)} groups"
    devices = "1 device" if shift.devices == 1 else f"{shift.devices} devices"
    return f"{count} on {groups} of {devices}: {shift.seconds:.4g} s, imbalance {shift.imbalance:.0%}"
