"""Operators without a rule: they run whole on every device, and a plan says so."""

from __future__ import annotations

import dataclasses

import numpy as np

from flowaware_core.cluster.model import Device
from flowaware_core.cost import compute
from flowaware_core.graph.model import Graph


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A primitive without a rule at one line of the program.

    Attributes:
        primitive: its name.
        source: "file:line (function)" of the call.
        count: how many operators of a step stand there.
        seconds: what they cost in a step.
    """

    primitive: str
    source: str
    count: int
    seconds: float

    def __str__(self) -> str:
        times = f"{self.count} times " if self.count > 1 else ""
        return (
            f"{self.primitive} at {self.source} has no rule: it runs {times}whole on every device, about "
            f"{1e3 * self.seconds:.3g} ms of a step"
        )


def unknown(graph: Graph, device: Device) -> tuple[Unknown, ...]:
    """The primitives that have no rule, the costliest first."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for operator, times in graph.walk():
        if operator.rule.known:
            continue
        key = operator.primitive, operator.source
        count, seconds = found.get(key, (0, 0.0))
        cost = float(compute.seconds(operator, graph.tensors, np.ones(()), device))
        found[key] = count + times, seconds + times * cost
    every = (Unknown(*key, *value) for key, value in found.items())
    return tuple(sorted(every, key=lambda one: (-one.seconds, one.primitive, one.source)))
