"""Memory of one device: arguments, and what is alive at the worst moment of the schedule.

    total = arguments + outputs that are not donated + max over moments of the temporaries alive

The compiler fuses elementwise operators into the loops that read them, so a value exists in memory only where something that is
not such a loop makes it or reads it; the others are recomputed, and what they are computed from lives as long as they are needed.

Two schedules are known. On the target, operators run in program order. The CPU compiler, which audits where no accelerator is,
differs in four ways that cost memory: it moves arguments at the very start, it joins reductions between devices and so delays
each until its result is first needed, it keeps the whole of a reduction of which every device needs a slice, and its
convolutions want reordered copies of their operands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from flowaware_core.cost.trace import COPY, Trace
from flowaware_core.graph.rules import ELEMENTWISE

# Loops that a compiler fuses with what reads them.
FUSIBLE = ELEMENTWISE | frozenset("broadcast_in_dim reshape squeeze expand_dims slice iota rev transpose pad".split())
# Loops that what they read is fused into.
CONSUMING = FUSIBLE | frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin".split()
)
MOVES = ("all-gather", "all-to-all", "slice", COPY)
REDUCTIONS = ("all-reduce", "reduce-scatter")


@dataclasses.dataclass(frozen=True)
class Usage:
    """Bytes on one device: `temporaries` is the peak of what is neither an argument nor a donated output."""

    arguments: int
    outputs: int
    temporaries: int
    aliases: int

    @property
    def total(self) -> int:
        return self.arguments + self.outputs + self.temporaries - self.aliases


def usage(trace: Trace, donated: Mapping[int, int], backend: str = "target") -> Usage:
    """Memory of a traced program.

    Args:
        trace: the program played through.
        donated: input position -> output position that takes its memory.
        backend: "target" or "cpu": whose schedule.
    """
    arguments = sum(buffer.bytes for buffer in trace.inputs)
    outputs = sum(buffer.bytes for buffer in trace.outputs if buffer is not None)
    taken = [trace.outputs[output] for output in donated.values()]
    aliases = sum(buffer.bytes for buffer in taken if buffer is not None)
    outside = {buffer.moment for buffer in (*trace.inputs, *trace.outputs) if buffer is not None}
    alive = {m: span for m, span in lifetimes(trace, backend).items() if m not in outside and span[1] > span[0]}
    sizes = {m: trace.buffers[m].written if backend == "cpu" else trace.buffers[m].bytes for m in alive}
    return Usage(arguments, outputs, _peak(sizes, alive), aliases)


def lifetimes(trace: Trace, backend: str = "target") -> dict[int, tuple[int, int]]:
    """Buffers that exist in memory -> the first and the last moment at which they are needed."""
    fusible = FUSIBLE if backend == "cpu" else FUSIBLE | {COPY}
    solid = _materialised(trace, fusible)
    reads = _roots(trace, solid)
    first = {moment: moment for moment in solid}
    if backend == "cpu":
        _start_early(trace, solid, reads, first)
        _join_reductions(trace, solid, reads, first)
    last = dict(first)
    for moment in solid:
        for root in reads[moment]:
            last[root] = max(last[root], first[moment])
    return {moment: (first[moment], last[moment]) for moment in sorted(solid)}


def _materialised(trace: Trace, fusible: frozenset[str]) -> set[int]:
    solid = {buffer.moment for buffer in trace.outputs if buffer is not None}
    solid |= {buffer.moment for buffer in trace.buffers if buffer.primitive not in fusible}
    consuming = CONSUMING | fusible | {COPY}
    for buffer in trace.buffers:
        if buffer.primitive not in consuming:
            solid |= {source.moment for source in buffer.sources if source.primitive != COPY or COPY not in fusible}
    return solid


def _roots(trace: Trace, solid: set[int]) -> list[tuple[int, ...]]:
    """Per buffer the materialised buffers it is computed from."""
    found: list[tuple[int, ...]] = []
    for buffer in trace.buffers:
        reached: dict[int, None] = {}
        for source in buffer.sources:
            reached.update(dict.fromkeys((source.moment,) if source.moment in solid else found[source.moment]))
        found.append(tuple(reached))
    return found


def _start_early(trace: Trace, solid: set[int], reads: list[tuple[int, ...]], first: dict[int, int]) -> None:
    """What only moves arguments runs before everything else: gathers first, then the rest."""
    early = {buffer.moment for buffer in trace.buffers if buffer.primitive in ("input", "constant")}
    for moment in sorted(solid):
        moved = trace.buffers[moment].primitive in MOVES
        if moved and reads[moment] and all(root in early for root in reads[moment]):
            early.add(moment)
            first[moment] = -2 if trace.buffers[moment].primitive == "all-gather" else -1


def _join_reductions(trace: Trace, solid: set[int], reads: list[tuple[int, ...]], first: dict[int, int]) -> None:
    needed: dict[int, int] = {}
    for moment in sorted(solid):
        for root in reads[moment]:
            needed[root] = min(needed.get(root, moment), moment)
    for moment in solid:
        if trace.buffers[moment].primitive in REDUCTIONS and moment in needed:
            first[moment] = needed[moment]


def _peak(sizes: Mapping[int, int], alive: Mapping[int, tuple[int, int]]) -> int:
    change: dict[int, int] = {}
    for moment, (first, last) in alive.items():
        change[first] = change.get(first, 0) + sizes[moment]
        change[last + 1] = change.get(last + 1, 0) - sizes[moment]
    peak = now = 0
    for moment in sorted(change):
        now += change[moment]
        peak = max(peak, now)
    return peak
