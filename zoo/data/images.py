"""Batches of images: order, augmentation, each process' part, normalisation; a function of (seed, step) alone.

An example's place in the endless stream decides its random numbers, and a process takes a stretch of each batch. So the
stream is the same whatever the number of processes or reading threads, and any step is reached at no cost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, Protocol

import grain
import numpy as np

SPLITS = ("train", "test")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Which images, and what is done to them.

    Attributes:
        name: "cifar10", "image_folder" or "digits".
        image_size: height and width in pixels of what the model sees; images of another size are resized.
        global_batch: examples per step, over all devices.
        augment: in training, crop at random after padding by an eighth of the size (4 pixels of 32), and mirror half.
        readers: threads that prepare batches; 0 prepares each one when it is asked for.
    """

    name: Literal["cifar10", "image_folder", "digits"]
    image_size: int
    global_batch: int
    augment: bool = True
    readers: int = 2

    def __post_init__(self) -> None:
        if self.image_size < 1 or self.global_batch < 1:
            raise ValueError(f"image_size={self.image_size}, global_batch={self.global_batch}; both must be at least 1")
        if self.readers < 0:
            raise ValueError(f"readers={self.readers}; it must be at least 0")


class Examples(Protocol):
    """Images of one split, by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        """An image (uint8 [H, W, 3], of any size) and its label."""
        ...


@dataclasses.dataclass(frozen=True)
class ArrayExamples:
    """Examples held in memory: images uint8 [N, H, W, 3] and labels int32 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.images[index], int(self.labels[index])


@dataclasses.dataclass(frozen=True)
class ImageDataset:
    """A data set that is open for reading.

    Attributes:
        name: what it is called.
        train, test: the examples of each split.
        mean, std: per channel, of pixel values over 255; images are normalised with them.
        classes: a name per label.
        mirrors: whether a mirrored image still shows the same thing.
        rehearsal: whether it was opened for a rehearsal, where it may stand in for another data set.
        announcement: what the user must be told about it; empty where there is nothing to say.
    """

    name: str
    train: Examples
    test: Examples
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    classes: tuple[str, ...]
    mirrors: bool = True
    rehearsal: bool = False
    announcement: str = ""

    def batches(
        self,
        split: str,
        config: DataConfig,
        seed: int,
        start_step: int,
        global_batch: int,
        slice_of: tuple[int, int] = (0, 1),
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches from `start_step` on: {"image": float32 [b, S, S, 3], "label": int32 [b]}, b = global_batch / count.

        "train" never ends: a new order every epoch, augmented if the configuration says so. "test" ends when every
        example was seen once, unaugmented, with "weight": float32 [b], which is 0 for rows that fill up the last batch.
        """
        index, count = slice_of
        assert split in SPLITS and 0 <= index < count and global_batch % count == 0, (split, slice_of, global_batch)
        stream = self._training(config, seed) if split == "train" else self._testing(config, global_batch)
        rows = grain.MapDataset.source(_ProcessRows(stream, global_batch, index, count))
        batches = rows.batch(global_batch // count, batch_fn=self._collate)[start_step:]
        options = grain.ReadOptions(num_threads=config.readers, prefetch_buffer_size=2 * config.readers)
        return iter(batches.to_iter_dataset(options))

    def _training(self, config: DataConfig, seed: int) -> grain.MapDataset:
        stream = grain.MapDataset.source(self.train).seed(seed).shuffle().repeat()
        stream = stream.map(lambda example: _resized(example, config.image_size))
        if not config.augment:
            return stream
        padding = config.image_size // 8
        return stream.random_map(lambda example, rng: _augmented(example, rng, padding, self.mirrors))

    def _testing(self, config: DataConfig, global_batch: int) -> grain.MapDataset:
        stream = grain.MapDataset.source(_FilledUp(self.test, global_batch))
        return stream.map(lambda example: _resized(example, config.image_size))

    def _collate(self, examples: list[tuple]) -> dict[str, np.ndarray]:
        images, labels, *weights = zip(*examples, strict=True)
        scale = np.float32(1 / 255) / np.asarray(self.std, np.float32)
        shift = np.asarray(self.mean, np.float32) / np.asarray(self.std, np.float32)
        batch = {"image": np.stack(images) * scale - shift, "label": np.asarray(labels, np.int32)}
        if weights:
            batch["weight"] = np.asarray(weights[0], np.float32)
        return batch


@dataclasses.dataclass(frozen=True)
class _ProcessRows:
    """The rows of an example stream that process `index` of `count` holds: the same stretch of every batch."""

    stream: grain.MapDataset
    global_batch: int
    index: int
    count: int

    def __len__(self) -> int:
        return len(self.stream) // self.global_batch * (self.global_batch // self.count)

    def __getitem__(self, row: int) -> tuple:
        per_process = self.global_batch // self.count
        batch, offset = divmod(row, per_process)
        return self.stream[batch * self.global_batch + self.index * per_process + offset]


@dataclasses.dataclass(frozen=True)
class _FilledUp:
    """Examples with a weight each; black ones of weight 0 make the number a multiple of the batch."""

    examples: Examples
    global_batch: int

    def __len__(self) -> int:
        return -(-len(self.examples) // self.global_batch) * self.global_batch

    def __getitem__(self, index: int) -> tuple[np.ndarray, int, float]:
        if index < len(self.examples):
            return (*self.examples[index], 1.0)
        return np.zeros((1, 1, 3), np.uint8), 0, 0.0


def _augmented(example: tuple, rng: np.random.Generator, padding: int, mirrors: bool) -> tuple:
    image, *rest = example
    height, width = image.shape[:2]
    padded = np.zeros((height + 2 * padding, width + 2 * padding, 3), np.uint8)
    padded[padding : padding + height, padding : padding + width] = image
    top, left = rng.integers(0, 2 * padding, size=2, endpoint=True)
    image = padded[top : top + height, left : left + width]
    if mirrors and rng.integers(2):
        image = image[:, ::-1]
    return (image, *rest)


def _resized(example: tuple, size: int) -> tuple:
    image, *rest = example
    return (resize(image, size), *rest)


def resize(image: np.ndarray, size: int) -> np.ndarray:
    """Resamples a uint8 image [H, W, C] linearly to [size, size, C]; a coarser grid averages what it covers."""
    if image.shape[:2] == (size, size):
        return image
    rows, columns = (_resampling(length, size) for length in image.shape[:2])
    values = np.einsum("ah,hwc,bw->abc", rows, image.astype(np.float32), columns, optimize=True)
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _resampling(length: int, size: int) -> np.ndarray:
    """Weights [size, length] of a triangular filter, as wide as the coarser of the two grids; rows add up to 1."""
    ratio = length / size
    centres = (np.arange(size) + 0.5) * ratio - 0.5
    distance = np.abs(centres[:, None] - np.arange(length)) / max(ratio, 1.0)
    weights = np.maximum(1.0 - distance, 0.0)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
