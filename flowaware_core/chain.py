"""The equations of a loss as a chain with weights, to be cut into stages for groups of a cluster's devices."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from flowaware_core import versions
from flowaware_core.cluster.mesh import natural
from flowaware_core.cluster.model import Cluster, Level
from flowaware_core.cost import communication, compute
from flowaware_core.graph.capture import capture
from flowaware_core.graph.sections import Trunk
from flowaware_core.search.partition import candidates, partition
from flowaware_core.task import Task

MANY = 2**30
# The way back costs twice the forward pass.
PASSES = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """The equations of a loss as a chain to be cut.

    Attributes:
        weights: [equations] seconds of both passes of a micro-batch.
        positions: where a cut may be.
        entry: [equations + 1] seconds in which what passes a cut before each equation gets there and back.
    """

    weights: np.ndarray
    positions: np.ndarray
    entry: np.ndarray

    @staticmethod
    def of(trunk: Trunk, cluster: Cluster, count: int) -> Chain:
        inside, link = inside_of(cluster, count), natural(cluster).axes[0]
        per_byte = 1.0 / (inside.num_devices * link.bandwidth_bytes_per_s)
        entry = 2.0 * (np.asarray(trunk.crossing) * per_byte + link.latency_s)
        return Chain(_weights(trunk, inside), candidates(trunk.crossing), entry)

    def between(self, other: Chain, share: float, least: float) -> Chain:
        """For micro-batches `share` times as large, where those of `other` are `least` times as large: all grows evenly."""
        part = (1.0 - share) / (1.0 - least)
        mixed = lambda one, two: (1.0 - part) * one + part * two
        return Chain(mixed(self.weights, other.weights), self.positions, mixed(self.entry, other.entry))

    def partition(self, count: int, parts: int) -> tuple[int, ...] | None:
        return partition(self.weights, self.positions, self.entry[self.positions], count, parts)

    def entries(self, cuts: Sequence[int]) -> list[float]:
        """Seconds in which a micro-batch gets to each stage, and back."""
        return [0.0, *(float(self.entry[cut]) for cut in cuts)]

    def loads(self, cuts: Sequence[int]) -> list[float]:
        edges = [0, *cuts, len(self.weights)]
        spans = itertools.pairwise(edges)
        return [float(self.weights[i:j].sum()) + e for (i, j), e in zip(spans, self.entries(cuts), strict=True)]


def outermost(cluster: Cluster) -> Level:
    """The outermost level that has several members."""
    return next((level for level in cluster.levels if level.size > 1), cluster.levels[0])


def inside_of(cluster: Cluster, count: int) -> Cluster:
    """The devices of one stage."""
    outer = outermost(cluster)
    fewer = dataclasses.replace(outer, size=outer.size // count)
    return dataclasses.replace(cluster, levels=tuple(fewer if level is outer else level for level in cluster.levels))


def _weights(trunk: Trunk, inside: Cluster) -> np.ndarray:
    """Seconds of both passes of each equation on one stage's devices that share the examples, reduction of gradients included."""
    known: dict[Any, float] = {}
    found = np.zeros(len(trunk.equations))
    shards, mesh = np.array(float(inside.num_devices)), natural(inside)
    # Many small gradients are reduced together: what counts is their bytes.
    per_byte = communication.seconds("all-reduce", MANY, range(len(mesh.axes)), mesh) / MANY
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
            known[sign] = sum(
                times * float(compute.seconds(operator, graph.tensors, shards, inside.device))
                for operator, times in graph.walk()
                if not operator.subgraphs
            )
        found[index] = PASSES * known[sign] + per_byte * trunk.fresh[index]
    return found
