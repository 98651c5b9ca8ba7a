"""Logical meshes on a cluster: named axes, each lying inside one level of links.

Axes are listed from the outside in, and devices are numbered in that order, so an axis joins the same devices as its level does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import string
from collections.abc import Mapping, Sequence

from flowaware_core.cluster.model import Cluster


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis of a mesh.

    Attributes:
        name: the level's name, with a suffix where a level is split into two axes.
        size: number of devices along it.
        bandwidth_bytes_per_s: what one device can send along it while all its neighbours do the same; a shared link is divided
            by the devices behind it.
        latency_s: time of an empty message.
        level: the level's name.
    """

    name: str
    size: int
    bandwidth_bytes_per_s: float
    latency_s: float
    level: str = ""


@dataclasses.dataclass(frozen=True)
class Mesh:
    """Axes from the outside in."""

    axes: tuple[Axis, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def num_devices(self) -> int:
        return math.prod(self.sizes)

    @property
    def products(self) -> frozenset[int]:
        """The numbers of devices along some of the axes."""
        found = {1}
        for size in self.sizes:
            found |= {size * other for other in found}
        return frozenset(found)

    @property
    def tied(self) -> tuple[bool, ...]:
        """Per axis whether it is interchangeable with the one before it: as long, and on the same level."""
        same = [axis.level == last.level and axis.size == last.size for last, axis in itertools.pairwise(self.axes)]
        return (False, *same)

    @property
    def classes(self) -> tuple[range, ...]:
        """The axes that are interchangeable with each other."""
        first = [axis for axis, again in enumerate(self.tied) if not again]
        return tuple(map(range, first, [*first[1:], len(self.axes)]))

    @property
    def levels(self) -> tuple[int, ...]:
        """Per axis the number of devices along all axes of its level."""
        return tuple(math.prod(other.size for other in self.axes if other.level == axis.level) for axis in self.axes)

    def resized(self, sizes: Mapping[str, int]) -> Mesh:
        """The same axes with other lengths: what a rehearsal runs on."""
        unknown = set(sizes) - set(self.names)
        if unknown:
            raise ValueError(f"axes {sorted(unknown)} are not in this mesh; it has {list(self.names)}")
        return Mesh(tuple(dataclasses.replace(axis, size=sizes.get(axis.name, axis.size)) for axis in self.axes))


def natural(cluster: Cluster) -> Mesh:
    """One axis per level; levels of one member vanish unless nothing else is left."""
    return _mesh(cluster, {})


def meshes(cluster: Cluster) -> tuple[Mesh, ...]:
    """The meshes worth searching, the natural one first: every way to split each level's members into axes of two or more.

    Of splits that differ in order only, the one with the longest axis outside is taken: all axes of a level lie on the same links.
    """
    options = [_factorisations(level.size, level.size) or [()] for level in cluster.levels]
    found = []
    for combination in itertools.product(*options):
        splits = {level.name: parts for level, parts in zip(cluster.levels, combination, strict=True)}
        found.append(_mesh(cluster, splits))
    return tuple(sorted(found, key=lambda mesh: len(mesh.axes)))


def _factorisations(number: int, most: int) -> list[tuple[int, ...]]:
    """All ways to write a number as a product of factors from 2 to `most` that do not grow."""
    if number == 1:
        return []
    found: list[tuple[int, ...]] = [(number,)] if number <= most else []
    for first in range(min(most, number // 2), 1, -1):
        if number % first == 0:
            found += [(first, *rest) for rest in _factorisations(number // first, first)]
    return found


def _mesh(cluster: Cluster, splits: Mapping[str, Sequence[int]]) -> Mesh:
    axes = []
    for position, level in enumerate(cluster.levels):
        behind = math.prod(inner.size for inner in cluster.levels[position + 1 :]) if level.shared else 1
        parts = splits.get(level.name, (level.size,))
        for index, size in enumerate(parts):
            name = level.name if len(parts) == 1 else f"{level.name}_{string.ascii_lowercase[index]}"
            if size > 1:
                axes.append(Axis(name, size, level.bandwidth_bytes_per_s / behind, level.latency_s, level.name))
    if not axes:
        level = cluster.levels[-1]
        axes.append(Axis(level.name, 1, level.bandwidth_bytes_per_s, level.latency_s, level.name))
    return Mesh(tuple(axes))
