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
    """

    step: Callable[..., Any]
    args: tuple[Any, ...]
    mode: Mode = "training"
    carried: Mapping[int, int] = dataclasses.field(default_factory=dict)
    batch: tuple[int, ...] = ()
    name: str = "task"

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
