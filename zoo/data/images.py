"""Batches of images: order, augmentation, each process' part, normalisation; a function of (seed, step) alone.

The order and the random numbers are drawn for whole batches; a process then reads its own rows and no others. So a
batch is the same whatever the number of processes or reading threads, and any step is reached at no cost.
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
        name: "cifar10"; "mnist"; "arrays" (train.npz and test.npz in data_dir); "image_folder" (train/<class>/<image> and
            test/<class>/<image> in data_dir); "digits".
        image_size: height and width in pixels of what the model sees; images of another size are resized.
        global_batch: examples per step, over all devices.
        augment: in training, crop at random after padding by an eighth of the size (4 pixels of 32), and mirror half.
        readers: threads that prepare batches; 0 prepares each one when it is asked for.
    """

    name: Literal["cifar10", "mnist", "arrays", "image_folder", "digits"]
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

    def take(self, numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The images (uint8 [n, size, size, 3]) and labels (int32 [n]) of these numbers [n]."""
        ...


@dataclasses.dataclass(frozen=True)
class ArrayExamples:
    """Examples held in memory: images uint8 [N, H, W, 3] and labels int32 [N]."""

    images: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        return resize(self.images[numbers], size), self.labels[numbers]


@dataclasses.dataclass(frozen=True)
class ImageDataset:
    """A data set that is open for reading.

    Attributes:
        name: what it is called.
        train, test: the examples of each split.
        mean, std: per channel, of pixel values over 255; images are normalised with them.
        classes: a name per label.
        mirrors: whether a mirrored image still shows the same thing.
        announcement: what the user must be told about it; empty where there is nothing to say.
    """

    name: str
    train: Examples
    test: Examples
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    classes: tuple[str, ...]
    mirrors: bool = True
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

        Args:
            split: "train" or "test".
            config: image size, augmentation and number of reading threads.
            seed: fixes the order and the augmentation.
            start_step: number of batches to leave out.
            global_batch: examples per batch, over all processes.
            slice_of: (index, count): the part of each batch to read, of `count` equal stretches of its rows.
        """
        index, count = slice_of
        assert split in SPLITS and 0 <= index < count and global_batch % count == 0, (split, slice_of, global_batch)
        part = slice(index * global_batch // count, (index + 1) * global_batch // count)
        if split == "train":
            batches = self._training(config, seed, global_batch, part)
        else:
            batches = self._testing(config, global_batch, part)
        options = grain.ReadOptions(num_threads=config.readers, prefetch_buffer_size=2 * config.readers)
        return iter(batches[start_step:].to_iter_dataset(options))

    def _training(self, config: DataConfig, seed: int, global_batch: int, part: slice) -> grain.MapDataset:
        padding = config.image_size // 8 if config.augment else 0

        def read(draw: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
            numbers, tops, lefts, mirrored = (values[part] for values in draw)
            images, labels = self.train.take(numbers, config.image_size)
            if config.augment:
                images = cropped(images, padding, tops, lefts)
            if config.augment and self.mirrors:
                images[mirrored] = images[mirrored, :, ::-1]
            return {"image": self._normalised(images), "label": labels}

        def draw(numbers: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
            tops, lefts = rng.integers(0, 2 * padding, size=(2, global_batch), endpoint=True)
            return numbers, tops, lefts, rng.integers(2, size=global_batch) == 1

        order = grain.MapDataset.range(len(self.train)).seed(seed).shuffle().repeat()
        return order.batch(global_batch, drop_remainder=True, batch_fn=np.asarray).random_map(draw).map(read)

    def _testing(self, config: DataConfig, global_batch: int, part: slice) -> grain.MapDataset:
        total = len(self.test)

        def read(batch: int) -> dict[str, np.ndarray]:
            numbers = np.arange(batch * global_batch, (batch + 1) * global_batch)[part]
            # Rows past the end repeat the last example; their weight is 0.
            images, labels = self.test.take(np.minimum(numbers, total - 1), config.image_size)
            weight = (numbers < total).astype(np.float32)
            return {"image": self._normalised(images), "label": labels, "weight": weight}

        return grain.MapDataset.range(-(-total // global_batch)).map(read)

    def _normalised(self, images: np.ndarray) -> np.ndarray:
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        return images * (np.float32(1 / 255) / std) - mean / std


def cropped(images: np.ndarray, padding: int, tops: np.ndarray, lefts: np.ndarray) -> np.ndarray:
    """Pads each image [n, S, S, 3] with black and cuts the window [S, S] out of it that starts at (tops, lefts) [n]."""
    number, height, width, channels = images.shape
    padded = np.zeros((number, height + 2 * padding, width + 2 * padding, channels), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = images
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    return np.ascontiguousarray(windows[np.arange(number), tops, lefts].transpose(0, 2, 3, 1))


def resize(images: np.ndarray, size: int) -> np.ndarray:
    """Resamples uint8 images [n, H, W, C] linearly to [n, size, size, C]; a coarser grid averages what it covers."""
    if images.shape[1:3] == (size, size):
        return images
    rows, columns = (_resampling(length, size) for length in images.shape[1:3])
    values = np.einsum("ah,nhwc,bw->nabc", rows, images.astype(np.float32), columns, optimize=True)
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _resampling(length: int, size: int) -> np.ndarray:
    """Weights [size, length] of a triangular filter, as wide as the coarser of the two grids; rows add up to 1."""
    ratio = length / size
    centres = (np.arange(size) + 0.5) * ratio - 0.5
    distance = np.abs(centres[:, None] - np.arange(length)) / max(ratio, 1.0)
    weights = np.maximum(1.0 - distance, 0.0)
    return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
