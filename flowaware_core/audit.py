"""What XLA really compiled, held against what the plan predicted.

Bytes are those that one device puts in, times loop trip counts. A kind passes within `BYTES_TOLERANCE` of the prediction or
within `BYTES_FLOOR` bytes of it, and a kind that was not predicted may hold at most `STRAY_SHARE` of all bytes. Memory is held
against the prediction for the backend that compiled and passes within `MEMORY_TOLERANCE`, `MEMORY_FLOOR` bytes or
`MEMORY_SHARE` of the device's memory; it is None where that backend's memory says nothing about the target.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Protocol

import jax

from flowaware_core import hlo, versions
from flowaware_core.cost.trace import trace
from flowaware_core.explain import GIB, size
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Placement
from flowaware_core.plan import Plan

BYTES_TOLERANCE = 0.10
BYTES_FLOOR = 64 * 1024
STRAY_SHARE = 0.01
MEMORY_TOLERANCE = 0.15
# Layouts and scratch of a tiny program, not what decides a plan: so many bytes, or such a part of a device's memory.
MEMORY_FLOOR, MEMORY_SHARE = 2**23, 1e-3
# So many lines of the program are named.
NAMED = 10

# The scope in which an operator and the moves of its operands are replayed.
_OPERATOR = re.compile(r"\bop(\d+)(?:\.operand)?(?=/|$)")


@dataclasses.dataclass(frozen=True)
class Audit:
    """Prediction and compilation side by side.

    Attributes:
        target: the cluster planned for.
        backend: the platform that compiled.
        devices: number of devices compiled for.
        collectives: kind -> {"predicted": {count, bytes}, "compiled": {count, bytes}}.
        memory: {"predicted": bytes, "compiled": bytes or None} of one device.
        flops: likewise for one device and one step.
        findings: what is off, a sentence each; empty when all is well.
        notes: what was read differently from how it is written, such as a rewritten reduce-scatter.
    """

    target: str
    backend: str
    devices: int
    collectives: dict[str, dict[str, dict[str, int]]]
    memory: dict[str, int | None]
    flops: dict[str, float | None]
    findings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """The contract's audit.json."""
        return {**dataclasses.asdict(self), "findings": list(self.findings), "notes": list(self.notes), "ok": self.ok}

    def describe(self) -> str:
        """A few lines for a person."""
        lines = [f"Audit: compiled for {self.devices} {self.backend} devices, held against the plan for {self.target}"]
        for kind, sides in self.collectives.items():
            predicted, compiled = sides["predicted"], sides["compiled"]
            lines.append(
                f"  {kind:<20} predicted {predicted['count']:>5} with {size(predicted['bytes']):>11}"
                f"   compiled {compiled['count']:>5} with {size(compiled['bytes']):>11}"
            )
        predicted_memory, compiled_memory = self.memory["predicted"], self.memory["compiled"]
        shown = "not known" if compiled_memory is None else f"{compiled_memory / GIB:.2f} GiB"
        lines.append(f"  memory of one device predicted {(predicted_memory or 0) / GIB:.2f} GiB   compiled {shown}")
        lines += [f"  note: {note}" for note in self.notes]
        lines += [f"  off: {finding}" for finding in self.findings]
        failed = (
            "AUDIT FAILED: prediction and compiled program differ in what is off above; results are right either way"
        )
        lines.append("  audit passed" if self.ok else f"  {failed}")
        return "\n".join(lines)


class Split(Protocol):
    """What a finding needs to name the lines of the program that it comes from: `Step` has it."""

    @property
    def graph(self) -> Graph: ...

    @property
    def placement(self) -> Placement: ...


def audit(compiled: jax.stages.Compiled, plan: Plan, step: Split | None = None) -> Audit:
    """Reads a compiled program and holds it against the plan's prediction, which was made before compiling.

    Args:
        compiled: what XLA made.
        plan: what it was made from.
        step: what `apply` gave; with it, findings name the lines of the program whose values are moved against the plan.
    """
    module = hlo.parse(compiled.as_text() or "")
    found = hlo.collectives(module, plan.num_devices)
    counted: dict[str, dict[str, int]] = collections.defaultdict(lambda: {"count": 0, "bytes": 0})
    notes = []
    for collective in found:
        times = 1 if collective.count is None else collective.count
        counted[collective.kind]["count"] += times
        counted[collective.kind]["bytes"] += times * collective.bytes
    unknown = sum(collective.count is None for collective in found)
    rewritten = sum(collective.rewritten for collective in found)
    if rewritten:
        notes.append(
            f"{rewritten} all-reduces whose result is cut at once are counted as the reduce-scatters they become on the target"
        )
    if unknown:
        notes.append(f"{unknown} collectives in loops with an unknown number of trips are counted once")
    predicted = plan.predicted.collectives
    nothing = {"count": 0, "bytes": 0}
    sides = {
        kind: {"predicted": dict(predicted.get(kind, nothing)), "compiled": dict(counted.get(kind, nothing))}
        for kind in hlo.KINDS
        if kind in predicted or kind in counted
    }
    backend = versions.backend(compiled)
    laid_out = plan.predicted.memory_on_cpu if backend == "cpu" else plan.predicted.memory
    held = versions.memory(compiled)
    memory = {"predicted": laid_out["total"], "compiled": None if held is None else held.total}
    flops = {"predicted": plan.predicted.flops, "compiled": hlo.flops(module)}
    findings = [
        *_collective_findings(sides),
        *_memory_findings(memory, max(MEMORY_FLOOR, MEMORY_SHARE * plan.device["usable_bytes"])),
    ]
    off = {kind for kind in sides if _off(sides[kind], sides)}
    if step is not None and off:
        findings += _strays(found, step, plan, off)
    return Audit(plan.cluster, backend, plan.num_devices, sides, memory, flops, tuple(findings), tuple(notes))


Sides = dict[str, dict[str, dict[str, int]]]


def _collective_findings(sides: Sides) -> list[str]:
    findings = []
    for kind, entry in sides.items():
        predicted, compiled = entry["predicted"], size(entry["compiled"]["bytes"])
        if _off(entry, sides) and predicted["count"]:
            findings.append(f"{kind}: {size(predicted['bytes'])} predicted, {compiled} compiled")
        elif _off(entry, sides):
            findings.append(f"{kind}: {compiled} compiled, none predicted")
    return findings


def _off(entry: dict[str, dict[str, int]], sides: Sides) -> bool:
    predicted, compiled = entry["predicted"]["bytes"], entry["compiled"]["bytes"]
    if not entry["predicted"]["count"]:
        total = sum(other["compiled"]["bytes"] for other in sides.values())
        return compiled > max(STRAY_SHARE * total, BYTES_FLOOR)
    return abs(predicted - compiled) > max(BYTES_TOLERANCE * compiled, BYTES_FLOOR)


def _strays(found: Sequence[hlo.Collective], step: Split, plan: Plan, kinds: set[str]) -> list[str]:
    """The operators around which a kind of collective moves more than planned, a line each, the largest first.

    An all-gather that nobody planned is a value that XLA replicates. Operators carry their number in the name of what is
    compiled for them.
    """
    extra: collections.Counter[tuple[str, int]] = collections.Counter()
    for collective in found:
        numbers = _OPERATOR.findall(collective.op_name)
        times = 1 if collective.count is None else collective.count
        extra[collective.kind, int(numbers[-1]) if numbers else -1] += times * collective.bytes
    for move in trace(step.graph, step.placement, tuple(plan.axes.values())).communications:
        extra[move.kind, move.operator] -= move.times * move.bytes
    operators = {operator.id: operator for operator, _ in step.graph.walk()}
    lines: collections.Counter[tuple[str, str]] = collections.Counter()
    for (kind, number), surplus in extra.items():
        if kind in kinds and surplus > 0:
            operator = operators.get(number)
            place = f"{operator.primitive} at {operator.source}" if operator else "carried values"
            lines[kind, place] += surplus
    return [
        f"{kind}: {size(surplus)} more than planned around {place}"
        + (", which XLA replicates against the plan" if kind == "all-gather" else "")
        for (kind, place), surplus in lines.most_common(NAMED)
    ]


def _memory_findings(memory: dict[str, int | None], floor: float) -> list[str]:
    predicted, compiled = memory["predicted"], memory["compiled"]
    if predicted is None or compiled is None:
        return []
    if abs(predicted - compiled) <= max(MEMORY_TOLERANCE * compiled, floor):
        return []
    return [f"memory: {predicted / GIB:.3f} GiB predicted, {compiled / GIB:.3f} GiB compiled"]
