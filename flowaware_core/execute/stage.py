"""One stage of a pipeline on its devices: its programs, and what it holds from pass to pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from flowaware_core.execute import spmd, transfer
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Placement
from flowaware_core.graph.stage import Stage, results_of


class Runner:
    """One stage on its devices, and what it holds during a step.

    Positions are those of the leaves of its program's arguments: see `graph/stage.py`.

    Args:
        stage: what it runs.
        graph, placed: its program, and where its values lie.
        kept: tensors that the forward pass keeps for the backward pass; without any, that computes them again.
        mesh: its devices.
    """

    def __init__(self, stage: Stage, graph: Graph, placed: Placement, kept: Sequence[int], mesh: jax.sharding.Mesh):
        self.stage, self.graph, self.placed, self.mesh = stage, graph, placed, mesh
        self.here = transfer.here(mesh)
        self.shardings = [spmd.sharding(self.placed.tensors[tensor], self.mesh) for tensor in self.graph.inputs]
        self.own, self.slots, self.held, self.given = jax.tree.unflatten(
            self.graph.in_tree, range(len(self.graph.inputs))
        )
        results = results_of(self.graph)
        self._kept = range(len(self.graph.inputs), len(self.graph.inputs) + len(kept))
        self._forward = self._part(results.forward, kept=kept)
        self._backward = self._part((*results.held, *results.back), given=kept, donate=True)
        self._update = self._part(results.update, donate=True)
        rounds = self.stage.share.rounds
        self._exports = [
            self._part([position for position, when in zip(results.exports, rounds, strict=True) if when == turn])
            for turn in range(max(rounds, default=-1) + 1)
        ]
        empty = [*self.held.gradients, *self.held.sums]
        shapes = [self.graph.tensors[self.graph.inputs[position]] for position in empty]
        self._zeros = self._program(
            lambda: [jnp.zeros(tensor.shape, tensor.dtype) for tensor in shapes],
            shapes,
            [self.shardings[position] for position in empty],
        )
        self._values: dict[int, Any] = {}
        self._parts: list[dict[int, Any]] = []
        self._inbox: dict[int, dict[int, Any]] = {}
        self._answers: dict[int, dict[int, Any]] = {}
        self._waiting: dict[int, dict[int, Any]] = {}
        self._latest: dict[int, Any] = {}

    def _part(
        self, outputs: Sequence[int], kept: Sequence[int] = (), given: Sequence[int] = (), donate: bool = False
    ) -> Callable[[Mapping[int, Any]], list[Any]]:
        """The program of some results, which takes what it needs of the arguments at hand by position.

        Args:
            outputs, kept, given: as of `Graph.part`.
            donate: whether what it replaces gives its memory.
        """
        graph = self.graph.part(outputs, kept, given)
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
        jitted = self._program(
            program,
            [
                graph.tensors[output] if isinstance(output, int) else np.asarray(output.value)
                for output in graph.outputs
            ],
            shardings,
            in_shardings=tuple(
                spmd.sharding(self.placed.tensors[graph.inputs[position]], self.mesh) for position in used
            ),
            donate_argnums=tuple(i for i, position in enumerate(used) if donate and position in graph.carried),
        )
        return lambda values: jitted(*[values[position] for position in used])

    def _program(
        self, function: Callable[..., list[Any]], results: Sequence[Any], shardings: Sequence[Any], **options: Any
    ) -> Callable[..., list[Any]]:
        """The function, compiled for these devices; where they are of other processes, just where its results are."""
        if self.here:
            run = jax.jit(function, out_shardings=list(shardings), **options)
            return lambda *values: transfer.settled(run(*values), self.mesh)
        away = [
            transfer.Elsewhere(result.shape, jnp.dtype(result.dtype), sharding)
            for result, sharding in zip(results, shardings, strict=True)
        ]
        return lambda *values: list(away)

    def _here(self, values: Sequence[Any], positions: Sequence[int]) -> dict[int, Any]:
        """Arrays from anywhere as arguments of these positions."""
        moved = transfer.moved(values, [self.shardings[position] for position in positions])
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
        passed, made = len(self.stage.section.passed), len(found) - len(self._kept)
        self._latest = dict(zip(self.held.extra, found[passed:made], strict=True))
        self._waiting[part] = dict(zip(self._kept, found[made:], strict=True))
        return found[:passed]

    def backward(self, part: int) -> list[Any]:
        found = self._backward(
            self._values
            | self._parts[part]
            | self._inbox.pop(part, {})
            | self._answers.pop(part, {})
            | self._waiting.pop(part, {})
        )
        held = [*self.held.gradients, *self.held.sums, *self.held.extra]
        self._values |= dict(zip(held, found, strict=False))
        return found[len(held) :]

    def gradient(self, leaf: int) -> Any:
        """Of a weight that lives elsewhere, as far as it is used here."""
        return self._values[self.held.gradients[len(self.stage.own) + self.stage.borrowed.index(leaf)]]

    def borrow(self, others: Sequence[Runner]) -> None:
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
