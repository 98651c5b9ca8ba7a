"""What of a step runs when, where the task leaves it open: parts of the batch one after the other, blocks computed again.

Neither makes a step faster by itself: parts of the batch gather weights once each, and what is computed again is work. So they
are looked at only where memory binds: where the fastest plan does not fit, or where a faster one than the best that fits exists.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from flowaware_core.graph.recompute import POLICIES
from flowaware_core.program import Program
from flowaware_core.search.operators import Candidate, better
from flowaware_core.search.strategies import Planner, Result
from flowaware_core.task import Schedule

# What does not fit is cut into so many times as many parts as would do if its memory shrank as they do.
HASTE = 1.5


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """A program of one schedule, its planner, and what a strategy gave."""

    program: Program
    planner: Planner
    result: Result

    @property
    def fits(self) -> bool:
        return self.result.best.fits

    @property
    def schedule(self) -> Schedule:
        return self.program.task.schedule


def scheduled(first: Trial, again: Callable[[Schedule, float], Trial]) -> Trial:
    """The fastest that fits of the schedules a task allows, or what needs least memory.

    Args:
        first: the whole batch at once, everything kept.
        again: plans another schedule; what surely takes as many seconds as it is given need not be made to fit.
    """
    task = first.program.task
    if task.build is None or (first.fits and not first.result.limited) or first.result.hopeless:
        return first
    best = first
    seen: dict[str, dict[int, bool]] = {}
    for kept in ("", *POLICIES):
        names = task.kinds() if kept else ()
        if (kept and not names) or (kept == "few inputs" and best.fits):
            break
        counts: list[int] = [1]
        while counts:
            count = counts.pop()
            trial = first
            if count > 1 or kept:
                below = best.result.best.estimate.step_s if best.fits else math.inf
                trial = again(Schedule(count, tuple((name, kept) for name in names)), below)
                best = _better(best, trial)
                if trial.result.bound >= below:
                    break  # smaller parts take no less
            seen.setdefault(kept, {})[count] = trial.fits
            counts = _next(task.micro_batches, seen[kept], count, trial.result.best)
    return _relaxed(best, again)


def _next(allowed: Sequence[int], seen: Mapping[int, bool], count: int, found: Candidate) -> list[int]:
    """The number of micro-batches to look at next, if any: the fewest that may fit.

    Args:
        seen: numbers that were looked at, and whether a plan fitted.
        count, found: the latest of them, and its plan.
    """
    arguments, limit = found.estimate.usage.arguments, found.usable_bytes
    rest = found.estimate.usage.total - arguments  # shrinks with the micro-batch at best
    if found.fits:
        fewer = [
            other for other in allowed if other < count and not any(other <= known for known in seen if known != count)
        ]
        return [max(fewer)] if fewer and arguments + rest * count / max(fewer) <= limit else []
    more = [other for other in allowed if other > count and other not in seen]
    if not more or any(fits for known, fits in seen.items() if known > count):
        return []
    needed = HASTE * count * rest / (limit - arguments) if limit > arguments else 0.0
    return [next((other for other in more if other >= needed), more[-1]) if needed else more[0]]


def _relaxed(best: Trial, again: Callable[[Schedule, float], Trial]) -> Trial:
    """Kinds of blocks that need not be computed again, one after the other, keep everything."""
    schedule = best.schedule
    for name, _ in schedule.recompute if len(schedule.recompute) > 1 else ():
        fewer = tuple(pair for pair in best.schedule.recompute if pair[0] != name)
        below = best.result.best.estimate.step_s if best.fits else math.inf
        best = _better(best, again(Schedule(schedule.micro_batches, fewer), below))
    return best


def _better(one: Trial, other: Trial) -> Trial:
    return other if better(one.result.best, other.result.best) is other.result.best else one
