"""Which devices a command runs on: whether this machine is the named cluster, and virtual devices where it is not.

Everything here happens before JAX starts a backend, since the number of virtual devices and the platform are fixed from
then on. So the machine's accelerators are looked at by a process of their own.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import jax
import psutil
from omegaconf import OmegaConf

from flowaware_core import versions
from flowaware_core.cluster import Cluster, Device, Level
from zoo.clusters import ClusterConfig, build, build_device
from zoo.config import choices
from zoo.errors import UserError
from zoo.paths import conf_dir
from zoo.runtime import memory
from zoo.runtime.processes import Group
from zoo.typed import typed

COLLECTIVE_TIMEOUT_S = 1800
"""How long virtual devices may wait for each other: with more of them than cores, the last one comes late."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The devices of this machine: all of one kind, `count` of them with `memory_bytes` each."""

    platform: str
    kind: str
    count: int
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class Machine:
    """What stands for the cluster that a command names.

    Attributes:
        cluster: the named cluster, as the engine sees it.
        level: how true figures are that are measured here: "cluster" on the real one, "emulated" on virtual devices.
        sentence: what the user should know about it.
    """

    cluster: Cluster
    level: Literal["emulated", "cluster"]
    sentence: str


def settle(config: ClusterConfig, group: Group) -> Machine:
    """Decides what the named cluster runs on, and gives this process its virtual devices where it needs them.

    Args:
        config: the named cluster.
        group: the processes that share it.

    Raises:
        UserError: the devices do not divide among the processes, or processes were asked for that accelerators do not
            allow.
    """
    if config.kind == "emulated":
        cluster = build(config)
        emulate(share(cluster, group))
        text = f"{cluster.num_devices} virtual devices on this machine's processor; no speed here is an accelerator's"
        return Machine(cluster, "emulated", f"cluster={config.name}: {text}")
    found = look()
    cluster = detected(config, found, group) if config.kind == "detected" else build(config)
    here = f"{found.count * group.count} x {found.kind}"
    if config.kind == "described" and not is_it(cluster, found, group):
        emulate(share(cluster, group))
        text = (
            f"this machine has {here}, and {config.name} is {cluster.num_devices} x {cluster.device.kind}. The "
            "plan is made and compiled at full size, then rehearsed on virtual devices"
        )
        return Machine(cluster, "emulated", text)
    if found.platform == "cpu":
        emulate(1)
        memory.keep_freed()
    elif group.launched:
        raise UserError(
            f"processes={group.count} shares out virtual devices, and this machine has {here}; leave it out. On "
            "several hosts start one each, with srun or with ZOO_PROCESS_COUNT, ZOO_PROCESS_INDEX and ZOO_COORDINATOR"
        )
    return Machine(cluster, "cluster", f"cluster={config.name}: {here}")


def share(cluster: Cluster, group: Group) -> int:
    """Devices of the cluster that one process of the group gets."""
    if cluster.num_devices % group.count:
        counts = [str(count) for count in range(1, cluster.num_devices + 1) if cluster.num_devices % count == 0]
        raise UserError(
            f"processes={group.count}: the {cluster.num_devices} devices of cluster={cluster.name} do not divide among "
            f"them; choose one of {', '.join(counts)}"
        )
    return cluster.num_devices // group.count


def is_it(cluster: Cluster, found: Found, group: Group) -> bool:
    """Whether the devices found here, times the processes, are the cluster's."""
    same_kind = cluster.device.kind.lower() in found.kind.lower()
    return found.platform != "cpu" and same_kind and found.count * group.count == cluster.num_devices


def emulate(count: int) -> None:
    """Gives this process `count` virtual devices on the host's processor in place of its accelerators.

    Must come before JAX starts a backend; later it has no effect.
    """
    os.environ["XLA_FLAGS"] = xla_flags(os.environ.get("XLA_FLAGS", ""), count, versions.KNOWS_COLLECTIVE_TIMEOUTS)
    jax.config.update("jax_platforms", "cpu")


def xla_flags(given: str, count: int, timeouts: bool) -> str:
    """XLA's flags for `count` virtual devices; other flags that were given stay, and win.

    Args:
        given: what XLA_FLAGS holds already.
        timeouts: whether this XLA knows how long collectives may wait; it aborts the process on a flag it does not
            know.
    """
    ours = {"xla_force_host_platform_device_count": count}
    if timeouts:
        ours["xla_cpu_collective_call_warn_stuck_timeout_seconds"] = COLLECTIVE_TIMEOUT_S // 10
        ours["xla_cpu_collective_call_terminate_timeout_seconds"] = COLLECTIVE_TIMEOUT_S
    kept = [flag for flag in given.split() if not flag.startswith("--xla_force_host_platform_device_count=")]
    named = {flag.lstrip("-").partition("=")[0] for flag in kept}
    return " ".join([*kept, *(f"--{name}={value}" for name, value in ours.items() if name not in named)])


def look() -> Found:
    """The accelerators of this machine, or its processor where there is none.

    Asks JAX in a process of its own: asking in this one would start the backend. Costs about two seconds where JAX has
    a plugin for accelerators and nothing otherwise.

    Raises:
        UserError: JAX has a plugin but cannot use it, and says why.
    """
    processor = Found("cpu", "cpu", 1, host_memory())
    if not accelerators_possible():
        return processor
    # The whole memory as the limit, none of it taken.
    environ = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_PYTHON_CLIENT_MEM_FRACTION": "1.0"}
    result = subprocess.run([sys.executable, "-m", "zoo.runtime.look"], env=environ, capture_output=True, text=True)
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(
            f"JAX cannot use this machine's accelerators: {reason}; set JAX_PLATFORMS=cpu to do without them"
        )
    found = Found(**json.loads(result.stdout.splitlines()[-1]))
    return found if found.platform != "cpu" else processor


def accelerators_possible() -> bool:
    """Whether an installed plugin might give JAX something beside the processor."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return False
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return bool(plugins) or any(importlib.util.find_spec(name) is not None for name in ("jax_plugins", "libtpu"))


def detected(config: ClusterConfig, found: Found, group: Group) -> Cluster:
    """The engine's cluster for what this machine has.

    Args:
        config: gives rates and links where nothing better is known.
        found: the devices of this process.
        group: every process has as many devices.
    """
    rates = known_device(found.kind) or build_device(config.device)
    device = dataclasses.replace(rates, kind=found.kind, memory_bytes=found.memory_bytes or rates.memory_bytes)
    sizes = {"node": group.count, "card": found.count}
    levels = [
        Level(name, sizes[name], link.bandwidth_bytes_per_s, link.latency_s, link.shared)
        for name, link in config.levels.items()
        if name == "card" or group.count > 1
    ]
    return Cluster(config.name, device, tuple(levels))


def known_device(kind: str) -> Device | None:
    """The device of the first cluster file whose kind is part of the name that JAX gives, if there is one."""
    for name in choices("cluster"):
        config = cluster_file(name)
        if config.kind != "detected" and (device := build(config).device).kind.lower() in kind.lower():
            return device
    return None


def cluster_file(name: str) -> ClusterConfig:
    """What conf/cluster/NAME.yaml says."""
    return typed(ClusterConfig, OmegaConf.to_container(OmegaConf.load(conf_dir() / "cluster" / f"{name}.yaml")))


def host_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its control group's where that is less."""
    return min(psutil.virtual_memory().total, group_limit())


def free_host_memory() -> int:
    """Bytes of memory that are free now, within the control group where it limits this process."""
    used = number_in("/sys/fs/cgroup/memory.current") or 0
    return max(0, min(psutil.virtual_memory().available, group_limit() - used))


def group_limit() -> int:
    return number_in("/sys/fs/cgroup/memory.max") or 2**63


def number_in(path: str) -> int | None:
    """The number that a file holds; None where there is no such file, or a word instead."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
