"""What of a step runs when, where the task leaves it open: parts of the batch one after the other, blocks computed again.

Neither makes a step faster by itself: parts of the batch gather weights once each, and what is computed again is work. So they
are looked at only where memory binds: where the fastest plan does not fit, or where a faster one than the best that fits exists.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from flowaware_core.graph.recompute import POLICIES
from flowaware_core.program import Program
from flowaware_core.search.operators import better
from flowaware_core.search.strategies import Planner, Result
from flowaware_core.task import Schedule


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


def scheduled(first: Trial, again: Callable[[Schedule], Trial]) -> Trial:
    """The fastest that fits of the schedules a task allows, or what needs least memory.

    Args:
        first: the whole batch at once, everything kept.
        again: plans another schedule.
    """
    task = first.program.task
    if task.build is None or (first.fits and not first.result.limited):
        return first
    best = first
    for kept in ("", *POLICIES):
        names = task.kinds() if kept else ()
        if kept and not names:
            break
        for count in task.micro_batches:
            trial = first
            if count > 1 or kept:
                trial = again(Schedule(count, tuple((name, kept) for name in names)))
                best = _better(best, trial)
            if trial.fits:
                break
    return _relaxed(best, again)


def _relaxed(best: Trial, again: Callable[[Schedule], Trial]) -> Trial:
    """Kinds of blocks that need not be computed again, one after the other, keep everything."""
    schedule = best.schedule
    for name, _ in schedule.recompute if len(schedule.recompute) > 1 else ():
        fewer = tuple(pair for pair in best.schedule.recompute if pair[0] != name)
        best = _better(best, again(Schedule(schedule.micro_batches, fewer)))
    return best


def _better(one: Trial, other: Trial) -> Trial:
    return other if better(one.result.best, other.result.best) is other.result.best else one
