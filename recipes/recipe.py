"""What every recipe that trains shares: its step as a task for the engine, and its batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import jax
import numpy as np

from flowaware_core.task import Task
from flowaware_core.training import Training

Batch = dict[str, Any]
State = dict[str, Any]


class Batches(Protocol):
    """Examples that are open for reading."""

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, readers: int, slice_of: tuple[int, int]
    ) -> Iterator[dict[str, np.ndarray]]:
        """As of `Recipe.batches`, by so many threads."""
        ...


class Recipe:
    """A recipe says which state and batches its step has, and opens its data."""

    name: str
    data_config: Any  # at least global_batch and readers
    _batches: Batches | None = None  # once `dataset` was called

    @property
    def trained(self) -> Training | None:
        """Its loss and optimizer, where the engine may choose what of a step runs when; None where `step` is all there is."""
        return None

    def initial_state(self, key: jax.Array) -> State:
        """The state before the first step, from a PRNG key; pure, for jit."""
        raise NotImplementedError

    def abstract_batch(self, global_batch: int) -> Batch:
        """A batch with shapes and dtypes in place of arrays."""
        raise NotImplementedError

    def step(self, state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        """One step of training: the next state, and the metrics (scalars) of this batch before the update."""
        if self.trained is None:
            raise NotImplementedError
        return self.trained.step()(state, batch)

    def dataset(self, rehearsal: bool = False) -> Any:
        """Opens the data; its `announcement` is for the user to read, and empty where there is nothing to say."""
        raise NotImplementedError

    def task(self, global_batch: int | None = None) -> Task:
        """One training step on `global_batch` examples (by default the recipe's), for the engine to plan."""
        state = jax.eval_shape(lambda: self.initial_state(jax.random.key(0)))
        batch = self.abstract_batch(global_batch or self.data_config.global_batch)
        if self.trained is not None:
            return self.trained.task(state, batch, self.name)
        return Task(self.step, (state, batch), mode="training", carried={0: 0}, batch=(1,), name=self.name)

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, slice_of: tuple[int, int] = (0, 1)
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches of a split from `start_step` on; "train" never ends, "test" ends when all was seen once.

        Args:
            split: "train" or "test".
            seed: fixes the order and whatever is drawn for an example.
            start_step: number of batches to leave out, at no cost.
            global_batch: examples per batch over all processes.
            slice_of: (index, count): this process' part; the parts of all processes, in order, make the batch of one.
        """
        if self._batches is None:
            self.dataset()
        assert self._batches is not None
        return self._batches.batches(split, seed, start_step, global_batch, self.data_config.readers, slice_of)
