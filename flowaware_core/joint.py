"""One program or stages: whichever is predicted to be faster."""

from __future__ import annotations

from typing import Any

from flowaware_core.api import DoesNotFit, plan
from flowaware_core.cluster.model import Cluster
from flowaware_core.graph.owners import Inseparable
from flowaware_core.pipeline import Pipeline, pipeline
from flowaware_core.plan import Plan
from flowaware_core.training import Training


def fastest(training: Training, state: Any, batch: Any, cluster: Cluster, name: str = "task") -> Plan | Pipeline:
    """The plan of a training step, or its split into stages where that is predicted to be faster or alone fits in memory.

    Args:
        training: loss and optimizer.
        state, batch: arrays or shapes.
        cluster: the devices.
        name: what the plan calls the task.

    Returns:
        a plan, which `apply` makes a step from `training.task(state, batch, name)`; or a pipeline, which `PipelinedStep` runs.

    Raises:
        DoesNotFit: neither fits in memory.
    """
    try:
        whole = plan(training.task(state, batch, name), cluster)
    except DoesNotFit as error:
        found = _staged(training, state, batch, cluster, float("inf"), name)
        if found is None:
            raise error
        return found
    return _staged(training, state, batch, cluster, whole.predicted.step_s, name) or whole


def _staged(training: Training, state: Any, batch: Any, cluster: Cluster, below: float, name: str) -> Pipeline | None:
    """The pipeline that fits and takes less than so many seconds a step; None where there is none."""
    try:
        found = pipeline(training, state, batch, cluster, below=below, name=name)
    except Inseparable:
        return None
    return found if found.fits and found.step_s < below else None
