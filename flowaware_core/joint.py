"""One program or stages: whichever is predicted to be faster; where neither fits, a step that keeps state on the hosts."""

from __future__ import annotations

from typing import Any

from flowaware_core.api import DoesNotFit, plan
from flowaware_core.cluster.model import Cluster
from flowaware_core.graph.owners import Inseparable
from flowaware_core.offload import Offloaded, Stateless, offload
from flowaware_core.pipeline import Pipeline, pipeline
from flowaware_core.plan import Plan
from flowaware_core.training import Training


def fastest(
    training: Training, state: Any, batch: Any, cluster: Cluster, name: str = "task"
) -> Plan | Pipeline | Offloaded:
    """The plan of a training step, or its split into stages where that is predicted to be faster or alone fits in memory.

    Where neither fits, with any number of micro-batches and anything computed again, the optimizer's state lies on the hosts.

    Args:
        training: loss and optimizer.
        state, batch: arrays or shapes.
        cluster: the devices.
        name: what the plan calls the task.

    Returns:
        a plan, which `apply` makes a step from `training.task(state, batch, name)`; a pipeline, which `PipelinedStep` runs; or an
        offloaded step, which `OffloadedStep` runs.

    Raises:
        DoesNotFit: none of them fits in memory.
    """
    try:
        whole = plan(training.task(state, batch, name), cluster)
    except DoesNotFit as error:
        found = _staged(training, state, batch, cluster, float("inf"), name)
        return found or _hosted(training, state, batch, cluster, name, error)
    return _staged(training, state, batch, cluster, whole.predicted.step_s, name) or whole


def _staged(training: Training, state: Any, batch: Any, cluster: Cluster, below: float, name: str) -> Pipeline | None:
    """The pipeline that fits and takes less than so many seconds a step; None where there is none."""
    try:
        found = pipeline(training, state, batch, cluster, below=below, name=name)
    except Inseparable:
        return None
    return found if found.fits and found.step_s < below else None


def _hosted(training: Training, state: Any, batch: Any, cluster: Cluster, name: str, without: DoesNotFit) -> Offloaded:
    """The step with the optimizer's state on the hosts.

    Raises:
        DoesNotFit: even that does not fit, or there is no such state, and why it did not fit without.
    """
    try:
        return offload(training, state, batch, cluster, name)
    except DoesNotFit as error:
        raise DoesNotFit(f"{without}. With the optimizer's state on the hosts: {error}") from None
    except Stateless:
        raise without from None
