"""What of a pipeline a person gives: cuts, groups of devices, where the examples are, how stages are planned."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from flowaware_core.cluster import groups as grouped
from flowaware_core.cluster.groups import Group
from flowaware_core.cluster.mesh import meshes
from flowaware_core.cluster.model import Cluster
from flowaware_core.search.strategies import STRATEGIES
from flowaware_core.whole import Whole

# Groups of less than this part of all devices are not looked at where no number of stages asks for them.
SMALLEST = 16


@dataclasses.dataclass(frozen=True)
class Wish:
    """What is given: see `pipeline`.

    Attributes:
        stages: how many, by any of the others.
        fixed: the divisions of the devices that are looked at as they are: those into equal groups, or the given one.
        any_of: the groups of which others are made; none where they are given.
    """

    stages: int | None
    cuts: tuple[int | str, ...] | None
    examples: tuple[int | None, ...] | None
    strategy: str
    fixed: tuple[tuple[Group, ...], ...]
    any_of: tuple[Group, ...]

    @staticmethod
    def of(
        cluster: Cluster,
        stages: int | None,
        cuts: Sequence[int | str] | None,
        examples: Sequence[int | None] | None,
        strategy: str,
        groups: Sequence[int] | None,
    ) -> Wish:
        """What is given, and can be.

        Raises:
            ValueError: a number is asked for twice and differs, the devices do not divide so, or the devices of a stage cannot
                spread the examples so.
        """
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy={strategy!r}; allowed are {', '.join(STRATEGIES)}")
        counts = {} if stages is None else {"stages": stages}
        counts |= {} if cuts is None else {"cuts": len(cuts) + 1}
        counts |= {} if examples is None else {"examples": len(examples)}
        counts |= {} if groups is None else {"groups": len(groups)}
        if len(set(counts.values())) > 1:
            said = " and ".join(f"{number} by {name}" for name, number in counts.items())
            raise ValueError(f"the number of stages is {said}; it must be the same")
        count = next(iter(counts.values()), None)
        if count is not None and not 2 <= count <= cluster.num_devices:
            known = f"2 to {cluster.num_devices}" if cluster.num_devices > 1 else "no"
            raise ValueError(
                f"stages={count}; the {cluster.num_devices} devices of {cluster.name} divide into {known} stages"
            )
        divisions = grouped.equal(cluster) if groups is None else [grouped.chain(cluster, groups)]
        fixed = tuple(one for one in divisions if count in (None, len(one)))
        spreads = examples is not None and any(number is not None for number in examples)
        if examples is not None and spreads:
            _check_examples(cluster, fixed, examples)
        least = max(1, cluster.num_devices // max(SMALLEST, 2 * (count or 0)))
        any_of = () if spreads or groups is not None else grouped.groups(cluster, least)
        given = None if cuts is None else tuple(cuts)
        return Wish(count, given, None if examples is None else tuple(examples), strategy, fixed, any_of)

    @property
    def groups(self) -> tuple[Group, ...]:
        """All that a stage may have."""
        found = {(one.begin, one.size): one for one in itertools.chain(*self.fixed, self.any_of)}
        return tuple(found[key] for key in sorted(found))

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


def _check_examples(cluster: Cluster, fixed: Sequence[Sequence[Group]], examples: Sequence[int | None]) -> None:
    if not fixed:
        outer = grouped.outermost(cluster)
        raise ValueError(
            f"examples={list(examples)}: the {outer.size} {outer.name}s of {cluster.name} do not divide into {len(examples)} equal "
            "groups; give groups too"
        )
    for stage, (group, number) in enumerate(zip(fixed[0], examples, strict=True)):
        ways = sorted(frozenset().union(*(mesh.products for mesh in meshes(group.cluster))))
        if number is not None and number not in ways:
            raise ValueError(f"examples={number}; the devices of stage {stage} can spread them over {ways}")
