"""Images: `train/<class>/*.png` and `test/<class>/*.png` below data_dir, also .jpg, .jpeg, .bmp and .webp.

`val` or `validation` may stand in place of `test`. Images are opened when a batch needs them, turned to RGB, cut to their
middle square and resized. Needs Pillow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from zoo.data.images import ImageDataset, resize
from zoo.errors import UserError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")
TEST_NAMES = ("test", "val", "validation")
# Of ImageNet, per channel, as nearly all networks for photographs are trained with.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
MOST_LOOKED_AT = 20_000
"""Images of a split that are looked at before a training."""
# What Pillow raises for files that are no image (its UnidentifiedImageError is an OSError), or a damaged one.
UNREADABLE = (OSError, SyntaxError, ValueError)


@dataclasses.dataclass(frozen=True)
class FileExamples:
    """Examples in files: paths [N] and labels int32 [N]."""

    paths: tuple[Path, ...]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([read_image(self.paths[number], size) for number in numbers]), self.labels[numbers]


def open_image_folder(folder: Path) -> ImageDataset:
    """Lists the images of both splits; their classes are the names of the folders below `train`, sorted.

    Raises:
        UserError: Pillow is not installed, a split is missing or empty, or a test class is not among the training classes.
    """
    try:
        import PIL  # noqa: F401  # asked for here, so that a run does not stop at its first batch
    except ImportError:
        raise UserError(
            "recipe.data.name=image_folder needs Pillow, which is not installed: pip install pillow"
        ) from None
    test = next((name for name in TEST_NAMES if (folder / name).is_dir()), TEST_NAMES[0])
    classes = sorted(path.name for path in _folders(folder / "train"))
    splits = [_examples(folder / "train", classes), _examples(folder / test, classes)]
    empty = [name for label, name in enumerate(classes) if label not in splits[0].labels]
    if empty:
        raise UserError(f"{folder / 'train' / empty[0]} has no images; remove that folder, or put some in")
    if len(classes) == 1:
        raise UserError(f"{folder / 'train'} has the class {classes[0]} alone; there is nothing to tell apart")
    for split in splits:
        check_images(split.paths)
    return ImageDataset(
        name=str(folder),
        train=splits[0],
        test=splits[1],
        mean=MEAN,
        std=STD,
        classes=tuple(classes),
        announcement=f"data: images of {len(classes)} classes from {folder}",
    )


def exists(folder: Path) -> bool:
    """Whether there is a training split to open."""
    return bool(_folders(folder / "train"))


def check_images(paths: Sequence[Path]) -> None:
    """Looks at the beginning of every image, and at every byte of a PNG; of very many at some, evenly spread.

    Raises:
        UserError: a file is no image, or a PNG is damaged. A JPEG that is cut off shows when it is decoded.
    """
    some = paths[:: -(-len(paths) // MOST_LOOKED_AT)]
    with ThreadPoolExecutor(8) as pool:
        for problem in pool.map(_problem, some):
            if problem is not None:
                raise UserError(problem)


def _problem(path: Path) -> str | None:
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.verify()
    except UNREADABLE as error:
        return _unreadable(path, error)
    return None


def _unreadable(path: Path, error: Exception) -> str:
    if not path.exists():
        return f"{path} does not exist"
    reason = "it is empty" if path.is_file() and not path.stat().st_size else str(error)
    return f"{path} cannot be read as an image: {reason}; delete or replace it"


def read_image(path: Path, size: int) -> np.ndarray:
    """The middle square of an image, uint8 [size, size, 3].

    Raises:
        UserError: the file is no image or is cut off.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
    except UNREADABLE as error:
        raise UserError(_unreadable(path, error)) from None
    side = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    return resize(pixels[None, top : top + side, left : left + side], size)[0]


def _examples(folder: Path, classes: list[str]) -> FileExamples:
    unknown = sorted(path.name for path in _folders(folder) if path.name not in classes)
    if unknown:
        raise UserError(f"{folder} has the classes {', '.join(unknown)}, which {folder.parent / 'train'} does not have")
    found = [
        (path, label)
        for label, name in enumerate(classes)
        for path in sorted((folder / name).glob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise UserError(f"{folder} has no images; expected {folder}/<class>/<image>, each {', '.join(SUFFIXES)}")
    paths, labels = zip(*found, strict=True)
    return FileExamples(paths, np.asarray(labels, np.int32))


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
