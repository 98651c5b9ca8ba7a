"""What is planned: a function, its abstract arguments, and what the planner may assume about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax

Mode = Literal["training", "inference", "simulation"]
MODES: tuple[Mode, ...] = ("training", "inference", "simulation")


def abstract(tree: Any) -> Any:
    """Replaces every array of a pytree by its `jax.ShapeDtypeStruct`; scalars become arrays of rank 0."""

    def leaf(value: Any) -> jax.ShapeDtypeStruct:
        if isinstance(value, jax.ShapeDtypeStruct):
            return jax.ShapeDtypeStruct(value.shape, value.dtype)
        aval = jax.api_util.shaped_abstractify(value)
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)

    return jax.tree.map(leaf, tree)


@dataclasses.dataclass(frozen=True)
class Schedule:
    """What of a step runs when, where the engine may choose it.

    Attributes:
        micro_batches: so many parts of the batch run one after the other, their gradients added up.
        recompute: block kind -> what of it is kept for the backward pass, as a sorted tuple of pairs; kinds that are not
            named keep everything.
    """

    micro_batches: int = 1
    recompute: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "recompute", tuple(sorted((str(kind), str(kept)) for kind, kept in self.recompute)))
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches={self.micro_batches}; it must be at least 1")

    def to_json(self) -> dict[str, Any]:
        return {"micro_batches": self.micro_batches, "recompute": dict(self.recompute)}

    @staticmethod
    def from_json(tree: Mapping[str, Any]) -> Schedule:
        return Schedule(int(tree["micro_batches"]), tuple(tree["recompute"].items()))

    def __str__(self) -> str:
        parts = [f"{self.micro_batches} micro-batches"] if self.micro_batches > 1 else []
        parts += [f"{kind} keeps {kept}" for kind, kept in self.recompute]
        return "; ".join(parts) or "the whole batch at once, everything kept"


@dataclasses.dataclass(frozen=True)
class Task:
    """One call of a function that will be made many times.

    Attributes:
        step: the function; takes `args` by position and returns a pytree.
        args: abstract arguments, pytrees of `jax.ShapeDtypeStruct` (arrays are accepted and made abstract).
        mode: what the function is for: it decides the objective and which templates apply.
        carried: argument position -> position in the (tuple) result that becomes this argument at the next call. A carried
            argument keeps its sharding from input to output and its memory is donated. `{0: 0}` is the usual
            `step(state, batch) -> (state, metrics)`.
        batch: positions of the arguments whose leaves have examples along dimension 0.
        name: what the plan calls this task.
        build: makes the step of another schedule, where the engine may choose one; `Training.task` gives it.
        schedule: the one of `step`.
        micro_batches: the numbers of parts that the batch may run in, ascending.
        kinds: gives the names of the kinds of blocks that may be computed again in the backward pass.
    """

    step: Callable[..., Any]
    args: tuple[Any, ...]
    mode: Mode = "training"
    carried: Mapping[int, int] = dataclasses.field(default_factory=dict)
    batch: tuple[int, ...] = ()
    name: str = "task"
    build: Callable[[Schedule], Callable[..., Any]] | None = None
    schedule: Schedule = Schedule()
    micro_batches: tuple[int, ...] = (1,)
    kinds: Callable[[], tuple[str, ...]] = tuple

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(abstract(argument) for argument in self.args))
        object.__setattr__(self, "batch", tuple(self.batch))
        if self.mode not in MODES:
            raise ValueError(f"mode={self.mode!r}; allowed are {', '.join(MODES)}")
        count = len(self.args)
        for position in (*self.carried, *self.batch):
            if not 0 <= position < count:
                raise ValueError(
                    f"the task has {count} arguments, so carried and batch take 0 to {count - 1}; got {position}"
                )

    def scheduled(self, schedule: Schedule) -> Task:
        """The same task with another schedule.

        Raises:
            ValueError: the task does not know how to run so.
        """
        if schedule == self.schedule:
            return self
        if self.build is None:
            raise ValueError(
                f"the plan wants {schedule}, and {self.name} is a finished step; make the task by `Training.task`"
            )
        return dataclasses.replace(self, step=self.build(schedule), schedule=schedule)
