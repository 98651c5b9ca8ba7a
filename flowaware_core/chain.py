"""The equations of a loss as a chain with weights, to be cut into stages for groups of a cluster's devices."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from flowaware_core import versions
from flowaware_core.cluster.groups import Group, link
from flowaware_core.cluster.mesh import natural
from flowaware_core.cluster.model import Cluster
from flowaware_core.cost import communication, compute
from flowaware_core.graph.capture import capture
from flowaware_core.graph.sections import Trunk
from flowaware_core.search.partition import Partition, Places, candidates, partition
from flowaware_core.task import Task

MANY = 2**30
# The way back costs twice the forward pass.
PASSES = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """The equations of a loss as a chain to be cut, and the groups of devices that stages may have.

    Attributes:
        cluster, groups: all devices, and their groups.
        kinds: the groups that differ in more than their place.
        weights: [kinds, equations] seconds of both passes of a micro-batch.
        positions: where a cut may be.
        crossing: [equations + 1] bytes that pass a cut before each equation.
    """

    cluster: Cluster
    groups: tuple[Group, ...]
    kinds: tuple[Cluster, ...]
    weights: np.ndarray
    positions: np.ndarray
    crossing: np.ndarray

    @staticmethod
    def of(trunk: Trunk, cluster: Cluster, groups: Sequence[Group]) -> Chain:
        kinds = _kinds(groups)
        weights, positions = _weights(trunk, kinds), candidates(trunk.crossing)
        return Chain(cluster, tuple(groups), kinds, weights, positions, np.asarray(trunk.crossing))

    def among(self, groups: Sequence[Group]) -> Chain:
        """For some of the groups only."""
        kinds = _kinds(groups)
        rows = [self.kinds.index(kind) for kind in kinds]
        return dataclasses.replace(self, groups=tuple(groups), kinds=kinds, weights=self.weights[rows])

    def at(self, cuts: Sequence[int]) -> Chain:
        """To be cut nowhere else."""
        return dataclasses.replace(self, positions=np.asarray(cuts, np.int64))

    def between(self, other: Chain, share: float, least: float) -> Chain:
        """For micro-batches `share` times as large, where those of `other` are `least` times as large: all grows evenly."""
        part = (1.0 - share) / (1.0 - least)
        mixed = lambda one, two: (1.0 - part) * one + part * two
        weights, crossing = mixed(self.weights, other.weights), mixed(self.crossing, other.crossing)
        return dataclasses.replace(self, weights=weights, crossing=crossing)

    def shared(self, rows: int) -> Chain:
        """With what is lost where so many examples do not divide over the devices of a group, each of which has one at least."""
        counts = [kind.num_devices for kind in self.kinds]
        most = [math.ceil(rows / count) * count / rows if rows >= count else 1.0 for count in counts]
        return dataclasses.replace(self, weights=self.weights * np.array(most)[:, None])

    def partition(self, micro_batches: int, stages: int | None = None) -> Partition | None:
        """The best cuts and groups, which are places in `groups`."""
        crossing = self.crossing[self.positions]
        return partition(self.weights, self.positions, crossing, self._places, micro_batches, stages)

    def entries(self, found: Partition) -> list[float]:
        """Seconds in which a micro-batch gets to each stage, and back."""
        ways = (self._way(*pair) for pair in itertools.pairwise(found.places))
        pairs = zip(found.cuts, ways, strict=True)
        return [0.0, *(float(self.crossing[cut] * byte_s + latency_s) for cut, (byte_s, latency_s) in pairs)]

    def corrected(self, found: Partition, seconds: Sequence[float]) -> Chain:
        """With weights by which the stages of a partition take as long as their plans say.

        What all stages on groups of one kind take longer is the kind's; what one of them takes longer than they do, its equations'.
        Kinds that have no stage are thought to take longer by as much as all.
        """
        rows = [self.kinds.index(self.groups[place].cluster) for place in found.places]
        spans = list(itertools.pairwise([0, *found.cuts, self.weights.shape[1]]))
        thought = [max(float(self.weights[row, i:j].sum()), 1e-30) for row, (i, j) in zip(rows, spans, strict=True)]
        of_kind = np.full(len(self.kinds), sum(seconds) / sum(thought))
        for kind in set(rows):
            own = [index for index, row in enumerate(rows) if row == kind]
            of_kind[kind] = max(sum(seconds[index] for index in own) / sum(thought[index] for index in own), 1e-30)
        weights = self.weights * of_kind[:, None]
        for row, (i, j), one, other in zip(rows, spans, seconds, thought, strict=True):
            weights[:, i:j] *= one / (other * of_kind[row])
        return dataclasses.replace(self, weights=weights)

    @functools.cached_property
    def _places(self) -> Places:
        behind: dict[int, list[int]] = {}
        for place, group in enumerate(self.groups):
            behind.setdefault(group.end, []).append(place)
        before = [
            sorted((*self._way(other, place), other) for other in behind.get(group.begin, []))
            for place, group in enumerate(self.groups)
        ]
        flat = [one for ones in before for one in ones]
        return Places(
            np.array([self.kinds.index(group.cluster) for group in self.groups], np.int64),
            np.array([group.begin == 0 for group in self.groups], bool),
            np.array([group.end == self.cluster.num_devices for group in self.groups], bool),
            np.cumsum([0, *map(len, before)]),
            np.array([other for *_, other in flat], np.int64),
            np.array([byte_s for byte_s, *_ in flat], float),
            np.array([latency_s for _, latency_s, _ in flat], float),
        )

    def _way(self, place: int, other: int) -> tuple[float, float]:
        """Seconds that a byte and an empty message take from one place to the next and back."""
        bandwidth, latency_s = link(self.cluster, self.groups[place], self.groups[other])
        return 2.0 / bandwidth, 2.0 * latency_s


def _kinds(groups: Sequence[Group]) -> tuple[Cluster, ...]:
    found: list[Cluster] = []
    for group in groups:
        if group.cluster not in found:
            found.append(group.cluster)
    return tuple(found)


def _weights(trunk: Trunk, kinds: Sequence[Cluster]) -> np.ndarray:
    """Seconds of both passes of each equation on devices that share the examples, reduction of gradients included."""
    known: dict[Any, np.ndarray] = {}
    found = np.zeros((len(kinds), len(trunk.equations)))
    # Many small gradients are reduced together: what counts is their bytes.
    naturals = [natural(kind) for kind in kinds]
    reduced = [communication.seconds("all-reduce", MANY, range(len(mesh.axes)), mesh) for mesh in naturals]
    per_byte = np.array(reduced) / MANY
    shards, devices = [np.array(float(kind.num_devices)) for kind in kinds], [kind.device for kind in kinds]
    for index, equation in enumerate(trunk.equations):
        avals = [atom.aval for atom in (*equation.invars, *equation.outvars)]
        sign = (
            equation.primitive.name,
            tuple((a.shape, str(a.dtype)) for a in avals),
            str(equation.params.get("length")),
        )
        if sign not in known:
            program = trunk.excerpt(index)
            shapes = tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in program.jaxpr.invars)
            graph = capture(Task(versions.jaxpr_as_fun(program), shapes, mode="inference"))
            known[sign] = np.zeros(len(kinds))
            for operator, times in graph.walk():
                if not operator.subgraphs:
                    spent = (compute.seconds(operator, graph.tensors, *on) for on in zip(shards, devices, strict=True))
                    known[sign] += times * np.array([float(one) for one in spent])
        found[:, index] = PASSES * known[sign] + per_byte * trunk.fresh[index]
    return found
