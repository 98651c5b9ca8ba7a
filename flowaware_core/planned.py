"""A stage with its plan: how its program is split over its own devices, and what it keeps for the way back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from flowaware_core.cluster.model import Cluster
from flowaware_core.cost.estimate import Estimate, estimate
from flowaware_core.graph.layout import local_shape
from flowaware_core.graph.placement import Placement, place
from flowaware_core.graph.residuals import residuals
from flowaware_core.graph.stage import Stage, results_of
from flowaware_core.program import Program
from flowaware_core.search.operators import Candidate
from flowaware_core.search.strategies import Planner
from flowaware_core.search.templates import batch_classes


@dataclasses.dataclass(frozen=True, eq=False)
class PlannedStage:
    """A stage with its plan.

    Attributes:
        stage: what it runs.
        cluster: its own devices.
        program, candidate, placement: its plan on them.
        kept: tensors that a forward pass keeps for the way back, which computes the others that it needs again.
        forward_s, backward_s, update_s: seconds of one micro-batch's passes and of the update.
        entry_s: seconds in which a micro-batch gets here and its derivatives get back.
        memory_bytes: on one device, micro-batches under way included.
    """

    stage: Stage
    cluster: Cluster
    program: Program
    candidate: Candidate
    placement: Placement
    kept: tuple[int, ...]
    forward_s: float
    backward_s: float
    update_s: float
    entry_s: float
    memory_bytes: int

    @property
    def devices(self) -> int:
        return self.cluster.num_devices

    @property
    def fits(self) -> bool:
        return self.memory_bytes <= self.cluster.device.usable_bytes

    @property
    def load_s(self) -> float:
        """Seconds that a micro-batch keeps the stage busy."""
        return self.forward_s + self.backward_s + self.entry_s


def program_of(stage: Stage, name: str, rowed: Sequence[bool]) -> tuple[Program, tuple[bool, ...]]:
    """The program of a stage, which knows where its examples are.

    Args:
        stage, name: what it is.
        rowed: for each value from the stage before whether it has examples along dimension 0.

    Returns:
        the program, and the same of what it passes on.
    """
    found = Program.of(stage.task(name))
    graph, parts = found.graph, results_of(found.graph)
    given = range(len(graph.inputs))[parts.given]
    batch = (*parts.rows, *(leaf for leaf, has in zip(given, rowed, strict=True) if has))
    graph = dataclasses.replace(graph, batch=batch)
    examples, structure = batch_classes(graph, found.structure), found.structure

    def has(position: int) -> bool:
        tensor = graph.outputs[position]
        if not isinstance(tensor, int):
            return False
        dims = structure.dims_of[tensor]
        return bool(dims) and dims[0] >= 0 and structure.classes[structure.group_of[tensor]][dims[0]] in examples

    return dataclasses.replace(found, graph=graph), tuple(has(position) for position in parts.passed)


def planned_of(
    stage: Stage, program: Program, planner: Planner, strategy: str, entry_s: float, under_way: int
) -> PlannedStage:
    """The plan of a stage on its own devices; `under_way` micro-batches wait in it at most."""
    candidate = planner.plan(strategy).best
    placed = place(program.graph, program.structure, candidate.choices)
    mesh, device = candidate.mesh, planner.cluster.device
    parts = results_of(program.graph)

    def part(outputs: Sequence[int], given: Sequence[int] = ()) -> Estimate:
        return estimate(program.graph.part(outputs, given=given), placed, mesh, device)

    def bytes_of(tensor: int) -> int:
        shard = local_shape(program.graph.tensors[tensor].shape, placed.tensors[tensor], mesh.sizes)
        return math.prod(shard) * program.graph.tensors[tensor].itemsize

    last, back = not stage.section.passed, (*parts.held, *parts.back)
    waits, least = under_way - 1, candidate.estimate.usage.total
    least += waits * sum(map(bytes_of, program.graph.inputs[parts.given]))
    wanted = () if last else residuals(program.graph, parts.forward, back)
    sizes = [waits * bytes_of(tensor) for tensor in wanted]
    choices = [wanted[begin:end] for begin, end in _spans(sizes, device.usable_bytes - least)]
    backward_s, kept = min((part(back, kept).step_s, kept) for kept in choices)
    memory = least + waits * sum(map(bytes_of, kept))
    return PlannedStage(
        stage,
        planner.cluster,
        program,
        candidate,
        placed,
        kept,
        0.0 if last else part(parts.forward).step_s,
        backward_s,
        part(parts.update).step_s if parts.update else 0.0,
        entry_s,
        memory,
    )


def _spans(sizes: Sequence[int], limit: int) -> set[tuple[int, int]]:
    """Begin and end of the longest part from the start, and of the longest up to the end, that sum up to at most a limit."""
    sums = np.cumsum([0, *sizes])
    behind = int(np.searchsorted(sums, limit, side="right")) - 1 if limit >= 0 else 0
    before = int(np.searchsorted(sums, sums[-1] - limit)) if limit >= 0 else len(sizes)
    return {(0, behind), (min(before, len(sizes)), len(sizes))}
