"""Images of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zoo.data.arrays import open_arrays
from zoo.data.choice import open_dataset
from zoo.data.images import DataConfig
from zoo.errors import UserError


def save(folder: Path, split: str, images: np.ndarray, labels: np.ndarray) -> None:
    np.savez(folder / f"{split}.npz", image=images, label=labels)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for split, number in (("train", 20), ("test", 6)):
        save(tmp_path, split, draw.integers(0, 200, (number, 5, 4, 3), dtype=np.uint8), np.arange(number) % 3)
    return tmp_path


def test_what_was_saved_is_read_and_normalised_by_itself(folder: Path) -> None:
    dataset = open_arrays(folder)
    images = np.load(folder / "train.npz")["image"]
    np.testing.assert_array_equal(dataset.train.images, images)
    np.testing.assert_allclose(dataset.mean, (images / 255).mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(dataset.std, (images / 255).std(axis=(0, 1, 2)), rtol=1e-9)
    assert dataset.classes == ("0", "1", "2") and (len(dataset.train), len(dataset.test)) == (20, 6)


@pytest.mark.parametrize("rehearsal", [True, False])
def test_the_configuration_names_it(folder: Path, rehearsal: bool) -> None:
    config = DataConfig(name="arrays", image_size=8, global_batch=4, readers=0)
    dataset = open_dataset(config, folder, num_classes=3, rehearsal=rehearsal)
    batch = next(dataset.batches("train", config, seed=0, start_step=0, global_batch=4))
    assert batch["image"].shape == (4, 8, 8, 3)
    with pytest.raises(UserError, match="num_classes=3"):
        open_dataset(config, folder, num_classes=2, rehearsal=rehearsal)


def test_grey_images_get_three_equal_channels(folder: Path) -> None:
    save(folder, "train", np.full((2, 3, 3), 7, np.uint8), np.array([0, 1]))
    dataset = open_arrays(folder)
    assert dataset.train.images.shape == (2, 3, 3, 3) and dataset.std[0] > 0


@pytest.mark.parametrize(
    ("images", "labels", "word"),
    [
        (np.zeros((2, 4, 4, 3), np.float32), np.zeros(2, np.int64), "float32"),
        (np.zeros((2, 4, 4, 4), np.uint8), np.zeros(2, np.int64), r"\[2, 4, 4, 4\]"),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2), "float64"),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(3, np.int64), "2 images and 3 labels"),
        (np.zeros((2, 4, 4, 3), np.uint8), np.array([0, -1]), "from -1 on"),
        (np.zeros((0, 4, 4, 3), np.uint8), np.zeros(0, np.int64), r"int64\[0\]"),
        (np.array([{}, {}]), np.zeros(2, np.int64), "cannot be read"),  # would have to be unpickled
    ],
)
def test_anything_else_is_named_with_what_is_allowed(
    folder: Path, images: np.ndarray, labels: np.ndarray, word: str
) -> None:
    save(folder, "test", images, labels)
    with pytest.raises(UserError, match=word) as caught:
        open_arrays(folder)
    assert "test.npz" in str(caught.value) and "uint8 images [N, H, W, 3]" in str(caught.value)


def test_a_missing_or_broken_file_is_named(folder: Path) -> None:
    (folder / "test.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="test.npz cannot be read"):
        open_arrays(folder)
    (folder / "test.npz").unlink()
    with pytest.raises(UserError, match="test.npz is missing"):
        open_arrays(folder)
