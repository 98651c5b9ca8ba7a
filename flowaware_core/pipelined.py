"""Runs a pipeline: every stage its own programs on its own devices, one forward and one backward pass in turn.

The order of all passes and transfers is one list, worked out before anything runs, so nothing can wait for what comes later.
Arrays move between stages by `jax.device_put`; all devices belong to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from flowaware_core import versions
from flowaware_core.execute import spmd
from flowaware_core.graph.sections import Trunk
from flowaware_core.pipeline import Pipeline, PlannedStage, results_of
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
            _Runner(stage, available[number * each : (number + 1) * each]) for number, stage in enumerate(plan.stages)
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


class _Runner:
    """One stage on its devices, and what it holds during a step.

    Positions are those of the leaves of its program's arguments: see `graph/stage.py`.
    """

    def __init__(self, planned: PlannedStage, devices: Sequence[Any]):
        self.stage, self.graph, self.placed = planned.stage, planned.program.graph, planned.placement
        mesh = planned.candidate.mesh
        self.mesh = versions.mesh(np.array(devices).reshape(mesh.sizes), mesh.names)
        self.shardings = [spmd.sharding(self.placed.tensors[tensor], self.mesh) for tensor in self.graph.inputs]
        self.own, self.slots, self.held, self.given = jax.tree.unflatten(
            self.graph.in_tree, range(len(self.graph.inputs))
        )
        results = results_of(self.graph)
        self._forward = self._part(results.forward)
        self._backward = self._part((*results.held, *results.back), donate=True)
        self._update = self._part(results.update, donate=True)
        rounds = self.stage.share.rounds
        self._exports = [
            self._part([position for position, when in zip(results.exports, rounds, strict=True) if when == turn])
            for turn in range(max(rounds, default=-1) + 1)
        ]
        empty = [*self.held.gradients, *self.held.sums]
        shapes = [self.graph.tensors[self.graph.inputs[position]] for position in empty]
        self._zeros = jax.jit(
            lambda: [jnp.zeros(tensor.shape, tensor.dtype) for tensor in shapes],
            out_shardings=[self.shardings[position] for position in empty],
        )
        self._values: dict[int, Any] = {}
        self._parts: list[dict[int, Any]] = []
        self._inbox: dict[int, dict[int, Any]] = {}
        self._answers: dict[int, dict[int, Any]] = {}
        self._latest: dict[int, Any] = {}

    def _part(self, outputs: Sequence[int], donate: bool = False) -> Callable[[Mapping[int, Any]], list[Any]]:
        """The program of some results, which takes what it needs of the arguments at hand by position.

        Args:
            donate: whether what it replaces gives its memory.
        """
        graph = self.graph.part(outputs)
        read = {tensor for operator in graph.operators for tensor in operator.inputs} | set(graph.outputs)
        used = [position for position, tensor in enumerate(graph.inputs) if tensor in read]
        run = spmd.replay(graph, self.placed, self.mesh)

        def program(*values: Any) -> list[Any]:
            known = dict(zip(used, values, strict=True))
            return run(*[known.get(position) for position in range(len(graph.inputs))])

        shardings = [
            spmd.sharding(self.placed.tensors[output] if isinstance(output, int) else (), self.mesh)
            for output in graph.outputs
        ]
        for position, output in graph.carried.items():
            shardings[output] = self.shardings[position]
        jitted = jax.jit(
            program,
            in_shardings=tuple(self.shardings[position] for position in used),
            out_shardings=shardings,
            donate_argnums=tuple(i for i, position in enumerate(used) if donate and position in graph.carried),
        )
        return lambda values: jitted(*[values[position] for position in used])

    def _here(self, values: Sequence[Any], positions: Sequence[int]) -> dict[int, Any]:
        """Arrays from anywhere as arguments of these positions."""
        moved = jax.device_put(list(values), [self.shardings[position] for position in positions])
        return dict(zip(positions, moved, strict=True))

    def begin(
        self,
        whole: Sequence[Any],
        extra: Sequence[Any],
        parts: Sequence[Any],
        keys: Sequence[Any],
        counts: Sequence[Any],
    ) -> None:
        """A new step.

        Args:
            whole: parameters, optimizer's state and number of the step, as leaves.
            extra: leaves of what the model carries beside its parameters.
            parts: per leaf of the batch its micro-batches.
            keys: per micro-batch its random key.
            counts: normalisers of the whole batch.
        """
        stage, leafs = self.stage, self.stage.leafs
        at = stage.update_leaf
        values = self._here([whole[leaf] for leaf in stage.own], self.own)
        values |= self._here([whole[at("slots", leaf)] for leaf in stage.slots], self.slots)
        values |= self._here([extra[leaf - leafs.extra] for leaf in stage.extra], self.held.extra)
        values |= self._here([whole[leaf] for leaf in stage.borrowed], self.given.borrowed)
        values |= self._here([whole[leaf] for leaf in stage.numbers], self.given.numbers)
        values |= self._here([counts[leaf - leafs.counts] for leaf in stage.counts], self.given.counts)
        values |= dict(zip((*self.held.gradients, *self.held.sums), self._zeros(), strict=True))
        self._values = values
        self._latest = {position: values[position] for position in self.held.extra}
        self._parts = [
            self._here([parts[leaf - leafs.rows][number] for leaf in stage.rows], self.given.rows)
            | self._here([key for _ in stage.has_key], self.given.key)
            for number, key in enumerate(keys)
        ]

    def receive(self, part: int, values: Sequence[Any]) -> None:
        """What the stage before made of a micro-batch."""
        self._inbox[part] = self._here(values, self.given.forward)

    def answer(self, part: int, values: Sequence[Any]) -> None:
        """Derivatives from the stage behind."""
        self._answers[part] = self._here(values, self.given.backward)

    def forward(self, part: int) -> list[Any]:
        found = self._forward(self._values | self._latest | self._parts[part] | self._inbox.get(part, {}))
        passed = len(self.stage.section.passed)
        self._latest = dict(zip(self.held.extra, found[passed:], strict=True))
        return found[:passed]

    def backward(self, part: int) -> list[Any]:
        found = self._backward(
            self._values | self._parts[part] | self._inbox.pop(part, {}) | self._answers.pop(part, {})
        )
        held = [*self.held.gradients, *self.held.sums, *self.held.extra]
        self._values |= dict(zip(held, found, strict=False))
        return found[len(held) :]

    def gradient(self, leaf: int) -> Any:
        """Of a weight that lives elsewhere, as far as it is used here."""
        return self._values[self.held.gradients[len(self.stage.own) + self.stage.borrowed.index(leaf)]]

    def borrow(self, others: Sequence[_Runner]) -> None:
        """Gradients that others found for weights that live here."""
        found = [other.gradient(leaf) for other in others for leaf in other.stage.borrowed if leaf in self.stage.own]
        self._values |= self._here(found, self.given.lent)

    def exported(self, turn: int, known: Mapping[Any, Any]) -> dict[Any, Any]:
        """What others need of this stage and is known in this round."""
        if turn >= len(self._exports):
            return {}
        share = self.stage.share
        names = [name for name, when in zip(share.exports, share.rounds, strict=True) if when == turn]
        return dict(zip(names, self._exports[turn](self._values | self._imports(known)), strict=True))

    def update(self, known: Mapping[Any, Any]) -> dict[int, Any]:
        """Results of the update that are made here, by their positions among all."""
        stage, at = self.stage, self.stage.update_leaf
        mine = [*stage.own, *(at("slots", leaf) for leaf in stage.slots)]
        rest = sorted(set(stage.share.results) - set(mine))
        return dict(zip([*mine, *rest], self._update(self._values | self._imports(known)), strict=True))

    def _imports(self, known: Mapping[Any, Any]) -> dict[int, Any]:
        pairs = [
            (known[name], position)
            for name, position in zip(self.stage.share.imports, self.given.imports, strict=True)
            if name in known
        ]
        return self._here([value for value, _ in pairs], [position for _, position in pairs])

    def extra(self) -> dict[int, Any]:
        """Leaves of what the model carries, after the last micro-batch."""
        leaves = (leaf - self.stage.leafs.extra for leaf in self.stage.extra)
        return {leaf: self._values[position] for leaf, position in zip(leaves, self.held.extra, strict=True)}

    def homes(self) -> dict[int, NamedSharding]:
        """Leaves of parameters and optimizer's state that live here."""
        leaves = [*self.stage.own, *(self.stage.update_leaf("slots", leaf) for leaf in self.stage.slots)]
        positions = [*self.own, *self.slots]
        return {leaf: self.shardings[position] for leaf, position in zip(leaves, positions, strict=True)}

    def extra_homes(self) -> dict[int, NamedSharding]:
        leaves = (leaf - self.stage.leafs.extra for leaf in self.stage.extra)
        return {leaf: self.shardings[position] for leaf, position in zip(leaves, self.held.extra, strict=True)}

    def row_homes(self) -> dict[int, NamedSharding]:
        leaves = (leaf - self.stage.leafs.rows for leaf in self.stage.rows)
        return {leaf: self.shardings[position] for leaf, position in zip(leaves, self.given.rows, strict=True)}


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
