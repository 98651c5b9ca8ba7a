"""A cluster as conf/cluster/*.yaml describes it, and the engine's `Cluster` made from it.

The YAML speaks GiB; the engine speaks bytes. Levels are listed from the outside in, the last one being the devices.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from flowaware_core.cluster.model import GIB, Cluster, Device, Level, positive

# XLA makes a thread and a copy of the program's constants for each virtual device.
MOST_EMULATED = 1024


@dataclasses.dataclass(frozen=True)
class DeviceConfig:
    """One accelerator; units are in the names.

    Attributes:
        kind: part of the name that JAX gives the device; a machine whose devices carry it may be the named cluster.
        peak_flops_per_s: dtype -> peak rate of matrix products; float32 is required, a dtype not listed runs at
            its rate.
        usable_fraction: the part of the memory that a program may use.
    """

    kind: str
    memory_gib: float
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: dict[str, float]
    usable_fraction: float = 0.9

    def __post_init__(self) -> None:
        positive("memory_gib", self.memory_gib)
        positive("memory_bandwidth_bytes_per_s", self.memory_bandwidth_bytes_per_s)
        if not 0 < self.usable_fraction <= 1:
            raise ValueError(f"usable_fraction={self.usable_fraction}; it must lie in (0, 1]")
        for dtype, rate in self.peak_flops_per_s.items():
            positive(f"peak_flops_per_s.{dtype}", rate)


@dataclasses.dataclass(frozen=True)
class LevelConfig:
    """`size` members side by side, joined by one kind of link; size is null only where the cluster is emulated."""

    bandwidth_bytes_per_s: float
    latency_s: float
    size: int | None = None
    shared: bool = False

    def __post_init__(self) -> None:
        positive("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        positive("latency_s", self.latency_s)
        if self.size is not None:
            positive("size", self.size)


@dataclasses.dataclass(frozen=True)
class ClusterConfig:
    """A cluster: one that a file describes, virtual devices of this machine, or whatever this machine has.

    Attributes:
        device: where the cluster is detected, what is assumed of a kind of device that no file knows.
        levels: name of a member -> link between the members, from the outside in.
        kind: described | emulated | detected.
        n: emulated only: how many devices in all.
        nodes: emulated only: how many groups (a level `node`) they are split into; 1 leaves that level out.
    """

    name: str
    device: DeviceConfig
    levels: dict[str, LevelConfig]
    kind: Literal["described", "emulated", "detected"] = "described"
    n: int | None = None
    nodes: int | None = None

    def __post_init__(self) -> None:
        if self.kind == "emulated":
            for name, value in (("n", self.n), ("nodes", self.nodes)):
                if value is None or value < 1:
                    raise ValueError(f"{name}={value}; it must be a whole number above 0")
            assert self.n is not None and self.nodes is not None
            if self.n > MOST_EMULATED:
                raise ValueError(f"n={self.n}; at most {MOST_EMULATED} devices are emulated")
            if self.n % self.nodes:
                raise ValueError(f"n={self.n} devices do not divide into nodes={self.nodes}; change one of them")
        elif self.n is not None or self.nodes is not None:
            raise ValueError(
                f"n={self.n}, nodes={self.nodes}: only cluster=emulated has them; set levels.<name>.size instead"
            )
        if self.kind != "detected":
            build(self)  # the engine's own checks


def build(config: ClusterConfig) -> Cluster:
    """The engine's cluster; `zoo.runtime.devices.detected` makes it where the kind is "detected".

    Raises:
        ValueError: a size, bandwidth, latency, rate or fraction is out of its range; the sentence names it.
    """
    assert config.kind != "detected"
    sizes = level_sizes(config)
    levels = tuple(
        Level(name, sizes[name], level.bandwidth_bytes_per_s, level.latency_s, level.shared)
        for name, level in config.levels.items()
        if name in sizes
    )
    return Cluster(config.name, build_device(config.device), levels)


def build_device(config: DeviceConfig) -> Device:
    return Device(
        kind=config.kind,
        memory_bytes=int(config.memory_gib * GIB),
        peak_flops_per_s=config.peak_flops_per_s,
        memory_bandwidth_bytes_per_s=config.memory_bandwidth_bytes_per_s,
        usable_fraction=config.usable_fraction,
    )


def level_sizes(config: ClusterConfig) -> dict[str, int]:
    """Members of each level, from the outside in."""
    if config.kind == "emulated":
        assert config.n is not None and config.nodes is not None
        cards = {"card": config.n // config.nodes}
        return {"node": config.nodes, **cards} if config.nodes > 1 else cards
    sizes: dict[str, int] = {}
    for name, level in config.levels.items():
        if level.size is None:
            raise ValueError(f"levels.{name}.size is missing; give the number of members")
        sizes[name] = level.size
    return sizes
