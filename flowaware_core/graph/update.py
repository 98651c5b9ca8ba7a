"""The update of a training step cut off from the gradients, and cut into parts that want the optimizer's state one after the other.

What an optimizer does to arrays stays within one parameter, so parameters whose arrays meet nowhere are updated apart: each such
unit with its gradients and its part of the state. Numbers join them, such as the norm of the whole gradient. A number that needs no
array of the state is known before the update begins. One that does is made of numbers of the single parts, which run up to there
first. Where that is not enough, all parameters are one part.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import jax

from flowaware_core.graph.model import Graph, Operand
from flowaware_core.graph.owners import Inseparable


@dataclasses.dataclass(frozen=True, eq=False)
class Unit:
    """What is updated together.

    Attributes:
        leaves: input leaves of parameters and of the arrays of the optimizer's state.
        gradients: tensors.
        hosted: tensors of the arrays of the optimizer's state.
    """

    leaves: tuple[int, ...]
    gradients: tuple[int, ...]
    hosted: tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Units that are updated at a time.

    Attributes:
        graph: the program that updates them.
        results: positions of the whole's outputs that are its outputs.
        gradients, hosted: as of `Unit`, of all of them.
        numbers: the program of what is known to this part alone and others need; None where they need nothing.
    """

    graph: Graph
    results: tuple[int, ...]
    gradients: tuple[int, ...]
    hosted: tuple[int, ...]
    numbers: Graph | None


@dataclasses.dataclass(frozen=True, eq=False)
class Division:
    """An update in parts.

    Attributes:
        parts: in order.
        joined: the program that makes what all need of the numbers of single parts; None where there is no such thing.
        results: positions of the whole's outputs that are its first outputs.
    """

    parts: tuple[Part, ...]
    joined: Graph | None
    results: tuple[int, ...]


class Cut:
    """A training step cut before its update.

    Args:
        graph: of the function (state, batch) -> (state, metrics, gradients), as `Training.exposed` makes it.
        extra: the name of what the model carries beside its parameters.

    Attributes:
        whole: the graph.
        gradients: the program of all that needs no array of the optimizer's state: gradients, metrics and the numbers of the
            update; its `update` is the rest.
        results: positions of the whole's outputs that are its first outputs.
        units: what of the update can run apart.
    """

    def __init__(self, graph: Graph, extra: str | None = None):
        self.whole = graph
        state, _ = jax.tree.unflatten(graph.in_tree, range(len(graph.inputs)))
        _, _, slopes = jax.tree.unflatten(graph.out_tree, range(len(graph.outputs)))
        self._makers = {tensor: operator for operator in graph.operators for tensor in operator.results}
        self._params = jax.tree.leaves(state["params"])
        self._slots = [leaf for leaf in jax.tree.leaves(state["opt_state"]) if self._large(graph.inputs[leaf])]
        outputs = [graph.outputs[position] for position in jax.tree.leaves(slopes)]
        self._slopes = {output for output in outputs if isinstance(output, int) and output in self._makers}
        self.units = self._units(outputs)
        self._needs = self._needed()
        apart = {graph.carried[leaf] for leaf in (*self._params, *self._slots)}
        rest = [
            position
            for position, output in enumerate(graph.outputs)
            if position not in apart and position not in jax.tree.leaves(slopes) and output in self._makers
        ]
        self.results = tuple(position for position in rest if not self._mask(graph.outputs[position]))
        self._behind = tuple(position for position in rest if position not in self.results)
        last = (*sorted(apart), *self._behind)
        given = self._given(last, 0)
        self.gradients = dataclasses.replace(
            self._program(self.results, given | self._slopes, (), self._tensors(jax.tree.leaves(state.get(extra)))),
            update=self._program(last, (), given | self._slopes, self._tensors((*self._params, *self._slots))),
            hosted=tuple(graph.inputs[leaf] for leaf in self._slots),
        )

    def parts(self, groups: Sequence[Sequence[int]]) -> Division:
        """The update in parts.

        Args:
            groups: per part its units.

        Raises:
            Inseparable: a part needs more of another than numbers of it alone.
        """
        graph = self.whole
        masks = [sum(1 << unit for unit in group) for group in groups]
        results = [self._results(group, mask) for group, mask in zip(groups, masks, strict=True)]
        given = [self._given(found, mask) for found, mask in zip(results, masks, strict=True)]
        mine = {position for found in results for position in found}
        behind = tuple(position for position in self._behind if position not in mine)
        # What comes from elsewhere: of one other part, or of several.
        late = {tensor for tensors in given for tensor in tensors if self._mask(tensor)}
        late |= {output for output in (graph.outputs[position] for position in behind) if isinstance(output, int)}
        joined = {tensor for tensor in late if not self._within(tensor, masks)}
        ends = self._ends(joined, lambda tensor: self._number(tensor) and self._within(tensor, masks))
        arrays = [tensor for tensor in ends if self._large(tensor)]
        if arrays:
            raise Inseparable(
                "the update goes twice over arrays of the optimizer's state that other parameters wait for"
            )
        exported = {tensor for tensor in (late - joined) | ends if self._mask(tensor)}
        found = []
        for group, mask, positions, known in zip(groups, masks, results, given, strict=True):
            self._check(group, positions, known)
            own = [tensor for tensor in exported if not self._mask(tensor) & ~mask]
            units = [self.units[unit] for unit in group]
            # A loop that makes a parameter may read the state as it came, so that cannot be changed in place.
            params = self._tensors(leaf for unit in units for leaf in unit.leaves) - self._tensors(self._slots)
            found.append(
                Part(
                    self._program(positions, (), known, params),
                    positions,
                    tuple(tensor for unit in units for tensor in unit.gradients),
                    tuple(tensor for unit in units for tensor in unit.hosted),
                    self._program((), own, self._given((), mask, own)) if own else None,
                )
            )
        made = joined - {graph.outputs[position] for position in behind}
        inner = {tensor for tensor in ends if tensor in self._makers}
        return Division(tuple(found), self._program(behind, made, inner) if joined else None, behind)

    def _program(
        self,
        positions: Sequence[int],
        kept: Iterable[int],
        given: Iterable[int],
        donated: AbstractSet[int] = frozenset(),
    ) -> Graph:
        """The program of some outputs; of what it replaces, only some gives its memory away: others may still read the rest."""
        found = self.whole.part(positions, sorted(kept), sorted(given)).reading()
        carried = {leaf: output for leaf, output in found.carried.items() if found.inputs[leaf] in donated}
        return dataclasses.replace(found, carried=carried)

    def _tensors(self, leaves: Iterable[int]) -> set[int]:
        return {self.whole.inputs[leaf] for leaf in leaves}

    def _large(self, tensor: int) -> bool:
        value = self.whole.tensors[tensor]
        return math.prod(value.shape) > 1 and value.dtype != "key"

    def _number(self, tensor: int) -> bool:
        return math.prod(self.whole.tensors[tensor].shape) <= 1

    def _mask(self, operand: Operand) -> int:
        """The units, as bits, whose arrays of the state a value is made of."""
        return self._needs.get(operand, 0) if isinstance(operand, int) else 0

    def _within(self, tensor: int, masks: Sequence[int]) -> bool:
        """Whether a tensor needs arrays of the state of one part at most."""
        return any(not self._mask(tensor) & ~mask for mask in masks)

    def _ends(self, targets: Iterable[Any], stop: Any) -> set[int]:
        """The tensors at which a way back from some others ends: arguments, gradients, and where it is told to stop."""
        waiting, seen, ends = [target for target in targets if isinstance(target, int)], set[int](), set[int]()
        begin = set(waiting)
        while waiting:
            tensor = waiting.pop()
            if tensor in seen:
                continue
            seen.add(tensor)
            if tensor not in self._makers or (tensor not in begin and (tensor in self._slopes or stop(tensor))):
                ends.add(tensor)
            else:
                waiting.extend(self._makers[tensor].inputs)
        return ends

    def _given(self, positions: Sequence[int], mask: int, kept: Sequence[int] = ()) -> set[int]:
        """The gradients and the numbers from elsewhere from which units of a mask can make some outputs; mask 0: any units."""
        outside = ~mask if mask else 0

        def stop(tensor: int) -> bool:
            needs = self._mask(tensor)
            return self._number(tensor) and (not needs or bool(needs & outside))

        targets = [*(self.whole.outputs[position] for position in positions), *kept]
        return {tensor for tensor in self._ends(targets, stop) if tensor in self._makers}

    def _results(self, group: Sequence[int], mask: int) -> tuple[int, ...]:
        graph = self.whole
        own = [graph.carried[leaf] for unit in group for leaf in self.units[unit].leaves]
        return (*own, *(p for p in self._behind if not self._mask(graph.outputs[p]) & ~mask))

    def _check(self, group: Sequence[int], positions: Sequence[int], known: AbstractSet[int]) -> None:
        """What a part reads of others is gone, or not yet there, when it runs."""
        graph = self.whole
        own = self._tensors(leaf for unit in group for leaf in self.units[unit].leaves)
        own |= {tensor for unit in group for tensor in self.units[unit].gradients}
        others = self._tensors((*self._params, *self._slots)) | self._slopes
        targets = [graph.outputs[position] for position in positions]
        if (self._ends(targets, known.__contains__) & others) - own:
            raise Inseparable("the update of a parameter reads others as a whole")

    def _units(self, slopes: Sequence[Any]) -> tuple[Unit, ...]:
        """Parameters, gradients and arrays of the state, joined where a result is made of several."""
        graph = self.whole
        parent: dict[int, int] = {}

        def root(tensor: int) -> int:
            while parent.setdefault(tensor, tensor) != tensor:
                parent[tensor] = tensor = parent[parent[tensor]]
            return tensor

        nodes = self._tensors((*self._params, *self._slots)) | self._slopes
        for leaf, slope in zip(self._params, slopes, strict=True):
            if slope in self._slopes:
                parent[root(slope)] = root(graph.inputs[leaf])
        for leaf in (*self._params, *self._slots):
            ends = self._ends([graph.outputs[graph.carried[leaf]]], self._number)
            for tensor in ends & nodes:
                parent[root(tensor)] = root(graph.inputs[leaf])
        members: dict[int, list[int]] = {}
        for leaf in (*self._params, *self._slots):
            members.setdefault(root(graph.inputs[leaf]), []).append(leaf)
        gradients: dict[int, list[int]] = {}
        for tensor in sorted(self._slopes):
            gradients.setdefault(root(tensor), []).append(tensor)
        slots = set(self._slots)
        return tuple(
            Unit(
                tuple(leaves),
                tuple(gradients.get(key, ())),
                tuple(graph.inputs[leaf] for leaf in leaves if leaf in slots),
            )
            for key, leaves in members.items()
        )

    def _needed(self) -> dict[int, int]:
        """Tensor -> the units, as bits, whose arrays of the state it is made of."""
        found = {tensor: 1 << number for number, unit in enumerate(self.units) for tensor in unit.hosted}
        for operator in self.whole.operators:
            needs = 0
            for tensor in operator.inputs:
                needs |= found.get(tensor, 0)
            if needs:
                found.update(dict.fromkeys(operator.results, needs))
        return found
