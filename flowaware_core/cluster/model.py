"""A cluster as the planner sees it: one kind of device, and the levels of links between devices from the outside in.

Sizes are bytes, times seconds, rates per second; nothing here knows JAX.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

GIB = 2**30
# Assumptions where a cluster does not say: a node of 8 devices with 512 GiB, and PCIe 4.0 x16 at half of its 32 GB/s.
HOST_MEMORY_BYTES = 64 * GIB
HOST_BANDWIDTH_BYTES_PER_S = 1.6e10


@dataclasses.dataclass(frozen=True)
class Device:
    """One accelerator.

    Attributes:
        kind: its name, as `jax.Device.device_kind` gives it where known.
        memory_bytes: its memory.
        usable_fraction: the part of it a program may use (the rest: runtime, fragmentation, communication buffers of the library).
        peak_flops_per_s: dtype name -> peak rate of matrix products; `float32` is required.
        memory_bandwidth_bytes_per_s: rate at which its memory is read or written.
        host_memory_bytes: its share of the memory of its host, for what a step keeps there where nothing else fits.
        host_bandwidth_bytes_per_s: rate at which it takes in from that memory, or gives out to it, while the others of its host
            do the same.
    """

    kind: str
    memory_bytes: int
    peak_flops_per_s: Mapping[str, float]
    memory_bandwidth_bytes_per_s: float
    usable_fraction: float = 0.9
    host_memory_bytes: int = HOST_MEMORY_BYTES
    host_bandwidth_bytes_per_s: float = HOST_BANDWIDTH_BYTES_PER_S

    def __post_init__(self) -> None:
        positive("memory_bytes", self.memory_bytes)
        positive("memory_bandwidth_bytes_per_s", self.memory_bandwidth_bytes_per_s)
        positive("host_memory_bytes", self.host_memory_bytes)
        positive("host_bandwidth_bytes_per_s", self.host_bandwidth_bytes_per_s)
        if not 0 < self.usable_fraction <= 1:
            raise ValueError(f"usable_fraction={self.usable_fraction}; it must lie in (0, 1]")
        if "float32" not in self.peak_flops_per_s:
            raise ValueError(f"peak_flops_per_s names {sorted(self.peak_flops_per_s)}; float32 must be among them")
        for dtype, rate in self.peak_flops_per_s.items():
            positive(f"peak_flops_per_s.{dtype}", rate)

    @property
    def usable_bytes(self) -> int:
        return int(self.memory_bytes * self.usable_fraction)

    def to_json(self) -> dict[str, Any]:
        """Its fields as plain values; what is assumed of its host is left out, as it was before hosts were described."""
        assumed = {"host_memory_bytes": HOST_MEMORY_BYTES, "host_bandwidth_bytes_per_s": HOST_BANDWIDTH_BYTES_PER_S}
        return {key: value for key, value in dataclasses.asdict(self).items() if value != assumed.get(key)}

    def flops_per_s(self, dtype: str) -> float:
        """Peak rate for a dtype; one that is not listed runs at the float32 rate."""
        return self.peak_flops_per_s.get(dtype, self.peak_flops_per_s["float32"])


@dataclasses.dataclass(frozen=True)
class Level:
    """`size` members side by side, joined by one kind of link.

    Attributes:
        name: what a member is called: "node", "card".
        size: number of members.
        bandwidth_bytes_per_s: what one member can send while it receives as much.
        latency_s: time of an empty message.
        shared: whether all devices inside one member share the link (a node's network card) or each has its own.
    """

    name: str
    size: int
    bandwidth_bytes_per_s: float
    latency_s: float
    shared: bool = False

    def __post_init__(self) -> None:
        positive(f"{self.name}.size", self.size)
        positive(f"{self.name}.bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        positive(f"{self.name}.latency_s", self.latency_s)


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Devices of one kind in nested levels, listed from the outside in: `(8 nodes, 4 cards)` is 32 devices."""

    name: str
    device: Device
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError(f"cluster {self.name!r} has no levels; give at least one, such as 1 card")
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError(f"cluster {self.name!r} names its levels {names}; each name once")

    @property
    def num_devices(self) -> int:
        return math.prod(level.size for level in self.levels)

    def parts(self) -> tuple[Cluster, ...]:
        """Groups of neighbours that the cluster divides into, one of each size: from one device to all of them.

        8 nodes of 4 cards have parts of 1, 2, 4 (a node), 8, 16 and 32 cards.
        """
        found: list[Cluster] = []
        for position in reversed(range(len(self.levels))):
            level, inside = self.levels[position], self.levels[position + 1 :]
            for size in range(1, level.size + 1):
                if level.size % size == 0 and (size > 1 or not found):
                    levels = (dataclasses.replace(level, size=size), *inside)
                    count = math.prod(one.size for one in levels)
                    name = self.name if count == self.num_devices else f"{count} devices of {self.name}"
                    found.append(Cluster(name, self.device, levels))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "device": self.device.to_json()}

    @staticmethod
    def from_json(tree: Mapping[str, Any]) -> Cluster:
        return Cluster(
            name=tree["name"],
            device=Device(**tree["device"]),
            levels=tuple(Level(**level) for level in tree["levels"]),
        )


def positive(name: str, value: float) -> None:
    if not value > 0 or not math.isfinite(value):
        raise ValueError(f"{name}={value}; it must be a finite number above 0")
