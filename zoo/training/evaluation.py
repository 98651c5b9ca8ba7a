"""The figures of the test split: sums over batches, divided by what was counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from zoo.training.batches import Rows, globally

COUNT = "count"


def evaluator(
    recipe: Any,
    shardings: Mapping[str, NamedSharding],
    global_batch: int,
    rows: Rows,
    stopping: Callable[[], bool],
    most_batches: int | None = None,
) -> Callable[[Any], dict[str, float] | None]:
    """A function from a state to figures, by default `{name: mean over the examples, "examples": how many}`; None on a stop.

    Args:
        recipe: gives `batches("test", ...)` and `evaluate`; where it has `figures`, that turns the sums of the whole split
            into figures, else each is divided by "count". One with `outputs` gives arrays for every row of a batch, and its
            `scores` turns those of the whole split, with the "number" of each row, into further figures.
        shardings: those of the training batch.
        global_batch: examples a batch, over all processes.
        rows: which part of each batch this process reads.
        stopping: asked after every batch; all processes get the same answer.
        most_batches: how many to take of the split; None: all.
    """
    mesh = next(iter(shardings.values())).mesh
    whole = NamedSharding(mesh, PartitionSpec())
    sums_of = jax.jit(recipe.evaluate, out_shardings=whole)
    outputs_of = jax.jit(recipe.outputs, out_shardings=whole) if hasattr(recipe, "outputs") else None
    kept_of = jax.jit(lambda batch: {name: batch[name] for name in ("number", "weight")}, out_shardings=whole)

    def evaluate(state: Any) -> dict[str, float] | None:
        local = recipe.batches("test", 0, 0, global_batch, (rows.index, rows.count))
        totals: dict[str, Any] = {}
        outputs: list[dict[str, np.ndarray]] = []
        for batch in globally(itertools.islice(local, most_batches), shardings, rows):
            for name, value in jax.device_get(sums_of(state, batch)).items():
                totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
            if outputs_of is not None:
                outputs.append(jax.device_get({**outputs_of(state, batch), **kept_of(batch)}))
            if stopping():
                return None
        found = dict(getattr(recipe, "figures", means)(totals))
        if outputs:
            found |= recipe.scores(counted(outputs))
        return {name: float(value) for name, value in found.items()}

    return evaluate


def means(totals: Mapping[str, Any]) -> dict[str, float]:
    """Every sum over what was counted."""
    count = float(totals[COUNT])
    return {**{name: float(total) / count for name, total in totals.items() if name != COUNT}, "examples": count}


def counted(outputs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The rows of all batches that count, without those that fill up."""
    joined = {name: np.concatenate([one[name] for one in outputs]) for name in outputs[0]}
    counts = joined.pop("weight") > 0
    return {name: values[counts] for name, values in joined.items()}
