"""Memory of one device: arguments, and what is alive at the worst moment of the schedule.

    total = arguments + outputs that are not donated + max over moments of the temporaries alive

The compiler fuses elementwise operators into the loops that read them, so a value exists in memory only where something that is
not such a loop makes it or reads it; the others are recomputed, and what they are computed from lives as long as they are needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from flowaware_core.cost.trace import Buffer, Trace
from flowaware_core.graph.rules import ELEMENTWISE

# Loops that a compiler fuses with what reads them.
FUSIBLE = ELEMENTWISE | {
    "broadcast_in_dim",
    "reshape",
    "squeeze",
    "expand_dims",
    "slice",
    "iota",
    "rev",
    "transpose",
    "pad",
}
# Loops that what they read is fused into.
CONSUMING = FUSIBLE | {
    "reduce_sum",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_and",
    "reduce_or",
    "argmax",
    "argmin",
}


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


def materialised(trace: Trace) -> set[int]:
    """Moments of the buffers that exist in memory."""
    solid = {buffer.moment for buffer in trace.outputs if buffer is not None}
    solid |= {buffer.moment for buffer in trace.buffers if buffer.primitive not in FUSIBLE}
    for buffer in trace.buffers:
        if buffer.primitive not in CONSUMING:
            solid |= {source.moment for source in buffer.sources}
    return solid


def roots(trace: Trace, solid: set[int]) -> list[tuple[int, ...]]:
    """Per buffer the materialised buffers it is computed from."""
    found: list[tuple[int, ...]] = []
    for buffer in trace.buffers:
        reached: dict[int, None] = {}
        for source in buffer.sources:
            reached.update(dict.fromkeys((source.moment,) if source.moment in solid else found[source.moment]))
        found.append(tuple(reached))
    return found


def lifetimes(trace: Trace) -> dict[int, tuple[int, int]]:
    """Materialised buffer -> first and last moment at which it is needed."""
    solid = materialised(trace)
    reads = roots(trace, solid)
    last = {moment: moment for moment in solid}
    for buffer in trace.buffers:
        if buffer.moment in solid:
            for root in reads[buffer.moment]:
                last[root] = buffer.moment
    return {moment: (moment, last[moment]) for moment in sorted(solid)}


def usage(trace: Trace, donated: dict[int, int]) -> Usage:
    """Memory of a traced program.

    Args:
        trace: the program played through.
        donated: input position -> output position that takes its memory.
    """
    arguments = sum(buffer.bytes for buffer in trace.inputs)
    outputs = sum(buffer.bytes for buffer in trace.outputs if buffer is not None)
    aliases = sum(trace.outputs[output].bytes for output in donated.values() if trace.outputs[output] is not None)
    outside = {buffer.moment for buffer in (*trace.inputs, *trace.outputs) if buffer is not None}
    return Usage(arguments, outputs, _peak(trace.buffers, lifetimes(trace), outside), aliases)


def _peak(buffers: Sequence[Buffer], alive: dict[int, tuple[int, int]], outside: set[int]) -> int:
    change: dict[int, int] = {}
    for moment, (first, last) in alive.items():
        if moment not in outside and last > first:
            change[first] = change.get(first, 0) + buffers[moment].bytes
            change[last + 1] = change.get(last + 1, 0) - buffers[moment].bytes
    peak = now = 0
    for moment in sorted(change):
        now += change[moment]
        peak = max(peak, now)
    return peak
