"""Images of one's own as two NumPy files: train.npz and test.npz, each with `image` and `label`.

np.savez("mydata/train.npz", image=images, label=labels)     # uint8 [N, H, W, 3] or grey [N, H, W]; whole numbers [N]
python -m zoo.train recipe=resnet50 cluster=local recipe.data.name=arrays data_dir=mydata recipe.model.num_classes=5
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from zoo.data.images import ArrayExamples, ImageDataset
from zoo.errors import UserError

LAYOUT = "give uint8 images [N, H, W, 3] or [N, H, W] as `image` and their whole numbers from 0 on [N] as `label`"


def open_arrays(folder: Path) -> ImageDataset:
    """Reads both files of a folder into memory; mean and deviation are those of the training images.

    Raises:
        UserError: a file is missing, damaged or holds something else.
    """
    train, test = (read_file(folder / f"{split}.npz") for split in ("train", "test"))
    counts = np.zeros((3, 256), np.int64)
    for channel in range(3):
        counts[channel] = np.bincount(train.images[..., channel].ravel(), minlength=256)
    values = np.arange(256) / 255
    weights = counts / counts.sum(axis=1, keepdims=True)
    mean = weights @ values
    std = np.sqrt(np.maximum(weights @ values**2 - mean**2, 1e-6))  # a constant channel stays finite
    most = int(max(train.labels.max(), test.labels.max()))
    return ImageDataset(
        name="arrays",
        train=train,
        test=test,
        mean=(float(mean[0]), float(mean[1]), float(mean[2])),
        std=(float(std[0]), float(std[1]), float(std[2])),
        classes=tuple(str(label) for label in range(most + 1)),
        announcement=f"data: {len(train):,} training and {len(test):,} test images from {folder}",
    )


def read_file(path: Path) -> ArrayExamples:
    """The images and labels of one file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays["image"], arrays["label"]
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {LAYOUT}") from None
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        reason = str(error)
        if "pickle" in reason:  # NumPy's sentence advises to unpickle
            reason = "it holds Python objects" if "Object arrays" in reason else "it is no file of numpy.savez"
        raise UserError(f"{path} cannot be read: {reason}; {LAYOUT}") from None
    if images.ndim == 3:
        images = images[..., None].repeat(3, axis=-1)
    whole = np.issubdtype(labels.dtype, np.integer) and labels.ndim == 1
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or not whole or not len(labels):
        raise UserError(
            f"{path} holds image {images.dtype}{list(images.shape)} and label {labels.dtype}{list(labels.shape)}; {LAYOUT}"
        )
    if len(images) != len(labels) or labels.min() < 0:
        raise UserError(f"{path} holds {len(images)} images and {len(labels)} labels from {labels.min()} on; {LAYOUT}")
    return ArrayExamples(images, labels.astype(np.int32))
