"""A training step that the engine builds itself, from a loss and an optimizer: so it may choose what runs when.

Gradients of the parts of a batch add up to that of the whole only where the loss is a sum over examples divided by a number
that depends on the examples alone. A loss says so by what it returns: a `Mean` per term, its sum and its normaliser apart.
The normalisers of the whole batch are known before the first part runs (they need no model), so each part adds its share of the
very gradient that the whole batch has. Where that does not hold, as with batch normalisation, whose statistics are those of the
part, `splits` stays False and the batch runs at once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from flowaware_core.graph import recompute
from flowaware_core.task import Schedule, Task, abstract

State = dict[str, Any]
Batch = Any
# Each doubling halves the activations, so a few doublings suffice.
MOST_MICRO_BATCHES = 64
AT_ONCE = Schedule()


class Mean(NamedTuple):
    """A sum over examples, tokens, ..., and what it is divided by; both scalars.

    `count` depends on the batch alone, not on parameters, and is itself a sum over examples; a count of 0 divides by 1.
    """

    total: Any
    count: Any

    @property
    def value(self) -> Any:
        return self.total / jnp.where(self.count == 0, 1, self.count)


class Outcome(NamedTuple):
    """What a loss returns.

    Attributes:
        terms: the loss is the sum of these means.
        metrics: further means, for the record.
        extra: the next value of what the model carries beside its parameters, such as batch statistics.
    """

    terms: Mapping[str, Mean]
    metrics: Mapping[str, Mean] = {}
    extra: Any = None


class Optimizer(Protocol):
    """As optax writes it: `init(params)`, and `update(gradients, state, params)` to what is added to the parameters."""

    @property
    def init(self) -> Callable[[Any], Any]: ...

    @property
    def update(self) -> Callable[..., tuple[Any, Any]]: ...


@dataclasses.dataclass(frozen=True)
class Training:
    """A loss and an optimizer.

    The state is {"params", "opt_state", "step", "rng"} and, where `extra` names one, one more entry. The random numbers of a
    step follow from fold_in(rng, step); micro-batch i of several draws from fold_in of that and i. Micro-batch i of n takes
    the examples i, i + n, i + 2n, ...: so each device takes them from the examples that it holds.

    Attributes:
        loss: (params, extra, batch, key) -> `Outcome`.
        optimizer: what turns gradients into updates.
        splits: whether the batch may run in parts: whether every `Mean` is a sum over examples and its count, and the loss of
            an example does not depend on the examples beside it.
        extra: the name in the state of what the model carries beside its parameters; the parts of a batch change it in turn.
        record: metrics that follow from the number of the step alone, such as a learning rate.
    """

    loss: Callable[[Any, Any, Batch, jax.Array], Outcome]
    optimizer: Optimizer
    splits: bool = False
    extra: str | None = None
    record: Mapping[str, Callable[[jax.Array], Any]] = dataclasses.field(default_factory=dict)

    def initial(self, params: Any, rng: jax.Array, extra: Any = None) -> State:
        """The state before the first step."""
        state = {"params": params, "opt_state": self.optimizer.init(params), "rng": rng}
        state["step"] = jnp.zeros((), jnp.int32)
        return state if self.extra is None else {**state, self.extra: extra}

    def task(self, state: Any, batch: Batch, name: str = "task") -> Task:
        """The task of one step, whose schedule the engine may choose.

        Args:
            state, batch: arrays or shapes; every leaf of the batch has examples along dimension 0.
            name: what plans call it.

        Raises:
            ValueError: the leaves of the batch differ in their number of examples.
        """
        state, batch = abstract(state), abstract(batch)
        rows = {leaf.shape[0] for leaf in jax.tree.leaves(batch)}
        if len(rows) != 1:
            raise ValueError(f"the leaves of the batch have {sorted(rows)} examples; all must have the same number")
        return Task(
            self.step(),
            (state, batch),
            carried={0: 0},
            batch=(1,),
            name=name,
            build=self.step,
            micro_batches=_divisors(rows.pop()) if self.splits else (1,),
            kinds=functools.partial(self._kinds, state, batch),
        )

    def step(self, schedule: Schedule = AT_ONCE) -> Callable[[State, Batch], tuple[State, dict[str, Any]]]:
        """The function (state, batch) -> (state, metrics) that runs so.

        Raises:
            ValueError: the schedule has micro-batches and the loss does not split.
        """
        if schedule.micro_batches > 1 and not self.splits:
            raise ValueError(
                f"micro_batches={schedule.micro_batches}, and this loss does not split: say Training(splits=True) if every "
                "mean it returns is a sum over examples and its count"
            )

        exposed = self.exposed(schedule)
        return lambda state, batch: exposed(state, batch)[:2]

    def exposed(self, schedule: Schedule = AT_ONCE) -> Callable[[State, Batch], tuple[State, dict[str, Any], Any]]:
        """As `step`, and the function returns the gradients too, behind the rest."""

        def run(state: State, batch: Batch) -> tuple[State, dict[str, Any], Any]:
            key = jax.random.fold_in(state["rng"], state["step"])
            extra = None if self.extra is None else state[self.extra]
            gradients, found = self._gradients(schedule, state["params"], extra, batch, key)
            after, metrics = self.finish(state, gradients, found)
            return after if self.extra is None else {**after, self.extra: found.extra}, metrics, gradients

        return run

    def finish(self, state: State, gradients: Any, found: Outcome) -> tuple[State, dict[str, Any]]:
        """What follows the gradients: the state with new parameters, and the metrics."""
        updates, opt_state = self.optimizer.update(gradients, state["opt_state"], state["params"])
        params = jax.tree.map(lambda p, u: jnp.asarray(p + u).astype(p.dtype), state["params"], updates)
        after = {**state, "params": params, "opt_state": opt_state, "step": state["step"] + 1}
        metrics = {"loss": _loss(found), **{name: mean.value for name, mean in found.metrics.items()}}
        return after, metrics | {name: of(state["step"]) for name, of in self.record.items()}

    def _gradients(
        self, schedule: Schedule, params: Any, extra: Any, batch: Batch, key: jax.Array
    ) -> tuple[Any, Outcome]:
        """The gradient of the loss of the whole batch, and the loss's outcome for the whole batch."""
        loss = self.loss
        if schedule.recompute:
            loss = recompute.applied(loss, dict(schedule.recompute))
        elif schedule.micro_batches > 1:
            # Else its lines would run for the whole batch, for a part's sums and for their gradients.
            loss = recompute.once(loss)

        def whole(params: Any) -> tuple[jax.Array, Outcome]:
            found = loss(params, extra, batch, key)
            return _loss(found), found

        if schedule.micro_batches > 1:
            return _accumulated(loss, schedule.micro_batches, params, extra, batch, key)
        (_, found), gradients = jax.value_and_grad(whole, has_aux=True)(params)
        return gradients, found

    def _kinds(self, state: Any, batch: Batch) -> tuple[str, ...]:
        extra = None if self.extra is None else state[self.extra]
        return tuple(kind.name for kind in recompute.kinds(self.loss, state["params"], extra, batch, state["rng"]))


def _accumulated(
    loss: Callable[..., Outcome], count: int, params: Any, extra: Any, batch: Batch, key: jax.Array
) -> tuple[Any, Outcome]:
    """The same by parts of the batch, one after the other; gradients are added up in at least 32 bits."""
    # Only the counts are used of this: nothing else of it is left in the program.
    counts = {name: mean.count for name, mean in loss(params, extra, batch, key).terms.items()}

    def part(params: Any, extra: Any, rows: Batch, key: jax.Array) -> tuple[jax.Array, Outcome]:
        found = loss(params, extra, rows, key)
        return sum(Mean(mean.total, counts[name]).value for name, mean in found.terms.items()), found

    def add(carry: Any, given: tuple[jax.Array, Batch]) -> tuple[Any, None]:
        gradients, sums, extra = carry
        # Weights are gathered anew for each part, and let go: XLA would gather them once, before the loop, and hold them all.
        own, rows = jax.lax.optimization_barrier((params, given[1]))
        (_, found), more = jax.value_and_grad(part, has_aux=True)(own, extra, rows, jax.random.fold_in(key, given[0]))
        return (_plus(gradients, more), _plus(sums, (found.terms, found.metrics)), found.extra), None

    parts = jax.tree.map(lambda leaf: interleaved(leaf, count), batch)
    sums = jax.eval_shape(lambda: loss(params, extra, jax.tree.map(lambda leaf: leaf[0], parts), key)[:2])
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.promote_types(leaf.dtype, jnp.float32)), (params, sums))
    (gradients, (terms, metrics), extra), _ = jax.lax.scan(add, (*zeros, extra), (jnp.arange(count), parts))
    gradients = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), gradients, params)
    return gradients, Outcome(terms, metrics, extra)


def _plus(one: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: a + jnp.asarray(b, a.dtype), one, other)


def interleaved(leaf: jax.Array, count: int) -> jax.Array:
    """[B, ...] -> [count, B / count, ...] whose part i has the rows i, i + count, ..."""
    return jnp.swapaxes(leaf.reshape(leaf.shape[0] // count, count, *leaf.shape[1:]), 0, 1)


def _loss(found: Outcome) -> jax.Array:
    return sum((mean.value for mean in found.terms.values()), jnp.zeros(()))


def _divisors(rows: int) -> tuple[int, ...]:
    return tuple(
        count for count in (2**n for n in range(32)) if count <= min(rows, MOST_MICRO_BATCHES) and rows % count == 0
    )
