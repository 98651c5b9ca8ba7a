"""Groups of neighbouring devices, each of which can be a cluster of its own: some members of a level, inside one member around it.

Of 2 nodes of 4 cards these are 1 to 4 cards of a node, a node, and both. Devices are numbered from the outside in.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from flowaware_core.cluster.model import Cluster, Level


@dataclasses.dataclass(frozen=True)
class Group:
    """Devices from `begin` on, as a cluster."""

    begin: int
    cluster: Cluster

    @property
    def size(self) -> int:
        return self.cluster.num_devices

    @property
    def end(self) -> int:
        return self.begin + self.size


def outermost(cluster: Cluster) -> Level:
    """The outermost level that has several members."""
    return next((level for level in cluster.levels if level.size > 1), cluster.levels[0])


def group(cluster: Cluster, begin: int, size: int) -> Group | None:
    """So many devices from there on; None where they are neither whole members of a level nor inside one."""
    for position, (level, inside) in enumerate(_levels(cluster)):
        whole = inside * level.size
        if size % inside == 0 and begin % inside == 0 and begin // whole == (begin + size - 1) // whole:
            outer = (dataclasses.replace(one, size=1) for one in cluster.levels[:position])
            some = dataclasses.replace(level, size=size // inside)
            name = cluster.name if size == cluster.num_devices else f"{size} devices of {cluster.name}"
            return Group(begin, Cluster(name, cluster.device, (*outer, some, *cluster.levels[position + 1 :])))
    return None


def groups(cluster: Cluster, least: int = 1) -> tuple[Group, ...]:
    """All groups of at least so many devices, but that of all, by where they begin."""
    count = cluster.num_devices
    sizes = [
        members * inside
        for level, inside in _levels(cluster)
        for members in range(1, level.size + 1)
        if least <= members * inside < count and (members > 1 or inside == 1)
    ]
    found = (group(cluster, begin, size) for begin in range(count) for size in sorted(sizes) if begin + size <= count)
    return tuple(one for one in found if one is not None)


def equal(cluster: Cluster) -> Iterator[tuple[Group, ...]]:
    """The divisions of the outermost level that has several members into groups of as many each."""
    outer = outermost(cluster)
    for count in range(2, outer.size + 1):
        if outer.size % count == 0:
            yield chain(cluster, [cluster.num_devices // count] * count)


def chain(cluster: Cluster, sizes: Sequence[int]) -> tuple[Group, ...]:
    """All devices in groups of these sizes, one behind the other.

    Raises:
        ValueError: they are not all devices, or one is no group.
    """
    if any(size < 1 for size in sizes):
        raise ValueError(f"groups={list(sizes)}; each is 1 device or more")
    if sum(sizes) != cluster.num_devices:
        raise ValueError(
            f"groups={list(sizes)} are {sum(sizes)} devices; {cluster.name} has {cluster.num_devices}, all of which are in a group"
        )
    found = []
    for begin, size in zip(itertools.accumulate(sizes[:-1], initial=0), sizes, strict=True):
        one = group(cluster, begin, size)
        if one is None:
            shape = " of ".join(f"{level.size} {level.name}s" for level in cluster.levels)
            raise ValueError(
                f"groups={list(sizes)}: devices {begin} to {begin + size - 1} are no group of {shape}; a group is some members "
                "of a level, inside one member of the level around it"
            )
        found.append(one)
    return tuple(found)


def link(cluster: Cluster, one: Group, other: Group) -> tuple[float, float]:
    """Bytes per second and latency between a group and the next.

    As many devices send side by side as divide the sizes of both; those behind a shared link have one link together.
    """
    level, inside = next(found for found in _levels(cluster) if other.begin % found[1] == 0)
    streams = math.gcd(one.size, other.size)
    shared = min(streams, inside) if level.shared else 1
    return streams * level.bandwidth_bytes_per_s / shared, level.latency_s


def _levels(cluster: Cluster) -> Iterator[tuple[Level, int]]:
    """Each level, with the number of devices in one of its members."""
    inside = cluster.num_devices
    for level in cluster.levels:
        inside //= level.size
        yield level, inside
