"""Proteins over several devices of this machine: each device has its own, by predicted cost, and works through them in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax

import flowaware_core as fa

Device = Any


def over_devices(
    costs: Sequence[float], devices: Sequence[Device], work: Callable[[Device, Sequence[int]], None]
) -> float:
    """Calls `work(device, members)` for every device at the same time, each with its own share; members keep their order.

    Args:
        costs: predicted, of each member.
        devices: of this process; those without a share are not used.
        work: runs with its device as the default one. What it raises is raised here, after all others have ended.

    Returns:
        the predicted imbalance.
    """
    parts = fa.spread(costs, len(devices))

    def one(device: Device, part: Sequence[int]) -> None:
        with jax.default_device(device):  # of this thread alone
            work(device, part)

    busy = [(device, part) for device, part in zip(devices, parts, strict=True) if part]
    if len(busy) < 2:  # nothing to do at the same time: errors come from where they arise
        for device, part in busy:
            one(device, part)
    else:
        with ThreadPoolExecutor(len(busy)) as pool:
            for future in [pool.submit(one, device, part) for device, part in busy]:
                future.result()
    return fa.imbalance(costs, parts)
