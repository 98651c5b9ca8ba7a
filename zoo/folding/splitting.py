"""One protein over several devices, for one that no single device holds: the engine finds how to split the network over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flowaware_core as fa
from zoo.runtime.devices import Found, cluster_file, detected
from zoo.runtime.processes import Group

PREVIOUS = 2  # position of this argument of a recycle


@dataclasses.dataclass(frozen=True)
class Split:
    """Devices of this process that share one protein.

    Attributes:
        devices: all of one kind.
        memory_bytes: what each may hold.
    """

    devices: tuple[Any, ...]
    memory_bytes: int

    def cluster(self) -> fa.Cluster:
        """The devices as the engine sees them: rates of their kind where a cluster file names it, else assumed ones."""
        first = self.devices[0]
        found = Found(first.platform, first.device_kind, len(self.devices), self.memory_bytes)
        cluster = detected(cluster_file("local"), found, Group(0, 1))
        return dataclasses.replace(cluster, device=dataclasses.replace(cluster.device, usable_fraction=1.0))

    def step(self, iterate: Callable[..., Any], *args: Any) -> fa.Step:
        """One recycle, split as the engine plans it.

        Args:
            iterate: (params, features, previous, key) -> (outputs, the next `previous`, ...).
            args: as those of `iterate`; only their shapes are read.

        Raises:
            fa.DoesNotFit: it does not fit on all of them together.
        """
        task = fa.Task(iterate, args, mode="inference", carried={PREVIOUS: 1}, name="alphafold2")
        return fa.apply(fa.plan(task, self.cluster()), task, devices=self.devices)
