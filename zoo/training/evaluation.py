"""The figures of the test split: sums over batches, divided by what was counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from zoo.training.batches import Rows, globally

COUNT = "count"


def evaluator(
    recipe: Any, shardings: Mapping[str, NamedSharding], global_batch: int, rows: Rows, most_batches: int | None = None
) -> Callable[[Any], dict[str, float]]:
    """A function from a state to figures, by default `{name: mean over the examples, "examples": how many}`.

    Args:
        recipe: gives `batches("test", ...)` and `evaluate`; where it has `figures`, that turns the sums of the whole split
            into figures, else each is divided by "count".
        shardings: those of the training batch.
        global_batch: examples a batch, over all processes.
        rows: which part of each batch this process reads.
        most_batches: how many to take of the split; None: all.
    """
    mesh = next(iter(shardings.values())).mesh
    sums_of = jax.jit(recipe.evaluate, out_shardings=NamedSharding(mesh, PartitionSpec()))

    def evaluate(state: Any) -> dict[str, float]:
        local = recipe.batches("test", 0, 0, global_batch, (rows.index, rows.count))
        totals: dict[str, Any] = {}
        for batch in globally(itertools.islice(local, most_batches), shardings, rows):
            for name, value in jax.device_get(sums_of(state, batch)).items():
                totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
        found = getattr(recipe, "figures", means)(totals)
        return {name: float(value) for name, value in found.items()}

    return evaluate


def means(totals: Mapping[str, Any]) -> dict[str, float]:
    """Every sum over what was counted."""
    count = float(totals[COUNT])
    return {**{name: float(total) / count for name, total in totals.items() if name != COUNT}, "examples": count}
