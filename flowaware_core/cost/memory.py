"""Memory of one device: arguments, and what is alive at the worst moment of the schedule.

    total = arguments + outputs that are not donated + max over moments of the temporaries alive

The compiler fuses elementwise operators into the loops that read them, so a value exists in memory only where something that is
not such a loop makes it or reads it, or where several loops read it and it is dear; the others are recomputed, and what they are
computed from lives as long as they are needed.

Two schedules are known. On the target, operators run in program order. The CPU compiler, which audits where no accelerator is,
differs in seven ways that cost memory: it moves arguments at the very start, and makes zeros to add to there too; it joins
reductions between devices and so delays each until its result is first needed, it keeps the whole of a reduction of which every
device needs a slice, its convolutions want reordered copies of their operands, it exchanges tensors in pieces that are copies, and
it reduces long dimensions in several steps, of which the first reads from memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from flowaware_core.cost.trace import COPY, PIECES, ZEROS, Trace
from flowaware_core.graph.fusion import CONSUMING, COSTLY, FUSIBLE

MOVES = ("all-gather", "all-to-all", "slice", COPY, PIECES)
REDUCTIONS = ("all-reduce", "reduce-scatter")
BITCASTS = ("reshape", "expand_dims", "squeeze")


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
    # What ends when it begins is never read, unless it was put off until the one moment that reads it.
    alive = {m: s for m, s in lifetimes(trace, backend).items() if m not in outside and (s[1] > s[0] or s[0] > m)}
    sizes = {m: trace.buffers[m].written if backend == "cpu" else trace.buffers[m].bytes for m in alive}
    return Usage(arguments, outputs, _peak(sizes, alive), aliases)


def lifetimes(trace: Trace, backend: str = "target") -> dict[int, tuple[int, int]]:
    """Buffers that exist in memory -> the first and the last moment at which they are needed.

    A loop that can be fused never reads another such loop from memory: it computes it again from what that one was computed
    from. Such a buffer exists only for its readers that cannot fuse.
    """
    cpu = backend == "cpu"
    soft = [buffer.primitive in FUSIBLE for buffer in trace.buffers]
    for output in trace.outputs:
        if output is not None:
            soft[output.moment] = False
    first = _starts(trace, soft) if cpu else list(range(len(soft)))
    if cpu:
        _join_reductions(trace, soft, first)
    alive: dict[int, tuple[int, int]] = {}
    # Per buffer: until when something reads it from memory, until when a fused loop computes it again, and which loop does.
    read, recomputed, loops = [-3] * len(soft), [-3] * len(soft), [_NONE] * len(soft)
    for buffer in reversed(trace.buffers):
        moment = buffer.moment
        if buffer.primitive in BITCASTS and buffer.sources or buffer.primitive in (COPY, PIECES) and not cpu:
            # The same bytes; and the target's operators read any order, and it exchanges whole tensors: readers read what the
            # copy was made from.
            (source,) = buffer.sources
            read[source.moment] = max(read[source.moment], read[moment])
            recomputed[source.moment] = max(recomputed[source.moment], recomputed[moment])
            loops[source.moment] = _also(loops[source.moment], loops[moment])
            continue
        if buffer.primitive == ZEROS and not cpu:
            continue
        written = not soft[moment] or (loops[moment] == _SEVERAL and buffer.primitive in COSTLY)
        last = max(read[moment], recomputed[moment], first[moment]) if written else read[moment]
        exists = written or read[moment] > -3
        if exists:
            begin = first[moment] if buffer.since is None else min(first[moment], buffer.since)
            alive[moment] = (begin, max(last, first[moment]))
        until = max(first[moment] if exists else -3, -3 if written else recomputed[moment])
        consumes = buffer.primitive in CONSUMING and not (cpu and buffer.apart)
        fused = soft[moment] or consumes or buffer.primitive in (COPY, PIECES)
        for source in buffer.sources:
            needs = recomputed if fused else read
            needs[source.moment] = max(needs[source.moment], until)
            if fused:
                loops[source.moment] = _also(loops[source.moment], moment if exists else loops[moment])
    return dict(sorted(alive.items()))


# Which loop computes a value again, besides the moments of loops.
_NONE, _SEVERAL = -1, -2


def _also(known: int, loop: int) -> int:
    """The loop that is meant by one that is known and another."""
    if known in (_NONE, loop) or loop == _NONE:
        return loop if known == _NONE else known
    return _SEVERAL


def _starts(trace: Trace, soft: list[bool]) -> list[int]:
    """When the CPU's schedule computes each buffer.

    What only moves arguments runs before everything else, gathers first; a reordered copy is made as soon as it can be.
    """
    first = list(range(len(soft)))
    early = [False] * len(soft)
    ready = list(first)
    for buffer in trace.buffers:
        moment, sources = buffer.moment, buffer.sources
        ready[moment] = max((ready[source.moment] for source in sources), default=moment) if soft[moment] else moment
        if buffer.primitive in ("input", "constant"):
            early[moment] = True
        elif not sources and buffer.primitive != "argument":  # zeros to add to, which some reader wants in memory
            first[moment] = buffer.body or -1
        elif sources and all(early[source.moment] for source in sources):
            if soft[moment]:
                early[moment] = True
            elif buffer.primitive in MOVES:
                early[moment] = True
                first[moment] = -2 if buffer.primitive == "all-gather" else -1
        elif buffer.primitive == COPY and sources:
            first[moment] = max(ready[source.moment] for source in sources)
        if not soft[moment]:
            ready[moment] = first[moment]
    return first


def _join_reductions(trace: Trace, soft: list[bool], first: list[int]) -> None:
    """Delays each reduction until its result is first needed."""
    never = len(soft)
    needed = [never] * never
    for buffer in reversed(trace.buffers):
        moment = buffer.moment
        if buffer.primitive in REDUCTIONS and needed[moment] < never:
            first[moment] = max(first[moment], needed[moment])
        when = needed[moment] if soft[moment] else first[moment]
        for source in buffer.sources:
            needed[source.moment] = min(needed[source.moment], when)


def fullest(trace: Trace, alive: Mapping[int, tuple[int, int]]) -> int:
    """The moment at which most bytes are alive, inputs aside, which always are, and outputs, most of which take their place."""
    outside = {buffer.moment for buffer in (*trace.inputs, *trace.outputs) if buffer is not None}
    change: dict[int, int] = {}
    for moment, (first, last) in alive.items():
        if moment not in outside:
            change[first] = change.get(first, 0) + trace.buffers[moment].bytes
            change[last + 1] = change.get(last + 1, 0) - trace.buffers[moment].bytes
    peak, now, where = -1, 0, 0
    for moment in sorted(change):
        now += change[moment]
        if now > peak:
            peak, where = now, moment
    return where


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
