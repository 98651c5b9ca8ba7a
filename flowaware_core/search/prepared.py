"""A task captured and reduced once, to be planned for many clusters."""

from __future__ import annotations

from collections.abc import Sequence

from flowaware_core.cluster.model import Cluster
from flowaware_core.program import Program
from flowaware_core.search.pins import Pin
from flowaware_core.search.strategies import Planner
from flowaware_core.task import Schedule, Task


class Prepared:
    """Remembers, per schedule, the program and what of its search problem does not depend on the cluster.

    Give it to `fa.plan` in the place of its task: the second plan takes neither tracing nor reducing.
    """

    def __init__(self, task: Task):
        self.task = task
        self._known: dict[tuple[Schedule, tuple[Pin, ...]], tuple[Program, Planner]] = {}

    def on(
        self, schedule: Schedule, cluster: Cluster, pins: Sequence[Pin], axes: int | None
    ) -> tuple[Program, Planner]:
        """The program of a schedule, and its planner for a cluster and meshes of so many axes.

        Raises:
            ValueError: a pin that no plan can follow.
        """
        key = (schedule, tuple(pins))
        if key not in self._known:
            program = Program.of(self.task.scheduled(schedule))
            self._known[key] = program, Planner(program.graph, program.structure, cluster, pins, axes)
        program, planner = self._known[key]
        return program, planner.on(cluster, axes)
