"""One stage of a pipeline as one function: what it passes forward, what it sends back, and its part of the update.

All that a stage ever runs is one program, so one plan lays its weights, gradients and optimizer state out for all of it. What runs
at a time is the part of the program that some of its results need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from flowaware_core.graph.model import Graph
from flowaware_core.graph.owners import Share
from flowaware_core.graph.sections import Section, differentiable
from flowaware_core.task import Task

Leaves = tuple[Any, ...]


class Held(NamedTuple):
    """What a stage carries from micro-batch to micro-batch: gradients and means summed so far, and what the model carries."""

    gradients: Leaves
    sums: Leaves
    extra: Leaves


class Given(NamedTuple):
    """What comes to a stage: weights of other stages, from the stage before, from the stage behind (derivatives), rows of the
    batch, and small things: the random key, normalisers, numbers of the whole state, gradients of its own weights that others
    found, and numbers that others found for the update.
    """

    borrowed: Leaves
    forward: Leaves
    backward: Leaves
    rows: Leaves
    key: Leaves
    counts: Leaves
    numbers: Leaves
    lent: Leaves
    imports: Leaves


class Made(NamedTuple):
    """What a stage makes beside what it carries."""

    forward: Leaves
    backward: Leaves
    finished: Leaves
    exports: Leaves


@dataclasses.dataclass(frozen=True)
class Leafs:
    """Where the leaves of the loss's arguments begin: parameters, extra, rows, key, counts; the last is their number."""

    extra: int
    rows: int
    key: int
    counts: int
    end: int


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """A stage: which leaves it holds, by their positions in the whole.

    Attributes:
        section: its part of the loss.
        share: its part of the update.
        leafs: where the leaves of the loss's arguments begin.
        own, borrowed: parameters that live here, and that live elsewhere and are read here.
        slots: leaves of the optimizer's state that live here.
        numbers: argument leaves of the update that every stage has.
        lent: the own parameters of which other stages find gradients too, once per such stage.
        sums: results of the loss that are summed here.
        extra_results: leaf of what the model carries -> the result of the loss that replaces it.
        update_leaf: ("params" | "slots" | "gradients" | "sums", number) -> position among the update's argument leaves.
        loss_shapes, update_shapes: of the argument leaves of the loss and of the update.
    """

    section: Section
    share: Share
    leafs: Leafs
    own: tuple[int, ...]
    borrowed: tuple[int, ...]
    slots: tuple[int, ...]
    numbers: tuple[int, ...]
    lent: tuple[int, ...]
    sums: tuple[int, ...]
    extra_results: Mapping[int, int]
    update_leaf: Callable[[str, int], int]
    loss_shapes: Sequence[Any]
    update_shapes: Sequence[Any]

    @property
    def read(self) -> tuple[int, ...]:
        """Parameters that the section reads."""
        return tuple(leaf for leaf in self.section.leaves if leaf < self.leafs.extra)

    def kind(self, begin: int, end: int) -> tuple[int, ...]:
        return tuple(leaf for leaf in self.section.leaves if begin <= leaf < end)

    @property
    def extra(self) -> tuple[int, ...]:
        return self.kind(self.leafs.extra, self.leafs.rows)

    @property
    def rows(self) -> tuple[int, ...]:
        return self.kind(self.leafs.rows, self.leafs.key)

    @property
    def has_key(self) -> tuple[int, ...]:
        return self.kind(self.leafs.key, self.leafs.counts)

    @property
    def counts(self) -> tuple[int, ...]:
        return self.kind(self.leafs.counts, self.leafs.end)

    def task(self, name: str) -> Task:
        """(own, slots, `Held`, `Given`) -> (own, slots, `Held`, `Made`)"""
        loss, update = self.loss_shapes, self.update_shapes
        weights = tuple(loss[leaf] for leaf in self.own)
        gradients = (*self.own, *self.borrowed)
        sums = tuple(map(wide, self._sum_shapes()))
        held = Held(tuple(wide(loss[leaf]) for leaf in gradients), sums, tuple(loss[leaf] for leaf in self.extra))
        given = Given(
            borrowed=tuple(loss[leaf] for leaf in self.borrowed),
            forward=self.section.given,
            backward=tuple(shape for shape in self.section.passed if differentiable(shape)),
            rows=tuple(loss[leaf] for leaf in self.rows),
            key=tuple(loss[leaf] for leaf in self.has_key),
            counts=tuple(loss[leaf] for leaf in self.counts),
            numbers=tuple(update[leaf] for leaf in self.numbers),
            lent=tuple(wide(loss[leaf]) for leaf in self.lent),
            imports=tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in self.share.imports),
        )
        slots = tuple(update[self.update_leaf("slots", leaf)] for leaf in self.slots)
        return Task(self._run, (weights, slots, held, given), carried={0: 0, 1: 1, 2: 2}, name=name)

    def _sum_shapes(self) -> list[Any]:
        atoms = self.section.program.jaxpr.outvars[len(self.section.passed) :]
        shapes = dict(zip(self.section.results, (atom.aval for atom in atoms), strict=True))
        return [shapes[result] for result in self.sums]

    def _run(self, own: Leaves, slots: Leaves, held: Held, given: Given) -> tuple[Leaves, Leaves, Held, Made]:
        weights = dict(zip((*self.own, *self.borrowed), (*own, *given.borrowed), strict=True))
        flowing = [differentiable(shape) for shape in self.section.given]
        fixed = dict(zip(self.extra, held.extra, strict=True)) | dict(zip(self.rows, given.rows, strict=True))
        fixed |= dict(zip(self.has_key, given.key, strict=True)) | dict(zip(self.counts, given.counts, strict=True))

        def forward(moving: dict[int, Any], inflow: list[Any]) -> tuple[list[Any], Any]:
            leaves = [moving[leaf] if leaf in moving else fixed[leaf] for leaf in self.section.leaves]
            flow = iter(inflow)
            before = [next(flow) if flows else value for flows, value in zip(flowing, given.forward, strict=True)]
            passed, results = self.section(leaves, before)
            outflow = [value for value in passed if differentiable(value)]
            found = dict(zip(self.section.results, results, strict=True))
            return outflow + ([found[0]] if 0 in found else []), (passed, found)

        moving = {leaf: weights[leaf] for leaf in self.read}
        inflow = [value for flows, value in zip(flowing, given.forward, strict=True) if flows]
        outflow, pull, (passed, found) = jax.vjp(forward, moving, inflow, has_aux=True)
        seeds = [*given.backward, *(jnp.ones_like(value) for value in outflow[len(given.backward) :])]
        slopes, back = pull(seeds)
        gradients = tuple(
            before + slopes[leaf].astype(before.dtype) if leaf in slopes else before
            for leaf, before in zip((*self.own, *self.borrowed), held.gradients, strict=True)
        )
        sums = tuple(
            before + jnp.asarray(found[result], before.dtype)
            for result, before in zip(self.sums, held.sums, strict=True)
        )
        extra = tuple(found[self.extra_results[leaf]] for leaf in self.extra)
        updated, finished, exports = self._update(own, slots, held, given)
        after, slots_after = updated
        return after, slots_after, Held(gradients, sums, extra), Made(tuple(passed), tuple(back), finished, exports)

    def _update(
        self, own: Leaves, slots: Leaves, held: Held, given: Given
    ) -> tuple[tuple[Leaves, Leaves], Leaves, Leaves]:
        """The new weights and slots, the other results of the update that are made here, and what others need."""
        gradients = dict(zip(self.own, held.gradients, strict=False))
        for leaf, more in zip(self.lent, given.lent, strict=True):
            gradients[leaf] = gradients[leaf] + more
        at = self.update_leaf
        values = {at("params", leaf): value for leaf, value in zip(self.own, own, strict=True)}
        values |= {at("gradients", leaf): value for leaf, value in gradients.items()}
        values |= {at("slots", leaf): value for leaf, value in zip(self.slots, slots, strict=True)}
        values |= {at("sums", result): value for result, value in zip(self.sums, held.sums, strict=True)}
        values |= dict(zip(self.numbers, given.numbers, strict=True))
        results, exports = self.share([values[leaf] for leaf in self.share.leaves], given.imports)
        found = dict(zip(self.share.results, results, strict=True))
        after = tuple(found.pop(at("params", leaf)) for leaf in self.own)
        later = tuple(found.pop(at("slots", leaf)) for leaf in self.slots)
        return (after, later), tuple(found[result] for result in sorted(found)), tuple(exports)


def wide(shape: Any) -> jax.ShapeDtypeStruct:
    """What gradients and means of a type are summed in: at least 32 bits."""
    return jax.ShapeDtypeStruct(shape.shape, jnp.promote_types(shape.dtype, jnp.float32))


@dataclasses.dataclass(frozen=True)
class Results:
    """Positions of a stage's results, and of what comes to it: see `Stage.task`.

    Attributes:
        own, slots, gradients, sums, extra, passed, back, finished, exports: output leaves.
        given: input leaves of what comes from the stage before.
        rows: input leaves of rows of the batch.
    """

    own: tuple[int, ...]
    slots: tuple[int, ...]
    gradients: tuple[int, ...]
    sums: tuple[int, ...]
    extra: tuple[int, ...]
    passed: tuple[int, ...]
    back: tuple[int, ...]
    finished: tuple[int, ...]
    exports: tuple[int, ...]
    given: slice
    rows: tuple[int, ...]

    @property
    def held(self) -> tuple[int, ...]:
        return (*self.gradients, *self.sums, *self.extra)

    @property
    def forward(self) -> tuple[int, ...]:
        return (*self.passed, *self.extra)

    @property
    def update(self) -> tuple[int, ...]:
        return (*self.own, *self.slots, *self.finished)


def results_of(graph: Graph) -> Results:
    """Where the results of a stage's program are."""
    numbers = iter(range(len(graph.outputs)))
    own, slots, held, made = jax.tree.map(
        lambda _: next(numbers), jax.tree.unflatten(graph.out_tree, [0] * len(graph.outputs))
    )
    _, _, _, given = jax.tree.unflatten(graph.in_tree, range(len(graph.inputs)))
    start = given.forward[0] if given.forward else 0
    assert isinstance(held, Held) and isinstance(made, Made)
    gradients, sums, extra = held
    passed, back, finished, exports = made
    span = slice(start, start + len(given.forward))
    return Results(own, slots, gradients, sums, extra, passed, back, finished, exports, span, given.rows)
