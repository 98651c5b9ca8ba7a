"""Time of an operator on one device: the slower of arithmetic and memory traffic.

    seconds = max(flops / (peak x efficiency), bytes / bandwidth)

`MATRIX_EFFICIENCY` and `FUSED_TRAFFIC` are assumptions until a calibration of the cluster replaces them: dense matrix products
and convolutions of training size reach about 60 % of a data sheet's peak; of the traffic of elementwise operators about a third
is left after the compiler has fused them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowaware_core.cluster.model import Device
from flowaware_core.graph.model import Operator, Tensor

MATRIX_EFFICIENCY = 0.6
FUSED_TRAFFIC = 0.35
MATRIX_PRIMITIVES = ("dot_general", "conv_general_dilated")


def seconds(operator: Operator, tensors: Sequence[Tensor], shards: np.ndarray, device: Device) -> np.ndarray:
    """Time of one run of an operator of which every device does one of `shards` equal parts, for each number of shards."""
    size = sum(tensors[tensor].bytes for tensor in (*operator.inputs, *operator.results))
    traffic = size / shards / device.memory_bandwidth_bytes_per_s
    if operator.primitive not in MATRIX_PRIMITIVES:
        return FUSED_TRAFFIC * traffic
    peak = device.flops_per_s(tensors[operator.results[0]].dtype) * MATRIX_EFFICIENCY
    return np.maximum(operator.flops / shards / peak, traffic)
