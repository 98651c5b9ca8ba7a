"""MNIST from its files, and what is said of damaged ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from zoo.data import mnist
from zoo.data.choice import open_dataset
from zoo.data.images import DataConfig
from zoo.errors import UserError


def idx(values: np.ndarray) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + np.asarray(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()


def folder_of(place: Path, images: int = 4, labels: int = 4) -> Path:
    for part in mnist.PARTS.values():
        rng = np.random.default_rng(0)
        (place / f"{part}-{mnist.KINDS[0]}.gz").write_bytes(gzip.compress(idx(rng.integers(0, 256, (images, 28, 28)))))
        (place / f"{part}-{mnist.KINDS[1]}").write_bytes(idx(np.arange(labels)))
    return place


def test_the_real_files_are_whole(reference_data: Path) -> None:
    files = mnist.find(reference_data / "images")
    assert files is not None
    dataset = mnist.open_mnist(files)
    assert (len(dataset.train), len(dataset.test)) == (60_000, 10_000)
    labels = dataset.train.labels  # type: ignore[attr-defined]
    assert list(np.bincount(labels)) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    batch = next(dataset.batches("train", DataConfig("mnist", 28, 512, augment=False), 0, 0, 512))
    assert batch["image"].shape == (512, 28, 28, 3)
    # Normalised as the card says, whose figures are of the whole split.
    assert abs(batch["image"].mean()) < 0.05 and abs(batch["image"].std() - 1) < 0.05


def test_other_images_than_the_official_are_refused_by_their_checksum(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is damaged: its checksum should be md5:"):
        mnist.open_mnist(mnist.find(folder_of(tmp_path)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"PK", "is no IDX file"),
        (b"\0\0\x08\x02" + b"\0" * 3, "is no IDX file"),
        (idx(np.zeros((2, 3)))[:-1], r"says \[2, 3\], 6 bytes, and has 5"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=text):
        mnist.read_idx(tmp_path / "x", {})
    (tmp_path / "x.gz").write_bytes(gzip.compress(content)[:-4])
    with pytest.raises(UserError, match="cannot be decompressed"):
        mnist.read_idx(tmp_path / "x.gz", {})


def test_a_rehearsal_takes_digits_and_a_training_says_what_is_missing(tmp_path: Path) -> None:
    config = DataConfig("mnist", 28, 4)
    assert "no MNIST in" in open_dataset(config, tmp_path, 10, rehearsal=True).announcement
    with pytest.raises(UserError, match="no MNIST in data_dir=.*train-images-idx3-ubyte"):
        open_dataset(config, tmp_path, 10, rehearsal=False)
