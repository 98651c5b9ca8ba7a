"""Batches of frames: a function of (seed, step) alone; each process makes its own rows and no others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import grain
import numpy as np

from zoo.data.deepmd import copper, frames, systems
from zoo.data.deepmd.frames import Frames
from zoo.data.deepmd.scattered import scattered
from zoo.data.deepmd.statistics import settled, statistics
from zoo.errors import UserError
from zoo.models.deepmd.config import Potential
from zoo.models.deepmd.evaluate import limits
from zoo.models.deepmd.layout import Layout

SPLITS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which frames.

    Attributes:
        name: "systems": those named below; "copper": made on the spot with ASE's EMT potential.
        train, test: places of systems, relative to data_dir.
        batch_size: frames a step, over all devices; "auto:N" takes as many as give N atoms, "auto" means auto:32.
        test_batches: how much of the test split an evaluation takes, in batches; null: all.
        strict: refuse a model whose `sel` is less than the neighbours there are.
        readers: threads that prepare batches; 0 prepares each one when it is asked for.
    """

    train: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    name: Literal["systems", "copper"] = "systems"
    batch_size: int | str = "auto"
    test_batches: int | None = None
    strict: bool = False
    readers: int = 2

    def __post_init__(self) -> None:
        if self.name == "systems" and not self.train:
            raise ValueError("train=[]; name at least one system, such as [water/data_0]")
        if isinstance(self.batch_size, str):
            self.least_atoms()
        elif self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}; it must be at least 1, or auto:N")
        if self.readers < 0 or (self.test_batches is not None and self.test_batches < 1):
            raise ValueError(f"readers={self.readers}, test_batches={self.test_batches}; at least 0 and 1")

    def least_atoms(self) -> int:
        """N of "auto:N"."""
        word, colon, number = str(self.batch_size).partition(":")
        if word != "auto" or (colon and not (number.isdigit() and int(number) > 0)):
            raise ValueError(f"batch_size={self.batch_size!r}; give a number, auto, or auto:N such as auto:32")
        return int(number) if colon else 32

    def frames_of(self, most_atoms: int) -> int:
        """Frames a batch, for frames of so many atoms."""
        return self.batch_size if isinstance(self.batch_size, int) else -(-self.least_atoms() // most_atoms)


@dataclasses.dataclass(frozen=True)
class FrameDataset:
    """Frames that are open for reading, and the model that they settle.

    Attributes:
        model: the recipe's model with every `sel` a number.
        layout: in which all frames of both splits fit.
        train, test: the frames.
        announcement: what the user must be told; empty where there is nothing to say.
        made_up: whether the frames are missing and others stand for them.
    """

    model: Potential
    layout: Layout
    train: Frames
    test: Frames
    announcement: str = ""
    made_up: bool = False

    @functools.cached_property
    def statistics(self) -> dict[str, Any]:
        """Of the training frames; see `zoo.data.deepmd.statistics`."""
        return statistics(self.model, self.train)

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, slice_of: tuple[int, int], readers: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches from `start_step` on; "train" never ends, "test" ends when all was seen once.

        A batch is what `laid_out` gives, stacked; for "test" also "weight" [b], 0 for rows that fill up the last batch.
        """
        index, count = slice_of
        assert split in SPLITS and 0 <= index < count and global_batch % count == 0, (split, slice_of, global_batch)
        part = slice(index * global_batch // count, (index + 1) * global_batch // count)
        if split == "train":
            order = grain.MapDataset.range(len(self.train)).seed(seed).shuffle().repeat()
            numbered = order.batch(global_batch, drop_remainder=True, batch_fn=np.asarray)
            batches = numbered.map(lambda numbers: self.rows("train", numbers[part]))
        else:
            batches = grain.MapDataset.range(-(-len(self.test) // global_batch)).map(
                lambda batch: self._weighted(np.arange(batch * global_batch, (batch + 1) * global_batch)[part])
            )
        options = grain.ReadOptions(num_threads=readers, prefetch_buffer_size=2 * readers)
        return iter(batches[start_step:].to_iter_dataset(options))

    def rows(self, split: str, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """The frames of these numbers [b] of "train" or "test", each as `laid_out` gives it, stacked."""
        taken = self.train if split == "train" else self.test
        dtype = np.dtype(self.model.fitting_net.precision)
        rows = [frames.laid_out(taken, int(number), self.layout, limits(self.model), dtype) for number in numbers]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def _weighted(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
        total = len(self.test)
        batch = self.rows("test", np.minimum(numbers, total - 1))
        return {**batch, "weight": (numbers < total).astype(np.float64)}


def open_dataset(config: DataConfig, model: Potential, data_dir: Path, rehearsal: bool) -> FrameDataset:
    """Reads all frames, finds their neighbours and settles the model.

    Args:
        config: which frames.
        model: its type_map orders the types.
        data_dir: what relative places are relative to; where copper is put.
        rehearsal: where the frames are missing, others are made that only show that the plan works.

    Raises:
        UserError: frames are missing or make no sense.
    """
    announcement, made_up = "", False
    if config.name == "copper":
        train, test, announcement = copper.open_copper(data_dir, model.type_map)
    elif rehearsal and not all((data_dir / place.partition("#")[0]).exists() for place in config.train):
        made_up = True
        train, test = scattered(model.type_map), scattered(model.type_map, seed=1)
        missing = ", ".join(config.train)
        announcement = f"data: no {missing} in {data_dir}, so this rehearsal runs on atoms scattered at random"
    else:
        train = systems.read(config.train, model.type_map, data_dir)
        test = systems.read(config.test, model.type_map, data_dir) if config.test else train
    if not any(known.any() for system in train for known in system.known.values()):
        raise UserError(
            f"no frame of recipe.data.train={list(config.train)} has an energy, forces or a virial; nothing can be learned"
        )
    found = [frames.find(part, model.num_types, model.rcut) for part in (train, test)]
    ready = settled(model, found[0])
    frames.warn_of_truncation(found[0], ready, config.strict)
    return FrameDataset(ready, frames.layout(found, ready), found[0], found[1], announcement, made_up)


def most_atoms(parts: Sequence[Frames]) -> int:
    """Atoms of the largest frame."""
    return max(int(part.counts.sum(axis=1).max()) for part in parts)
