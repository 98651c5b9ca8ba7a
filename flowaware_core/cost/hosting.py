"""Time of what lies in the memory of the hosts: to the devices before the update, and back after it."""

from __future__ import annotations

import numpy as np

from flowaware_core.cluster.model import Device


def seconds(size: np.ndarray, device: Device) -> np.ndarray:
    """Seconds that a device takes to bring so many bytes in and out again; one after the other, nothing overlaps."""
    return 2.0 * size / device.host_bandwidth_bytes_per_s
