"""How large a rehearsal is: the plan's axes and batch, shrunk to what this machine holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

SHARE_OF_FREE_MEMORY = 0.5
"""What one copy of the state for every device may take of it; the rest is for activations and the compiler."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What one run of the step has: mesh axes from the outside in, and examples in a batch over all devices."""

    axes: Mapping[str, int]
    global_batch: int

    @property
    def num_devices(self) -> int:
        return math.prod(self.axes.values())


def shrink(full: Sizes, examples_per_device: int, state_bytes: int, free_bytes: int, processes: int = 1) -> Sizes:
    """The sizes to rehearse `full` with.

    Counts a whole copy of the state per device, because data parallelism keeps one on each. Axes give way from the
    outside in (nodes first), by their smallest divisor each time, and stay divisible among the processes.

    Args:
        full: the sizes of the plan.
        examples_per_device: rehearsed examples a device; the global batch follows from it.
        state_bytes: parameters, optimizer state and statistics, once.
        free_bytes: memory of the host that is free now.
        processes: how many processes share the devices.
    """
    allowed = SHARE_OF_FREE_MEMORY * free_bytes
    axes = dict(full.axes)
    while math.prod(axes.values()) * state_bytes > allowed:
        smaller = _step_down(axes, processes)
        if smaller is None:
            break
        axes = smaller
    examples = examples_per_device * math.prod(axes.values())
    # A dimension of 1 is traced into another program (it is broadcast, not reduced), which no longer is the plan's; so 1 stays 1.
    return Sizes(axes, 1 if full.global_batch == 1 else max(examples, 2))


def _step_down(axes: Mapping[str, int], processes: int) -> dict[str, int] | None:
    for name, size in axes.items():
        for divisor in range(2, size + 1):
            if size % divisor == 0 and math.prod(axes.values()) // divisor % processes == 0:
                return {**axes, name: size // divisor}
    return None


def changes(full: Sizes, small: Sizes) -> dict[str, list[int]]:
    """Every size that differs, as `{name: [planned, rehearsed]}`."""
    pairs = {f"axis {name}": [size, small.axes[name]] for name, size in full.axes.items()}
    pairs["devices"] = [full.num_devices, small.num_devices]
    pairs["global batch"] = [full.global_batch, small.global_batch]
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
