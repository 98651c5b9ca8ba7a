"""A training step in stages: groups of devices that each hold a part of the model and pass micro-batches along.

`pipeline` cuts the loss and divides the devices where the step is fastest, plans each stage on its own devices, and predicts the
whole. A stage keeps what the way back needs of every micro-batch under way; where not all of that fits, the rest is computed again
from what comes in.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax

from flowaware_core.cluster.model import GIB, Cluster
from flowaware_core.cutting import Cutting, Division
from flowaware_core.garbage import collection_paused
from flowaware_core.graph.owners import Inseparable, Split
from flowaware_core.planned import PlannedStage
from flowaware_core.task import abstract
from flowaware_core.training import MOST_MICRO_BATCHES, Outcome, Training
from flowaware_core.whole import Whole
from flowaware_core.wish import Wish

# Numbers of stages and micro-batches that are planned, of equal groups and then of any.
TRIES = 3
# How much faster plans of stages are found to be than devices that share the examples of a micro-batch.
OPTIMISM = 0.9


@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """A training step in stages.

    Attributes:
        training, state, batch: what is trained, abstract.
        cluster: all devices.
        micro_batches: parts of the batch.
        division: cuts, stages, and the update among them.
        name: what it is called.
    """

    training: Training
    state: Any
    batch: Any
    cluster: Cluster
    micro_batches: int
    division: Division
    name: str

    @property
    def cuts(self) -> tuple[int, ...]:
        """The equations of the loss before which it is cut."""
        return self.division.cuts

    @property
    def stages(self) -> tuple[PlannedStage, ...]:
        """In order."""
        return self.division.stages

    @property
    def split(self) -> Split:
        """The update among the stages."""
        return self.division.split

    @property
    def step_s(self) -> float:
        """Predicted seconds of a step."""
        return self.division.step_s(self.micro_batches)

    @property
    def groups(self) -> tuple[int, ...]:
        """Devices of each stage."""
        return tuple(stage.devices for stage in self.stages)

    @property
    def imbalance(self) -> float:
        """By how much the lightest stage is below the busiest, as a part of the busiest."""
        loads = self.division.loads
        return 1.0 - min(loads) / max(loads)

    @property
    def idle(self) -> float:
        """The part of a step in which a device has nothing to do or waits for what is on its way, of all devices together."""
        busy = [self.micro_batches * (stage.forward_s + stage.backward_s) + stage.update_s for stage in self.stages]
        spent = sum(one * devices for one, devices in zip(busy, self.groups, strict=True))
        return 1.0 - spent / (sum(self.groups) * self.step_s)

    @property
    def fits(self) -> bool:
        return self.division.fits

    def describe(self) -> str:
        """A table for a person, one line a stage."""
        sizes = self.groups[:1] if len(set(self.groups)) == 1 else self.groups
        lines = [
            f"{len(self.stages)} stages of {' + '.join(map(str, sizes))} devices, {self.micro_batches} micro-batches, "
            f"predicted step {self.step_s * 1e3:.3g} ms",
            "stage  devices  weights  forward ms  backward ms  entry ms  update ms  memory GiB",
        ]
        for number, planned in enumerate(self.stages):
            seconds = (planned.forward_s, planned.backward_s, planned.entry_s, planned.update_s)
            spent = (f"{1e3 * one:>{width}.3g}" for one, width in zip(seconds, (10, 11, 8, 9), strict=True))
            about = f"{number:>5}  {planned.devices:>7}  {len(planned.stage.own):>7}"
            lines.append("  ".join([about, *spent, f"{planned.memory_bytes / GIB:>10.3g}"]))
        return "\n".join(lines)


def pipeline(
    training: Training,
    state: Any,
    batch: Any,
    cluster: Cluster,
    stages: int | None = None,
    micro_batches: int | None = None,
    below: float = math.inf,
    name: str = "task",
    cuts: Sequence[int | str] | None = None,
    examples: Sequence[int | None] | None = None,
    strategy: str = "auto",
    groups: Sequence[int] | None = None,
) -> Pipeline:
    """Finds the fastest split of a training step into stages, or plans the one that is given.

    Args:
        training: loss and optimizer.
        state, batch: arrays or shapes.
        cluster: the devices; a stage has some members of a level, inside one member of the level around it.
        stages: how many; None chooses.
        micro_batches: how many parts of the batch; None chooses among those that the loss allows.
        name: what the pipeline is called.
        below: seconds; what is thought to take as long is not planned.
        cuts: where the stages after the first begin: names of parameters, or the beginnings of such names, as `describe` prints
            them ("0['params']['layer3']"), of which each is first read there; or numbers of equations, as `Pipeline.cuts` has
            them. None chooses.
        examples: per stage over how many of its devices the examples of a micro-batch are spread, in all that holds any; the
            others share what remains. None for a stage, or for all: whatever is fastest. Where any is given, groups are equal
            unless they are given too.
        strategy: how each stage is planned on its devices, one of `STRATEGIES`.
        groups: per stage how many devices it has, all devices together. None chooses: equal groups of members of the outermost
            level that has several, or any others that are predicted to be faster.

    Raises:
        ValueError: the devices do not divide into so many stages or these groups, the loss does not split into so many parts,
            or cuts, examples or strategy cannot be followed.
        Inseparable: a ValueError: the loss has no place for so many cuts, or the update mixes parameters of several stages.
    """
    with collection_paused():
        wish = Wish.of(cluster, stages, cuts, examples, strategy, groups)
        return _pipeline(training, abstract(state), abstract(batch), cluster, micro_batches, below, name, wish)


def _pipeline(
    training: Training,
    state: Any,
    batch: Any,
    cluster: Cluster,
    micro_batches: int | None,
    below: float,
    name: str,
    wish: Wish,
) -> Pipeline:
    task = training.task(state, batch, name)
    allowed = _divisors(batch, training)
    if micro_batches is not None and micro_batches not in allowed:
        raise ValueError(f"micro_batches={micro_batches}; this batch and loss allow {list(allowed)}")
    parts = allowed if micro_batches is None else [micro_batches]
    cutting = Cutting(_wholes(training, state, batch), cluster, wish, parts)
    best: Pipeline | None = None
    drafted = False
    # Equal groups first, each division once at least: whatever else is taken is faster than the best of them.
    for drafts in (cutting.fixed, cutting.free):
        left, tries, slower = drafts(), 0, 0.0  # per turn of all stages, than drafted
        drafted |= bool(left)
        new = {len(draft.groups) for draft in left if not draft.free}
        while left and (new or tries < TRIES):
            among = [one for one in left if not new or len(one.groups) in new]
            expected_s, draft = min(((one.expected_s(slower), one) for one in among), key=lambda pair: pair[0])
            known_s = best.step_s if best is not None and best.fits and not new else math.inf
            if OPTIMISM * expected_s >= min(below, known_s):
                break
            left.remove(draft)
            new.discard(len(draft.groups))
            tries += 1
            found = Pipeline(training, state, batch, cluster, draft.micro_batches, cutting.planned(draft), name)
            best = found if best is None or _key(found) < _key(best) else best
            slower = max(slower, (found.step_s - draft.step_s) / draft.turns)
    if not drafted:
        raise Inseparable(
            f"the loss of {task.name} has too few places to cut it into stages; repeated layers in a loop have none"
        )
    if best is None:
        raise Inseparable(f"no pipeline of {task.name} on {cluster.name} takes less than {below:.3g} s a step")
    return best


def _key(found: Pipeline) -> tuple[bool, float]:
    return not found.fits, found.step_s


def _divisors(batch: Any, training: Training) -> list[int]:
    """The numbers of micro-batches that a batch may run in."""
    rows = jax.tree.leaves(batch)[0].shape[0]
    most = min(rows, MOST_MICRO_BATCHES) if training.splits else 1
    return [count for count in range(1, most + 1) if rows % count == 0]


def _wholes(training: Training, state: Any, batch: Any) -> Callable[[int], Whole]:
    """By the number of micro-batches; each is traced once."""
    extra = None if training.extra is None else state[training.extra]
    counts = jax.eval_shape(lambda *args: _counts(training.loss(*args)), state["params"], extra, batch, state["rng"])
    return functools.cache(lambda parts: Whole(training, state, batch, parts, counts))


def _counts(found: Outcome) -> dict[str, Any]:
    return {name: mean.count for name, mean in found.terms.items()}
