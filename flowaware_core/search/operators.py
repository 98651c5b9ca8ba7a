"""The search within one program: the best assignment of mesh axes to dimensions that fits in memory.

The labelling problem (`problem.py`) is solved first as if memory were free. Where the answer does not fit, the buffers of that
answer become rows of memory over time, and the problem is solved again under the limit; what the rows cannot see (copies in other
layouts) is subtracted from the limit and the step repeated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import Device
from flowaware_core.cost import memory
from flowaware_core.cost.estimate import Estimate, estimate
from flowaware_core.graph.layout import local_shape
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Choices, group_layout, place
from flowaware_core.graph.structure import Structure
from flowaware_core.search import labelling
from flowaware_core.search.problem import Costs, Nodes, Restriction, costs, nodes, restricted

# Rounds of "solve, look at the real peak, lower the limit".
ROUNDS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A complete choice on one mesh, and what it costs."""

    strategy: str
    mesh: Mesh
    choices: Choices
    estimate: Estimate
    usable_bytes: int

    @property
    def fits(self) -> bool:
        return self.estimate.usage.total <= self.usable_bytes


@dataclasses.dataclass(frozen=True, eq=False)
class Space:
    """A program on one mesh: every node with every label, priced."""

    graph: Graph
    structure: Structure
    mesh: Mesh
    device: Device
    nodes: Nodes
    costs: Costs

    @staticmethod
    def of(graph: Graph, structure: Structure, mesh: Mesh, device: Device) -> Space:
        labels = nodes(graph, structure, mesh)
        return Space(graph, structure, mesh, device, labels, costs(graph, structure, mesh, device, labels))


def search(
    space: Space, strategy: str, restriction: Restriction | None = None, seeds: Sequence[Choices] = ()
) -> Candidate:
    """The fastest choice in a space; where nothing fits, the one that needs least memory.

    Args:
        space: the program on one mesh.
        strategy: a name for the result.
        restriction: what a template leaves open; None for the whole space.
        seeds: choices the result shall not be worse than.
    """
    graph, structure, mesh, device = space.graph, space.structure, space.mesh, space.device
    options, priced = space.nodes, space.costs
    if restriction is not None:
        options, priced = restricted(structure, options, priced, restriction)
    starts = [labels for seed in seeds if (labels := options.labelling(seed)) is not None]
    rows: labelling.problem.Rows = ()
    limit: float | None = None
    best: Candidate | None = None
    for _ in range(ROUNDS):
        found = labelling.solve(
            labelling.Problem(priced.nodes, priced.edges, priced.matrices, rows, limit), seeds=starts
        )
        choices = options.choices(list(found.labels))
        placed = place(graph, structure, choices)
        candidate = Candidate(strategy, mesh, choices, estimate(graph, placed, mesh, device), device.usable_bytes)
        best = candidate if best is None else better(best, candidate)
        if candidate.fits or not found.feasible:
            break
        rows = _rows(graph, structure, options, candidate, mesh)
        problem = labelling.Problem(priced.nodes, priced.edges, priced.matrices, rows, None)
        unseen = candidate.estimate.usage.total - problem.peak(found.labels)
        limit = device.usable_bytes - max(0.0, unseen)
        if limit <= 0:
            break
    assert best is not None
    return best


def better(one: Candidate, other: Candidate) -> Candidate:
    """The faster of two that fit; the one that fits; or the smaller of two that do not. The first wins a tie."""
    if one.fits and other.fits:
        return other if other.estimate.step_s < one.estimate.step_s * (1 - 1e-9) else one
    if one.fits != other.fits:
        return one if one.fits else other
    return other if other.estimate.usage.total < one.estimate.usage.total else one


def _rows(
    graph: Graph, structure: Structure, options: Nodes, candidate: Candidate, mesh: Mesh
) -> labelling.problem.Rows:
    """Memory over time of every kept buffer, for every label of its group."""
    trace = candidate.estimate.trace
    end = len(trace.buffers) + 1
    donated = {id(buffer) for buffer in trace.inputs}
    sizes: dict[tuple[object, ...], np.ndarray] = {}
    rows = []
    for moment, (first, last) in memory.lifetimes(trace).items():
        buffer = trace.buffers[moment]
        group = structure.group_of[buffer.tensor]
        if group < 0 or not buffer.kept:
            continue
        labels = options.groups[group]
        key = (buffer.tensor, id(labels))
        if key not in sizes:
            tensor = graph.tensors[buffer.tensor]
            layouts = [group_layout(structure, tensor.id, assignment) for assignment in labels]
            shards = [math.prod(local_shape(tensor.shape, layout, mesh.sizes)) for layout in layouts]
            sizes[key] = np.array(shards, dtype=float) * tensor.itemsize
        span = (0, end) if id(buffer) in donated else (first, last + 1)
        rows.append((group, *span, sizes[key]))
    return tuple(rows)
