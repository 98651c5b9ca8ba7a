"""Where a step spends its time and a device its memory: block by block, and at the fullest moment by kind."""

from __future__ import annotations

import bisect
import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import Device
from flowaware_core.cost import communication, memory
from flowaware_core.cost.estimate import Estimate, works
from flowaware_core.cost.trace import Buffer
from flowaware_core.graph.blocks import repeated
from flowaware_core.graph.layout import Layout
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Placement

GATHERED = ("all-gather", "all-to-all", "collective-permute", "slice")
# A stretch without repeated blocks is shown in pieces of at least this part of the step.
SHARE = 0.02


@dataclasses.dataclass
class Segment:
    """Neighbouring operators.

    Attributes:
        name: the block they belong to and which one of its kind, or the line where they begin.
        kind: equal for blocks that are repeated.
        operators: how many.
        compute_s: seconds of arithmetic.
        links: names of mesh axes -> seconds of collectives over them.
    """

    name: str
    kind: str
    operators: int = 0
    compute_s: float = 0.0
    links: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return self.compute_s + sum(self.links.values())


def profile(graph: Graph, placement: Placement, mesh: Mesh, device: Device, found: Estimate) -> dict[str, Any]:
    """A plan's picture as plain values: {"segments", "memory", "layouts"}."""
    return {
        "segments": [dataclasses.asdict(segment) for segment in segments(graph, placement, mesh, device, found)],
        "memory": peak(graph, found),
        "layouts": layouts(graph, placement, mesh),
    }


def segments(graph: Graph, placement: Placement, mesh: Mesh, device: Device, found: Estimate) -> list[Segment]:
    """The step in program order; the seconds add up to the step's."""
    operators = graph.operators
    starts = [operator.id for operator in operators]
    compute = [0.0] * len(operators)
    links: list[dict[str, float]] = [{} for _ in range(len(operators) + 1)]
    for operator, times, spent, _ in works(graph, placement, mesh, device):
        compute[bisect.bisect_right(starts, operator.id) - 1] += times * spent
    for move in found.trace.communications:
        place = bisect.bisect_right(starts, move.operator) - 1 if move.operator >= 0 else len(operators)
        name = " x ".join(mesh.names[axis] for axis in sorted(move.axes))
        spent = move.times * communication.seconds(move.kind, move.bytes, move.axes, mesh)
        links[place][name] = links[place].get(name, 0.0) + spent
    owner = _owners(graph)
    made: list[Segment] = []
    last: tuple[str, str] | None = None
    for index, operator in enumerate(operators):
        key = owner.get(index)
        full = made and not key and made[-1].seconds > SHARE * found.step_s
        if not made or key != last or full:
            name, kind = key or (operator.source, "")
            made.append(Segment(name, kind))
        last = key
        _add(made[-1], compute[index], links[index])
    if links[-1]:
        made.append(Segment("carried values", ""))
        _add(made[-1], 0.0, links[-1])
    return made


def _add(segment: Segment, compute: float, links: dict[str, float]) -> None:
    segment.operators += 1
    segment.compute_s += compute
    for name, spent in links.items():
        segment.links[name] = segment.links.get(name, 0.0) + spent


def _owners(graph: Graph) -> dict[int, tuple[str, str]]:
    """Position of a top-level operator -> the name of its block and of the block's kind."""
    position = {operator.id: index for index, operator in enumerate(graph.operators)}
    found = {}
    for number, blocks in enumerate(repeated(graph)):
        kind = f"{blocks.count} blocks at {blocks.first.source}"
        first = position[blocks.first.id]
        for block in range(blocks.count):
            name = f"block {block + 1} of {blocks.count} at {blocks.first.source}"
            for offset in range(blocks.length):
                found[first + block * blocks.length + offset] = (name, f"{number}: {kind}")
    for index, operator in enumerate(graph.operators):
        if any(body.repeat > 1 for body in operator.subgraphs):
            times = max(body.repeat for body in operator.subgraphs)
            found[index] = (f"loop of {times} rounds at {operator.source}", f"loop {operator.id}")
    return found


def peak(graph: Graph, found: Estimate) -> dict[str, int]:
    """Bytes of one device at the fullest moment, by kind: arguments by their first name, and what is alive in between."""
    kinds: collections.Counter[str] = collections.Counter()
    for name, buffer in zip(graph.input_names, found.trace.inputs, strict=True):
        kinds[_first_name(name)] += buffer.bytes
    outside = {buffer.moment for buffer in (*found.trace.inputs, *found.trace.outputs) if buffer is not None}
    alive = memory.lifetimes(found.trace)
    moment = memory.fullest(found.trace, {m: span for m, span in alive.items() if m not in outside})
    for position, (first, last) in alive.items():
        if first <= moment <= last and position not in outside and last > first:
            kinds[_kind(found.trace.buffers[position])] += found.trace.buffers[position].bytes
    return {kind: size for kind, size in kinds.most_common() if size}


def _first_name(name: str) -> str:
    """The first name inside an argument's path: "0['params']['w']" is params."""
    found = re.match(r"\d+(?:\['([^']+)'\]|\.(\w+))", name)
    return next((part for part in found.groups() if part), name) if found else f"argument {name}"


def _kind(buffer: Buffer) -> str:
    if buffer.primitive in GATHERED:
        return "copies in another layout"
    if buffer.primitive in memory.REDUCTIONS:
        return "reduced between devices"
    return "values kept in loops" if buffer.body else "values on the way"


def layouts(graph: Graph, placement: Placement, mesh: Mesh) -> list[dict[str, Any]]:
    """How the arguments lie, those of one pattern of names and one layout together, with the bytes of one device."""
    found: dict[tuple[str, tuple[int, ...], Layout], list[int]] = {}
    for name, tensor in zip(graph.input_names, graph.inputs, strict=True):
        key = (re.sub(r"\d+(?=[^\[\]]*'\])", "*", name), graph.tensors[tensor].shape, placement.tensors[tensor])
        found.setdefault(key, []).append(graph.tensors[tensor].bytes)
    return [
        {
            "name": name,
            "count": len(sizes),
            "shape": list(shape),
            "cut": [" x ".join(mesh.names[axis] for axis in axes) for axes in layout],
            "bytes": sum(sizes) // _parts(layout, mesh.sizes),
        }
        for (name, shape, layout), sizes in found.items()
    ]


def _parts(layout: Layout, sizes: Sequence[int]) -> int:
    count = 1
    for axes in layout:
        for axis in axes:
            count *= sizes[axis]
    return count
