"""A training step in stages: groups of devices that each hold a part of the model and pass micro-batches along.

`pipeline` cuts the loss where the step is fastest, plans each stage on its own devices, and predicts the whole. A stage keeps what
the way back needs of every micro-batch under way; where not all of that fits, the rest is computed again from what comes in.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from flowaware_core.chain import Chain, inside_of, outermost
from flowaware_core.cluster.mesh import meshes
from flowaware_core.cluster.model import GIB, Cluster
from flowaware_core.garbage import collection_paused
from flowaware_core.graph.owners import Inseparable, Split
from flowaware_core.planned import PlannedStage, planned_of, program_of
from flowaware_core.search.partition import pipelined
from flowaware_core.search.strategies import STRATEGIES, Planner
from flowaware_core.task import abstract
from flowaware_core.training import MOST_MICRO_BATCHES, Outcome, Training
from flowaware_core.whole import Whole

# Plans of all stages, each with weights corrected by the one before.
ROUNDS = 3
# Numbers of stages and micro-batches that are planned.
TRIES = 3
# Stages whose loads differ by no more are not cut anew.
EVEN = 0.05
# How much faster plans of stages are found to be than devices that share the examples of a micro-batch.
OPTIMISM = 0.9


@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """A training step in stages.

    Attributes:
        training, state, batch: what is trained, abstract.
        cluster: all devices.
        micro_batches: parts of the batch.
        cuts: the equations of the loss before which it is cut.
        stages: in order.
        split: the update among them.
        name: what it is called.
    """

    training: Training
    state: Any
    batch: Any
    cluster: Cluster
    micro_batches: int
    cuts: tuple[int, ...]
    stages: tuple[PlannedStage, ...]
    split: Split
    name: str

    @property
    def step_s(self) -> float:
        """Predicted seconds of a step."""
        return _step_s(self.stages, self.micro_batches)

    @property
    def imbalance(self) -> float:
        """By how much the lightest stage is below the busiest, as a part of the busiest."""
        loads = [stage.load_s for stage in self.stages]
        return 1.0 - min(loads) / max(loads)

    @property
    def idle(self) -> float:
        """The part of a step in which a stage has nothing to do or waits for what is on its way, of all stages together."""
        busy = [self.micro_batches * (stage.forward_s + stage.backward_s) + stage.update_s for stage in self.stages]
        return 1.0 - sum(busy) / (len(busy) * self.step_s)

    @property
    def fits(self) -> bool:
        return _fit(self.stages, self.cluster)

    def describe(self) -> str:
        """A table for a person, one line a stage."""
        lines = [
            f"{len(self.stages)} stages of {self.cluster.num_devices // len(self.stages)} devices, {self.micro_batches} "
            f"micro-batches, predicted step {self.step_s * 1e3:.3g} ms",
            "stage  weights  forward ms  backward ms  entry ms  update ms  memory GiB",
        ]
        for number, planned in enumerate(self.stages):
            lines.append(
                f"{number:>5}  {len(planned.stage.own):>7}  {planned.forward_s * 1e3:>10.3g}  {planned.backward_s * 1e3:>11.3g}"
                f"  {planned.entry_s * 1e3:>8.3g}  {planned.update_s * 1e3:>9.3g}  {planned.memory_bytes / GIB:>10.3g}"
            )
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
) -> Pipeline:
    """Finds the fastest split of a training step into stages, or plans the one that is given.

    Args:
        training: loss and optimizer.
        state, batch: arrays or shapes.
        cluster: the devices; stages are groups of the members of its outermost level that has several.
        stages: how many; None chooses.
        micro_batches: how many parts of the batch; None chooses among those that the loss allows.
        name: what the pipeline is called.
        below: seconds; what is thought to take as long is not planned.
        cuts: where the stages after the first begin: names of parameters, or the beginnings of such names, as `describe` prints
            them ("0['params']['layer3']"), of which each is first read there; or numbers of equations, as `Pipeline.cuts` has
            them. None chooses.
        examples: per stage over how many of its devices the examples of a micro-batch are spread, in all that holds any; the
            others share what remains. None for a stage, or for all: whatever is fastest.
        strategy: how each stage is planned on its devices, one of `STRATEGIES`.

    Raises:
        ValueError: the members of the outermost level do not divide into so many stages, the loss does not split into so many
            parts, or cuts, examples or strategy cannot be followed.
        Inseparable: a ValueError: the loss has no place for so many cuts, or the update mixes parameters of several stages.
    """
    with collection_paused():
        wish = _Wish(None if cuts is None else tuple(cuts), None if examples is None else tuple(examples), strategy)
        return _pipeline(training, abstract(state), abstract(batch), cluster, stages, micro_batches, below, name, wish)


def _pipeline(
    training: Training,
    state: Any,
    batch: Any,
    cluster: Cluster,
    stages: int | None,
    micro_batches: int | None,
    below: float,
    name: str,
    wish: _Wish,
) -> Pipeline:
    task = training.task(state, batch, name)
    outer = outermost(cluster)
    groups = [count for count in range(2, outer.size + 1) if outer.size % count == 0]
    stages = wish.stages(stages, cluster)
    if stages is not None and stages not in groups:
        raise ValueError(
            f"stages={stages}; the {outer.size} {outer.name}s of {cluster.name} divide into {groups or 'no stages'}"
        )
    allowed = _divisors(batch, training)
    if micro_batches is not None and micro_batches not in allowed:
        raise ValueError(f"micro_batches={micro_batches}; this batch and loss allow {list(allowed)}")
    parts = allowed if micro_batches is None else [micro_batches]
    whole = _wholes(training, state, batch)
    chosen = groups if stages is None else [stages]
    drafts = [draft for count in chosen for draft in _drafts(whole, cluster, count, parts, wish)]
    if not drafts:
        raise Inseparable(
            f"the loss of {task.name} has too few places to cut it into stages; repeated layers in a loop have none"
        )
    best: Pipeline | None = None
    slower = 0.0  # per turn of all stages, than drafted
    for _ in range(TRIES):
        draft = min(drafts, key=lambda draft: draft.step_s + slower * draft.turns)
        expected = draft.step_s + slower * draft.turns
        if OPTIMISM * expected >= min(below, best.step_s if best is not None and best.fits else math.inf):
            break
        drafts.remove(draft)
        planned = _planned_stages(whole(draft.micro_batches), cluster, draft, wish)
        found = Pipeline(training, state, batch, cluster, draft.micro_batches, *planned, name)
        best = found if best is None or _key(found) < _key(best) else best
        slower = max(slower, (found.step_s - draft.step_s) / draft.turns)
        if not drafts:
            break
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


@dataclasses.dataclass(frozen=True)
class _Wish:
    """What of a pipeline is given: see `pipeline`."""

    cuts: tuple[int | str, ...] | None
    examples: tuple[int | None, ...] | None
    strategy: str

    def stages(self, count: int | None, cluster: Cluster) -> int | None:
        """The number of stages that is asked for.

        Raises:
            ValueError: it is asked for twice and differs, or their devices cannot spread the examples so.
        """
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy={self.strategy!r}; allowed are {', '.join(STRATEGIES)}")
        counts = {} if count is None else {"stages": count}
        counts |= {} if self.cuts is None else {"cuts": len(self.cuts) + 1}
        counts |= {} if self.examples is None else {"examples": len(self.examples)}
        if len(set(counts.values())) > 1:
            said = " and ".join(f"{number} by {name}" for name, number in counts.items())
            raise ValueError(f"the number of stages is {said}; it must be the same")
        found = next(iter(counts.values()), None)
        if found and self.examples and outermost(cluster).size % found == 0:
            ways = sorted(frozenset().union(*(mesh.products for mesh in meshes(inside_of(cluster, found)))))
            for number in self.examples:
                if number is not None and number not in ways:
                    raise ValueError(f"examples={number}; the devices of a stage can spread them over {ways}")
        return found

    def resolved(self, whole: Whole) -> tuple[int, ...] | None:
        """The equations before which the loss is cut, if that is given.

        Raises:
            ValueError: a name that no parameter has, or cuts that do not ascend.
        """
        if self.cuts is None:
            return None
        found = tuple(whole.equation(cut) if isinstance(cut, str) else cut for cut in self.cuts)
        edges = (0, *found, len(whole.trunk.equations))
        if any(one >= other for one, other in itertools.pairwise(edges)):
            raise ValueError(
                f"cuts={list(self.cuts)} are before the equations {list(found)}; they must ascend between 1 and {edges[-1] - 1}"
            )
        return found

    def inner(self, stage: int) -> int | None:
        return None if self.examples is None else self.examples[stage]


@dataclasses.dataclass(frozen=True)
class _Draft:
    """Numbers of stages and micro-batches, cuts, and the seconds of a step if the devices of a stage share its examples."""

    stages: int
    micro_batches: int
    cuts: tuple[int, ...]
    step_s: float

    @property
    def turns(self) -> int:
        return self.micro_batches + self.stages - 1


def _wholes(training: Training, state: Any, batch: Any) -> Callable[[int], Whole]:
    """By the number of micro-batches; each is traced once."""
    extra = None if training.extra is None else state[training.extra]
    counts = jax.eval_shape(lambda *args: _counts(training.loss(*args)), state["params"], extra, batch, state["rng"])
    return functools.cache(lambda parts: Whole(training, state, batch, parts, counts))


def _counts(found: Outcome) -> dict[str, Any]:
    return {name: mean.count for name, mean in found.terms.items()}


def _drafts(
    whole: Callable[[int], Whole], cluster: Cluster, count: int, parts: Sequence[int], wish: _Wish
) -> Iterator[_Draft]:
    """The given or the best cuts into so many stages, for each number of micro-batches."""
    fewest, most = (Chain.of(whole(part).trunk, cluster, count) for part in (parts[0], parts[-1]))
    for part in parts:
        if part >= count or part == parts[-1]:
            chain = most if part == parts[-1] else fewest.between(most, parts[0] / part, parts[0] / parts[-1])
            cuts = chain.partition(count, part) if wish.cuts is None else wish.resolved(whole(parts[-1]))
            if cuts is not None:
                yield _Draft(count, part, cuts, pipelined(chain.loads(cuts), part))


def _planned_stages(
    whole: Whole, cluster: Cluster, draft: _Draft, wish: _Wish
) -> tuple[tuple[int, ...], tuple[PlannedStage, ...], Split]:
    """The best cuts into so many stages, corrected by what the plans of the stages say; the stages, and the update among them."""
    count, parts, cuts = draft.stages, draft.micro_batches, draft.cuts
    chain, inside = Chain.of(whole.trunk, cluster, count), inside_of(cluster, count)
    tried: dict[tuple[int, ...], tuple[tuple[PlannedStage, ...], Split]] = {}
    while len(tried) < ROUNDS and cuts not in tried:
        division, stages = whole.stages(cuts)
        planned: list[PlannedStage] = []
        rowed: tuple[bool, ...] = ()
        for number, (stage, entry) in enumerate(zip(stages, chain.entries(cuts), strict=True)):
            program, rowed = program_of(stage, f"stage {number}", rowed)
            planner = Planner(program.graph, program.structure, inside, examples=wish.inner(number))
            planned.append(planned_of(stage, program, planner, wish.strategy, entry, count - number))
        tried[cuts] = tuple(planned), division
        loads = [one.load_s for one in planned]
        if wish.cuts is not None or min(loads) > (1 - EVEN) * max(loads):
            break
        for (begin, end), one in zip(itertools.pairwise([0, *cuts, len(chain.weights)]), planned, strict=True):
            total = max(float(chain.weights[begin:end].sum()), 1e-30)
            chain.weights[begin:end] *= (one.forward_s + one.backward_s) / total
        cuts = chain.partition(count, parts) or cuts

    def key(cuts: tuple[int, ...]) -> tuple[bool, float]:
        planned = tried[cuts][0]
        return not _fit(planned, cluster), _step_s(planned, parts)

    best = min(tried, key=key)
    return best, *tried[best]


def _fit(stages: Sequence[PlannedStage], cluster: Cluster) -> bool:
    return all(stage.memory_bytes <= cluster.device.usable_bytes for stage in stages)


def _step_s(stages: Sequence[PlannedStage], micro_batches: int) -> float:
    """Seconds of a step."""
    return pipelined([stage.load_s for stage in stages], micro_batches) + max(stage.update_s for stage in stages)
