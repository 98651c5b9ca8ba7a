"""Time of an operator on one device: the slower of arithmetic and memory traffic.

    seconds = max(flops / (peak x efficiency), bytes / bandwidth)

`MATRIX_EFFICIENCY` and `FUSED_TRAFFIC` are assumptions until a calibration of the cluster replaces them: dense matrix products
and convolutions of training size reach about 60 % of a data sheet's peak; of the traffic of elementwise operators about a third
is left after the compiler has fused them.
"""

from __future__ import annotations

from flowaware_core.cluster.model import Device

MATRIX_EFFICIENCY = 0.6
FUSED_TRAFFIC = 0.35
MATRIX_PRIMITIVES = ("dot_general", "conv_general_dilated")


def matrix_seconds(flops: float, size: float, dtype: str, device: Device) -> float:
    """Time of a matrix product or convolution of `flops` operations that touches `size` bytes."""
    return max(flops / (device.flops_per_s(dtype) * MATRIX_EFFICIENCY), size / device.memory_bandwidth_bytes_per_s)


def traffic_seconds(size: float, device: Device) -> float:
    """Time of elementwise operators and reductions that touch `size` bytes before fusion."""
    return FUSED_TRAFFIC * size / device.memory_bandwidth_bytes_per_s
