"""Runs a pipeline: every stage its own programs on its own devices, one forward and one backward pass in turn.

The order of all passes and transfers is one list, worked out before anything runs, so nothing can wait for what comes later.
Arrays move between stages by `jax.device_put`; all devices belong to this process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from flowaware_core import versions
from flowaware_core.execute.stage import Runner
from flowaware_core.graph.sections import Trunk
from flowaware_core.pipeline import Pipeline, PlannedStage
from flowaware_core.training import interleaved

Pass = tuple[int, Literal["forward", "backward"], int]


def order(stages: int, micro_batches: int) -> tuple[Pass, ...]:
    """All passes of a step, as (stage, direction, micro-batch), each after what it needs.

    A stage starts as many forward passes as there are stages behind it, then turns: one backward, one forward, so no more
    micro-batches wait in it than that. The last stage goes back at once: its backward pass computes the forward pass too.
    """
    plans = [_passes(stage, stages, micro_batches) for stage in range(stages)]
    at, done, found = [0] * stages, set[Pass](), list[Pass]()
    while len(found) < sum(map(len, plans)):
        before = len(found)
        # What can start at once, the stages behind first: they have waited longest.
        for stage in reversed(range(stages)):
            if at[stage] < len(plans[stage]):
                direction, number = plans[stage][at[stage]]
                needs = (
                    {(stage - 1, "forward", number)}
                    if stage and (direction == "forward" or stage == stages - 1)
                    else set()
                )
                if direction == "backward" and stage < stages - 1:
                    needs.add((stage + 1, "backward", number))
                if needs <= done:
                    found.append((stage, direction, number))
                    at[stage] += 1
        assert len(found) > before, "a pass waits for itself"
        done.update(found[before:])
    return tuple(found)


def _passes(stage: int, stages: int, micro_batches: int) -> list[tuple[Literal["forward", "backward"], int]]:
    if stage == stages - 1:
        return [("backward", number) for number in range(micro_batches)]
    ahead = min(stages - 1 - stage, micro_batches)
    found: list[tuple[Literal["forward", "backward"], int]] = [("forward", number) for number in range(ahead)]
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            found.append(("forward", ahead + number))
        found.append(("backward", number))
    return found


class PipelinedStep:
    """A pipeline on real devices: call it like the step of its training.

    Args:
        plan: the pipeline.
        devices: as many as its cluster has, stage by stage; the first of `jax.devices()` if not given.

    Attributes:
        in_shardings: of state and batch: every leaf on the devices of the stage that holds it.

    Raises:
        ValueError: too few devices, or devices of another process.
    """

    def __init__(self, plan: Pipeline, devices: Sequence[Any] | None = None):
        available = list(jax.devices() if devices is None else devices)
        count = plan.cluster.num_devices
        if len(available) < count:
            raise ValueError(f"the pipeline needs {count} devices and {len(available)} are here; emulate devices")
        if any(device.process_index != jax.process_index() for device in available[:count]):
            raise ValueError("stages run in one process, and some of these devices belong to another")
        self.plan = plan
        each = count // len(plan.stages)
        self._stages = [
            _runner(stage, available[number * each : (number + 1) * each]) for number, stage in enumerate(plan.stages)
        ]
        self._order = order(len(plan.stages), plan.micro_batches)
        self._counts = _Counts(plan, self._stages[-1].mesh)
        self._keys = jax.jit(lambda rng, step: _keys(rng, step, plan.micro_batches))
        self._parts = jax.jit(lambda leaf: list(interleaved(leaf, plan.micro_batches)))
        self._metrics = sorted(jax.eval_shape(plan.training.step(), plan.state, plan.batch)[1])
        self.in_shardings = (self._state_shardings(), self._batch_shardings())

    def __call__(self, state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """One step; the memory of the state goes to the results.

        Args:
            state, batch: as the training's step takes them, laid out as `in_shardings` say.

        Returns:
            the next state, laid out alike, and the metrics.
        """
        stages, name = self._stages, self.plan.training.extra
        key, keys = self._keys(state["rng"], state["step"])
        rows = jax.tree.leaves(batch)
        parts = [self._parts(leaf) for leaf in rows]
        counts = self._counts(rows, key)
        whole = [*jax.tree.leaves((state["params"], state["opt_state"])), state["step"]]
        extra = [] if name is None else jax.tree.leaves(state[name])
        for stage in stages:
            stage.begin(whole, extra, parts, keys, counts)
        for number, direction, part in self._order:
            if direction == "forward":
                stages[number + 1].receive(part, stages[number].forward(part))
            else:
                back = stages[number].backward(part)
                if number:
                    stages[number - 1].answer(part, back)
        for number, stage in enumerate(stages):
            stage.borrow([other for index, other in enumerate(stages) if index != number])
        return self._assembled(state, self._updated())

    def _updated(self) -> dict[int, Any]:
        """Numbers go round until every stage has what it needs; then all update. Returns results by position."""
        shares = self.plan.split.shares
        known: dict[Any, Any] = {}
        for turn in range(max((when + 1 for share in shares for when in share.rounds), default=0)):
            for stage in self._stages:
                known.update(stage.exported(turn, known))
        finished: dict[int, Any] = {}
        for stage in self._stages:
            finished |= stage.update(known)
        return finished

    def _assembled(self, state: Any, finished: Mapping[int, Any]) -> tuple[Any, dict[str, Any]]:
        after, tree = dict(state), jax.tree.structure((state["params"], state["opt_state"]))
        end = len(jax.tree.leaves((state["params"], state["opt_state"])))
        after["params"], after["opt_state"] = jax.tree.unflatten(tree, [finished[leaf] for leaf in range(end)])
        after["step"] = finished[end]
        name = self.plan.training.extra
        if name is not None:
            leaves: dict[int, Any] = {}
            for stage in self._stages:
                leaves |= stage.extra()
            after[name] = jax.tree.unflatten(jax.tree.structure(state[name]), [leaves[leaf] for leaf in sorted(leaves)])
        return after, {key: finished[end + 1 + index] for index, key in enumerate(self._metrics)}

    def _state_shardings(self) -> Any:
        state, name = self.plan.state, self.plan.training.extra
        whole = NamedSharding(self._stages[-1].mesh, PartitionSpec())
        found = jax.tree.map(lambda _: whole, state)
        leaves, tree = jax.tree.flatten((found["params"], found["opt_state"]))
        extra, extra_tree = jax.tree.flatten(None if name is None else found[name])
        for stage in self._stages:
            for leaf, sharding in stage.homes().items():
                leaves[leaf] = sharding
            for leaf, sharding in stage.extra_homes().items():
                extra[leaf] = sharding
        found["params"], found["opt_state"] = jax.tree.unflatten(tree, leaves)
        return found if name is None else {**found, name: jax.tree.unflatten(extra_tree, extra)}

    def _batch_shardings(self) -> Any:
        leaves, tree = jax.tree.flatten(self.plan.batch)
        found: list[Any] = [NamedSharding(self._stages[-1].mesh, PartitionSpec())] * len(leaves)
        for stage in reversed(self._stages):
            for leaf, sharding in stage.row_homes().items():
                found[leaf] = sharding
        return jax.tree.unflatten(tree, found)


def _runner(planned: PlannedStage, devices: Sequence[Any]) -> Runner:
    axes = planned.candidate.mesh
    mesh = versions.mesh(np.array(devices).reshape(axes.sizes), axes.names)
    return Runner(planned.stage, planned.program.graph, planned.placement, mesh)


class _Counts:
    """The normalisers of the whole batch, which need no model.

    Raises:
        ValueError: one depends on parameters.
    """

    def __init__(self, plan: Pipeline, mesh: jax.sharding.Mesh):
        training, state = plan.training, plan.state
        extra = None if training.extra is None else state[training.extra]

        def counts(params: Any, extra: Any, batch: Any, key: Any) -> dict[str, Any]:
            return {name: mean.count for name, mean in training.loss(params, extra, batch, key).terms.items()}

        args = (state["params"], extra, plan.batch, state["rng"])
        (section,) = Trunk(counts, args, weights=(0, 1)).cut(())
        self._first = len(jax.tree.leaves((state["params"], extra)))
        if any(leaf < self._first for leaf in section.leaves):
            raise ValueError("the count of a mean depends on parameters; it may depend on the batch only")
        self._leaves = section.leaves
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._run = jax.jit(lambda *values: section(values, ())[1])

    def __call__(self, rows: Sequence[Any], key: Any) -> list[Any]:
        values = [*rows, key]
        return self._run(*jax.device_put([values[leaf - self._first] for leaf in self._leaves], self._whole))


def _keys(rng: Any, step: Any, micro_batches: int) -> tuple[Any, list[Any]]:
    """The key of a step, and those of its micro-batches, as `Training.step` draws them."""
    key = jax.random.fold_in(rng, step)
    parts = [jax.random.fold_in(key, number) for number in range(micro_batches)]
    return key, parts if micro_batches > 1 else [key]
