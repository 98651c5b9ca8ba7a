"""Runs a pipeline: every stage its own programs on its own devices, one forward and one backward pass in turn.

The order of all passes and transfers is one list, worked out before anything runs and the same on every process, so nothing can
wait for what comes later. Every process goes through the whole list: what has no part on its devices is an `Elsewhere` to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from flowaware_core import versions
from flowaware_core.execute import transfer
from flowaware_core.execute.stage import Runner
from flowaware_core.graph.sections import Trunk
from flowaware_core.order import order
from flowaware_core.pipeline import Pipeline
from flowaware_core.planned import PlannedStage
from flowaware_core.training import interleaved


class PipelinedStep:
    """A pipeline on real devices: call it like the step of its training.

    Args:
        plan: the pipeline.
        devices: as many as its cluster has, stage by stage; the first of `jax.devices()` if not given. Those of a stage may belong
            to one process or to several.

    Attributes:
        in_shardings: of state and batch: every leaf on the devices of the stage that holds it.

    Raises:
        ValueError: too few devices.
    """

    def __init__(self, plan: Pipeline, devices: Sequence[Any] | None = None):
        available = list(jax.devices() if devices is None else devices)
        count = plan.cluster.num_devices
        if len(available) < count:
            raise ValueError(f"the pipeline needs {count} devices and {len(available)} are here; emulate devices")
        self.plan = plan
        begins = itertools.accumulate(plan.groups, initial=0)
        self._stages = [
            _runner(stage, available[begin : begin + stage.devices])
            for begin, stage in zip(begins, plan.stages, strict=False)
        ]
        self._order = order(len(plan.stages), plan.micro_batches)
        self._everywhere = [NamedSharding(stage.mesh, PartitionSpec()) for stage in self._stages]
        self._counts = _Counts(plan, self._stages[-1].mesh)
        self._keys = jax.jit(lambda rng, step: _keys(rng, step, plan.micro_batches))
        self._cut = jax.jit(lambda leaf: list(interleaved(leaf, plan.micro_batches)))
        self._metrics = sorted({"loss", *self._counts.metrics, *plan.training.record})
        self.in_shardings = (self._state_shardings(), self._batch_shardings())

    def __call__(self, state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        """One step; the memory of the state goes to the results.

        Args:
            state, batch: as the training's step takes them, laid out as `in_shardings` say.

        Returns:
            the next state, laid out alike, and the metrics.
        """
        stages, name = self._stages, self.plan.training.extra
        keys = [self._drawn(state, where) for where in self._everywhere]
        rows = jax.tree.leaves(batch)
        parts = [self._parts(leaf) for leaf in rows]
        counts = self._counts(rows, keys[-1][0])
        whole = [*jax.tree.leaves((state["params"], state["opt_state"])), state["step"]]
        extra = [] if name is None else jax.tree.leaves(state[name])
        for stage, (_, own) in zip(stages, keys, strict=True):
            stage.begin(whole, extra, parts, own, counts)
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

    def initial(self, make: Callable[..., Any], *args: Any) -> Any:
        """The state that `make(*args)` returns, every leaf born on the devices of its stage.

        Args:
            make: traceable; the same on every process.
            args: arrays or numbers that every process has.
        """
        leaves, tree = jax.tree.flatten(self.in_shardings[0])
        shapes = jax.tree.leaves(self.plan.state)
        found: list[Any] = [
            transfer.Elsewhere(shape.shape, shape.dtype, leaf) for shape, leaf in zip(shapes, leaves, strict=True)
        ]
        for stage in self._stages:
            own = [index for index, sharding in enumerate(leaves) if sharding.mesh == stage.mesh]
            if stage.here:

                def chosen(*args: Any, own: Sequence[int] = own) -> list[Any]:
                    made = jax.tree.leaves(make(*args))
                    return [made[index] for index in own]

                born = jax.jit(chosen, out_shardings=[leaves[index] for index in own])
                for index, value in zip(own, born(*args), strict=True):
                    found[index] = value
        return jax.tree.unflatten(tree, found)

    def placed(self, batch: Any) -> Any:
        """A batch that every process has, laid out as `in_shardings` say."""
        leaves, tree = jax.tree.flatten(batch)
        return jax.tree.unflatten(tree, transfer.moved(leaves, jax.tree.leaves(self.in_shardings[1])))

    def _drawn(self, state: Any, where: NamedSharding) -> tuple[Any, list[Any]]:
        """The key of the step, and those of the micro-batches, on the devices of a stage."""
        given = transfer.moved([state["rng"], state["step"]], [where, where])
        if transfer.here(where.mesh):
            return self._keys(*given)
        away = transfer.Elsewhere((), state["rng"].dtype, where)
        return away, [away] * self.plan.micro_batches

    def _parts(self, leaf: Any) -> list[Any]:
        """The micro-batches of a leaf of the batch."""
        if not isinstance(leaf, transfer.Elsewhere):
            return self._cut(leaf)
        count = self.plan.micro_batches
        shape = (leaf.shape[0] // count, *leaf.shape[1:])
        return [transfer.Elsewhere(shape, leaf.dtype, leaf.sharding)] * count

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
        name = self.plan.training.extra
        if name is not None:
            leaves: dict[int, Any] = {}
            for stage in self._stages:
                leaves |= stage.extra()
            after[name] = jax.tree.unflatten(jax.tree.structure(state[name]), [leaves[leaf] for leaf in sorted(leaves)])
        # The number of the step and the metrics are the same everywhere, and wanted everywhere.
        after["step"] = transfer.moved([finished[end]], self._everywhere[-1:])[0]
        values = [finished[end + 1 + index] for index in range(len(self._metrics))]
        for where in self._everywhere:
            found = transfer.moved(values, [where] * len(values))
            if transfer.here(where.mesh):
                metrics = dict(zip(self._metrics, found, strict=True))
        return after, metrics

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
    return Runner(planned.stage, planned.program.graph, planned.placement, planned.kept, mesh)


class _Counts:
    """The normalisers of the whole batch, which need no model.

    Attributes:
        metrics: the names of the loss's further means.

    Raises:
        ValueError: one depends on parameters.
    """

    def __init__(self, plan: Pipeline, mesh: jax.sharding.Mesh):
        training, state = plan.training, plan.state
        extra = None if training.extra is None else state[training.extra]

        def counts(params: Any, extra: Any, batch: Any, key: Any) -> dict[str, Any]:
            found = training.loss(params, extra, batch, key)
            self.metrics = tuple(found.metrics)
            return {name: mean.count for name, mean in found.terms.items()}

        args = (state["params"], extra, plan.batch, state["rng"])
        trunk = Trunk(counts, args, weights=(0, 1))
        (section,) = trunk.cut(())
        self._first = len(jax.tree.leaves((state["params"], extra)))
        if any(leaf < self._first for leaf in section.leaves):
            raise ValueError("the count of a mean depends on parameters; it may depend on the batch only")
        self._leaves = section.leaves
        self._whole = NamedSharding(mesh, PartitionSpec())
        self._run = jax.jit(lambda *values: section(values, ())[1])
        self._away = [
            transfer.Elsewhere(shape.shape, shape.dtype, self._whole) for shape in jax.tree.leaves(trunk.shapes)
        ]

    def __call__(self, rows: Sequence[Any], key: Any) -> list[Any]:
        values = [*rows, key]
        given = transfer.moved([values[leaf - self._first] for leaf in self._leaves], [self._whole] * len(self._leaves))
        return self._run(*given) if transfer.here(self._whole.mesh) else list(self._away)


def _keys(rng: Any, step: Any, micro_batches: int) -> tuple[Any, list[Any]]:
    """The key of a step, and those of its micro-batches, as `Training.step` draws them."""
    key = jax.random.fold_in(rng, step)
    parts = [jax.random.fold_in(key, number) for number in range(micro_batches)]
    return key, parts if micro_batches > 1 else [key]
