"""The order of all passes of a pipeline, one list for all stages, and when each would run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Pass = tuple[int, Literal["forward", "backward"], int]


def order(stages: int, micro_batches: int) -> tuple[Pass, ...]:
    """All passes of a step, as (stage, direction, micro-batch), each after what it needs.

    A stage starts as many forward passes as there are stages behind it, then turns: one backward, one forward, so no more
    micro-batches wait in it than that. The last stage goes back at once: its backward pass computes the forward pass too.
    """
    plans = [_passes(stage, stages, micro_batches) for stage in range(stages)]
    at, done, found = [0] * stages, set[Pass](), list[Pass]()
    while len(found) < sum(map(len, plans)):
        before = len(found)
        # What can start at once, the stages behind first: they have waited longest.
        for stage in reversed(range(stages)):
            if at[stage] < len(plans[stage]):
                direction, number = plans[stage][at[stage]]
                needs = (
                    {(stage - 1, "forward", number)}
                    if stage and (direction == "forward" or stage == stages - 1)
                    else set()
                )
                if direction == "backward" and stage < stages - 1:
                    needs.add((stage + 1, "backward", number))
                if needs <= done:
                    found.append((stage, direction, number))
                    at[stage] += 1
        assert len(found) > before, "a pass waits for itself"
        done.update(found[before:])
    return tuple(found)


class Timed(NamedTuple):
    """A pass, with its seconds from the start of the step."""

    stage: int
    direction: Literal["forward", "backward"]
    number: int
    start_s: float
    seconds: float


def timetable(
    forward_s: Sequence[float], backward_s: Sequence[float], entry_s: Sequence[float], micro_batches: int
) -> tuple[Timed, ...]:
    """When each pass runs: once its stage is free and what it needs has arrived.

    Args:
        forward_s, backward_s: of a micro-batch, per stage.
        entry_s: per stage, in which a micro-batch gets there and its derivatives back; half of it keeps each pass waiting.
        micro_batches: how many.
    """
    stages = len(forward_s)
    free, ended, found = [0.0] * stages, dict[Pass, float](), list[Timed]()
    for stage, direction, number in order(stages, micro_batches):
        # The last stage has one pass for both directions, which everything it needs comes to forwards.
        comes = direction == "forward" or stage == stages - 1
        before: Pass = (stage - 1, "forward", number) if comes else (stage + 1, "backward", number)
        travels = entry_s[stage] if comes else entry_s[stage + 1]
        start = max(free[stage], ended[before] + travels / 2 if before in ended else 0.0)
        seconds = forward_s[stage] if direction == "forward" else backward_s[stage]
        ended[stage, direction, number] = free[stage] = start + seconds
        found.append(Timed(stage, direction, number, start, seconds))
    return tuple(found)


def _passes(stage: int, stages: int, micro_batches: int) -> list[tuple[Literal["forward", "backward"], int]]:
    if stage == stages - 1:
        return [("backward", number) for number in range(micro_batches)]
    ahead = min(stages - 1 - stage, micro_batches)
    found: list[tuple[Literal["forward", "backward"], int]] = [("forward", number) for number in range(ahead)]
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            found.append(("forward", ahead + number))
        found.append(("backward", number))
    return found
