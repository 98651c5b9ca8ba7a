"""What a placed program costs: time, collectives and memory of one step on one device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import Device
from flowaware_core.cost import communication, compute, hosting, memory
from flowaware_core.cost.trace import Trace, trace
from flowaware_core.graph.layout import axes_of, local_shape
from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.placement import OperatorPlacement, Placement


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """Seconds and floating point operations of one step, memory on the target, and the trace they were read from.

    What runs afterwards in programs of its own (`Graph.update`) is in the seconds alone.
    """

    compute_s: float
    communication_s: float
    flops: float
    usage: memory.Usage
    trace: Trace
    donated: Mapping[int, int]
    hosting_s: float = 0.0

    @property
    def step_s(self) -> float:
        """Nothing is assumed to overlap."""
        return self.compute_s + self.communication_s + self.hosting_s

    def usage_on_cpu(self) -> memory.Usage:
        """Memory as the CPU compiler lays the same program out."""
        return memory.usage(self.trace, self.donated, "cpu")

    @property
    def collectives(self) -> dict[str, dict[str, int]]:
        """Kind -> number of collectives and bytes that one device puts in, loops counted."""
        found: dict[str, dict[str, int]] = {}
        for move in self.trace.communications:
            entry = found.setdefault(move.kind, {"count": 0, "bytes": 0})
            entry["count"] += move.times
            entry["bytes"] += move.times * move.bytes
        return dict(sorted(found.items()))


def estimate(graph: Graph, placement: Placement, mesh: Mesh, device: Device) -> Estimate:
    """Prices a placed program."""
    played = trace(graph, placement, mesh.sizes)
    made = [*played.communications]
    if graph.update is not None:
        made += trace(graph.update, placement, mesh.sizes).communications
    moves = sum(m.times * communication.seconds(m.kind, m.bytes, m.axes, mesh) for m in made)
    work, flops = _work(graph, placement, mesh, device)
    hosted = sum(shard_bytes(graph, placement, mesh, tensor) for tensor in graph.hosted)
    usage, spent = memory.usage(played, graph.carried), float(hosting.seconds(np.array(hosted), device))
    return Estimate(work, moves, flops, usage, played, graph.carried, spent)


def shard_bytes(graph: Graph, placement: Placement, mesh: Mesh, tensor: int) -> int:
    """Bytes of a tensor on one device, in the layout in which it is kept."""
    value = graph.tensors[tensor]
    return math.prod(local_shape(value.shape, placement.tensors[tensor], mesh.sizes)) * value.itemsize


def _work(graph: Graph, placement: Placement, mesh: Mesh, device: Device) -> tuple[float, float]:
    """Seconds of computation and floating point operations of one device."""
    work = flops = 0.0
    for _, times, spent, done in works(graph, placement, mesh, device):
        work += times * spent
        flops += times * done
    return work, flops


def works(
    graph: Graph, placement: Placement, mesh: Mesh, device: Device
) -> Iterator[tuple[Operator, int, float, float]]:
    """Per operator how often it runs, and the seconds and floating point operations of one run on one device."""
    shards_of: dict[int, float] = {}
    seconds_of: dict[tuple[object, ...], float] = {}
    for operator, times in graph.walk():
        if operator.subgraphs:
            continue
        chosen = placement.operators[operator.id]
        shards = shards_of.get(id(chosen))
        if shards is None:
            shards = shards_of[id(chosen)] = _shards(operator, graph, chosen, mesh)
        size = graph.traffic[operator.id]
        matrix = operator.primitive in compute.MATRIX_PRIMITIVES
        dtype = graph.tensors[operator.results[0]].dtype if matrix else ""
        key = (dtype, size, shards, operator.flops if matrix else 0.0)
        spent = seconds_of.get(key)
        if spent is None:
            spent = seconds_of[key] = float(compute.seconds(operator, graph.tensors, np.array(shards), device))
        yield operator, times, spent, operator.flops / shards


def _shards(operator: Operator, graph: Graph, chosen: OperatorPlacement, mesh: Mesh) -> float:
    """By how much less the busiest device does than the whole: the number of shards, less what is padding in the largest."""
    sides = [(t, layout) for t, layout in zip(operator.operands, chosen.operands, strict=True) if layout]
    sides += [(t, result.layout) for t, result in zip(operator.results, chosen.results, strict=True)]
    axes: set[int] = set()
    padding = 1.0
    for tensor, layout in sides:
        used = axes_of(layout)
        axes |= used
        if used and isinstance(tensor, int):
            shape = graph.tensors[tensor].shape
            held = math.prod(local_shape(shape, layout, mesh.sizes)) * math.prod(mesh.sizes[axis] for axis in used)
            padding = max(padding, held / max(1, math.prod(shape)))
    return math.prod(mesh.sizes[axis] for axis in axes) / padding
