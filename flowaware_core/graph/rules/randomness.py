"""Rules of random numbers and their keys.

With `jax_threefry_partitionable` every element of a block depends on its key and its place alone, so every device makes its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Building, Rule, Shape


def per_key(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """A block of results per key: the keys are mapped, and so is the block."""
    del params
    building = Building(operands, results)
    for dim, size in enumerate(results[0]):
        building.add(size, "map", {0: dim} if dim < len(operands[0]) else {}, {0: dim})
    return building.fill(operands, results).build()


def key_words(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Between keys and the whole numbers they consist of, which stay together."""
    del params
    building = Building(operands, results)
    for dim in range(min(len(operands[0]), len(results[0]))):
        building.add(operands[0][dim], "map", {0: dim}, {0: dim})
    return building.fill(operands, results).build()
