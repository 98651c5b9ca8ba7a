"""environment.json: what a run ran with, so that it can be run again. Host and user names are left out."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax

PACKAGES = (
    "flowaware-zoo", "jax", "jaxlib", "numpy", "flax", "dm-haiku", "optax",
    "orbax-checkpoint", "tensorstore", "grain", "hydra-core",
)  # fmt: skip


def environment(command: str, level: str, devices: Sequence[jax.Device], more: Mapping[str, Any]) -> dict[str, Any]:
    """Versions, devices and the command.

    Args:
        command: as the user typed it.
        level: how true the run's figures are: "emulated" or "cluster".
        devices: all devices, of all processes; none where nothing runs.
        more: further facts, such as the sizes that a rehearsal changed.
    """
    kinds = Counter(f"{device.platform} {device.device_kind}" for device in devices)
    hardware = {"devices": dict(kinds), "processes": len({device.process_index for device in devices})}
    return {
        "command": command,
        "level": level,
        "versions": {"python": platform.python_version(), **versions()},
        "system": f"{platform.system()} {platform.machine()}",
        **(hardware if devices else {}),
        **more,
    }


def versions() -> dict[str, str | None]:
    """Versions of what computes or stores; None for what is not installed."""
    found: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found
