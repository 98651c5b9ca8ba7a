"""A folder of the user's own images: classes, splits, decoding, and what can be wrong with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from zoo.data.choice import open_dataset
from zoo.data.image_folder import exists, open_image_folder, read_image
from zoo.data.images import DataConfig
from zoo.errors import UserError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

COLOURS = {"cats": (255, 0, 0), "dogs": (0, 0, 255)}
CONFIG = DataConfig("image_folder", image_size=8, global_batch=4, augment=False, readers=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, three images each in train and one in val; of several sizes and modes."""
    for split, count in (("train", 3), ("val", 1)):
        for name, colour in COLOURS.items():
            (tmp_path / split / name).mkdir(parents=True)
            for index in range(count):
                image = Image.new("RGB", (10 + index, 20), colour)
                image.save(tmp_path / split / name / f"{index}.{'png' if index else 'JPEG'}")
            (tmp_path / split / name / "notes.txt").write_text("not an image")
    return tmp_path


def test_classes_are_folders_and_images_keep_their_class(folder: Path) -> None:
    dataset = open_image_folder(folder)
    assert dataset.classes == ("cats", "dogs")
    assert (len(dataset.train), len(dataset.test)) == (6, 2)
    images, labels = dataset.train.take(np.arange(6), 8)
    assert images.shape == (6, 8, 8, 3) and images.dtype == np.uint8 and labels.dtype == np.int32
    for image, label in zip(images, labels, strict=True):
        assert np.abs(image.astype(int) - list(COLOURS.values())[label]).max() < 8


def test_batches_come_out_normalised(folder: Path) -> None:
    dataset = open_dataset(CONFIG, folder, num_classes=2, rehearsal=False)
    batch = next(dataset.batches("train", CONFIG, 0, 0, 4))
    assert batch["image"].shape == (4, 8, 8, 3) and set(batch["label"]) <= {0, 1}
    assert sum(batch["weight"].sum() for batch in dataset.batches("test", CONFIG, 0, 0, 4)) == 2


def test_grey_and_transparent_images_become_rgb_and_the_middle_is_kept(tmp_path: Path) -> None:
    pixels = np.zeros((4, 8), np.uint8)
    pixels[:, 2:6] = 200
    Image.fromarray(pixels).save(tmp_path / "grey.png")
    assert (read_image(tmp_path / "grey.png", 4) == 200).all()
    Image.new("RGBA", (4, 4), (1, 2, 3, 4)).save(tmp_path / "clear.png")
    assert read_image(tmp_path / "clear.png", 4).shape == (4, 4, 3)


def test_a_broken_image_is_named(folder: Path) -> None:
    broken = folder / "train/cats/1.png"
    broken.write_bytes(broken.read_bytes()[:40])
    with pytest.raises(UserError, match="1.png cannot be read as an image"):
        open_image_folder(folder)
    broken.write_bytes(b"")
    with pytest.raises(UserError, match="1.png cannot be read as an image: it is empty; delete or replace it"):
        open_image_folder(folder)
    broken.unlink()
    photo = folder / "train/cats/0.JPEG"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(photo)
    photo.write_bytes(photo.read_bytes()[:-900])  # which shows when it is decoded
    dataset = open_image_folder(folder)
    with pytest.raises(UserError, match="0.JPEG cannot be read as an image"):
        list(zip(range(3), dataset.batches("train", CONFIG, 0, 0, 4), strict=False))


def test_classes_without_images_or_a_single_one_are_refused(folder: Path) -> None:
    (folder / "train/zebra").mkdir()
    with pytest.raises(UserError, match="train/zebra has no images; remove that folder"):
        open_image_folder(folder)
    (folder / "train/zebra").rmdir()
    for split in ("train", "val"):
        shutil.rmtree(folder / split / "dogs")
    with pytest.raises(UserError, match="has the class cats alone; there is nothing to tell apart"):
        open_image_folder(folder)


def test_outputs_of_no_class_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"num_classes=5, and .* has 2 classes; set recipe.model.num_classes=2"):
        open_dataset(CONFIG, folder, num_classes=5, rehearsal=False)


def test_a_test_class_without_training_images_is_refused(folder: Path) -> None:
    (folder / "val/birds").mkdir()
    with pytest.raises(UserError, match="val has the classes birds, which .*train does not have"):
        open_image_folder(folder)


def test_an_empty_folder_is_an_error_in_training_and_digits_in_a_rehearsal(tmp_path: Path) -> None:
    assert not exists(tmp_path)
    with pytest.raises(UserError, match="train has no images; expected .*train/<class>/<image>"):
        open_dataset(CONFIG, tmp_path, 10, rehearsal=False)
    assert open_dataset(CONFIG, tmp_path, 10, rehearsal=True).name == "digits"


def test_more_classes_than_the_model_has_is_told_with_the_remedy(folder: Path) -> None:
    with pytest.raises(
        UserError, match="recipe.model.num_classes=1, but .* has 2 classes; set recipe.model.num_classes=2"
    ):
        open_dataset(CONFIG, folder, num_classes=1, rehearsal=False)
