"""Where a loss is cut and which devices each stage has: drafts by the weights of equations, corrected by the plans of stages."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import jax

from flowaware_core.chain import Chain
from flowaware_core.cluster.groups import Group
from flowaware_core.cluster.model import Cluster
from flowaware_core.graph.owners import Split
from flowaware_core.planned import PlannedStage, planned_of, program_of
from flowaware_core.search.partition import Partition, pipelined
from flowaware_core.search.strategies import Planner
from flowaware_core.whole import Whole
from flowaware_core.wish import Wish

# Plans of all stages, each with weights corrected by the one before.
ROUNDS = 3
# Stages whose loads differ by no more are not cut anew.
EVEN = 0.05


@dataclasses.dataclass(frozen=True, eq=False)
class Draft:
    """The best cuts if the devices of a stage share its examples.

    Attributes:
        micro_batches: parts of the batch.
        groups: that stages may have.
        free: whether groups are chosen; otherwise they are one behind the other.
        found: cuts, and places in `groups`.
    """

    micro_batches: int
    groups: tuple[Group, ...]
    free: bool
    found: Partition

    @property
    def step_s(self) -> float:
        return pipelined(self.found.loads, self.micro_batches)

    @property
    def turns(self) -> int:
        return self.micro_batches + len(self.found.loads) - 1

    def expected_s(self, slower: float) -> float:
        """Seconds of a step if every turn of all stages takes so much longer than drafted."""
        return self.step_s + slower * self.turns


@dataclasses.dataclass(frozen=True, eq=False)
class Division:
    """Cuts, the stages between them, and the update among them."""

    cuts: tuple[int, ...]
    stages: tuple[PlannedStage, ...]
    split: Split

    @property
    def loads(self) -> list[float]:
        return [stage.load_s for stage in self.stages]

    @property
    def fits(self) -> bool:
        return all(stage.fits for stage in self.stages)

    def step_s(self, micro_batches: int) -> float:
        """Seconds of a step."""
        return pipelined(self.loads, micro_batches) + max(stage.update_s for stage in self.stages)


class Cutting:
    """Drafts of a pipeline, and the plans of their stages.

    Args:
        whole: loss and update, by the number of micro-batches.
        cluster: all devices.
        wish: what is given.
        parts: the numbers of micro-batches that are looked at, ascending.
    """

    def __init__(self, whole: Callable[[int], Whole], cluster: Cluster, wish: Wish, parts: Sequence[int]):
        self._whole, self._wish, self._parts = whole, wish, parts
        self._traced = functools.cache(lambda part: Chain.of(whole(part).trunk, cluster, wish.groups))

    def fixed(self) -> list[Draft]:
        """Of equal groups, or of the given ones."""
        return [draft for groups in self._wish.fixed for draft in self._drafts(groups, False)]

    def free(self) -> list[Draft]:
        """Of any groups, without what is among the fixed."""
        if not self._wish.any_of:
            return []
        return [draft for draft in self._drafts(self._wish.any_of, True) if self._row(draft) not in self._wish.fixed]

    def planned(self, draft: Draft) -> Division:
        """The best cuts and groups, corrected by what the plans of the stages say."""
        parts, found = draft.micro_batches, draft.found
        chain = self._ready(self._traced(parts), draft.groups, parts)
        tried: dict[tuple[tuple[int, ...], tuple[int, ...]], Division] = {}
        while len(tried) < ROUNDS and (found.cuts, found.places) not in tried:
            division = tried[found.cuts, found.places] = self._division(chain, found, parts)
            given = self._wish.cuts is not None or min(division.loads) > (1 - EVEN) * max(division.loads)
            if given and not draft.free:
                break
            chain = chain.corrected(found, [one.forward_s + one.backward_s for one in division.stages])
            found = self._best(chain, parts, draft.free) or found
        return min(tried.values(), key=lambda one: (not one.fits, one.step_s(parts)))

    def _drafts(self, groups: tuple[Group, ...], free: bool) -> Iterator[Draft]:
        """The given or the best cuts, for each number of micro-batches."""
        first, last = self._parts[0], self._parts[-1]
        for part in self._parts:
            if part >= (2 if free else len(groups)) or part == last:
                chain = self._traced(last)
                if part != last:
                    chain = self._traced(first).between(chain, first / part, first / last)
                found = self._best(self._ready(chain, groups, part), part, free)
                if found is not None:
                    yield Draft(part, groups, free, found)

    def _ready(self, chain: Chain, groups: tuple[Group, ...], part: int) -> Chain:
        """For these groups and micro-batches, and to be cut where it may be."""
        whole = self._whole(self._parts[-1])
        cuts, chain = (
            self._wish.resolved(whole),
            chain.among(groups).shared(jax.tree.leaves(whole.batch)[0].shape[0] // part),
        )
        return chain if cuts is None else chain.at(cuts)

    def _best(self, chain: Chain, part: int, free: bool) -> Partition | None:
        return chain.partition(part, self._wish.stages if free else None)

    def _division(self, chain: Chain, found: Partition, parts: int) -> Division:
        split, stages = self._whole(parts).stages(found.cuts)
        planned: list[PlannedStage] = []
        rowed: tuple[bool, ...] = ()
        for number, (stage, entry, place) in enumerate(zip(stages, chain.entries(found), found.places, strict=True)):
            program, rowed = program_of(stage, f"stage {number}", rowed)
            inside, examples = chain.groups[place].cluster, self._wish.inner(number)
            planner = Planner(program.graph, program.structure, inside, examples=examples)
            planned.append(planned_of(stage, program, planner, self._wish.strategy, entry, len(stages) - number))
        return Division(found.cuts, tuple(planned), split)

    @staticmethod
    def _row(draft: Draft) -> tuple[Group, ...]:
        return tuple(draft.groups[place] for place in draft.found.places)
