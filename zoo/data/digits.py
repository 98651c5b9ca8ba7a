"""Handwritten digits that scikit-learn ships: real data for a rehearsal on a machine that has no other."""

from __future__ import annotations

import numpy as np

from zoo.data.images import ArrayExamples, ImageDataset

# The set comes unsplit; the rest, 297 images, is for testing.
TRAIN_EXAMPLES = 1500
# Of pixel values over the whole range; a test holds them against the training split.
MEAN = 0.305
STD = 0.375


def open_digits(num_classes: int = 10, rehearsal: bool = False, announcement: str = "") -> ImageDataset:
    """The 1797 images of 8x8 pixels as grey RGB; only the digits below `num_classes` are taken."""
    from sklearn.datasets import load_digits  # here: it takes a second, and only rehearsals need it

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None].repeat(3, axis=-1)
    labels = bunch.target.astype(np.int32)

    def split(part: slice) -> ArrayExamples:
        kept = labels[part] < num_classes
        return ArrayExamples(images[part][kept], labels[part][kept])

    return ImageDataset(
        name="digits",
        train=split(slice(None, TRAIN_EXAMPLES)),
        test=split(slice(TRAIN_EXAMPLES, None)),
        mean=(MEAN,) * 3,
        std=(STD,) * 3,
        classes=tuple(str(digit) for digit in range(min(num_classes, 10))),
        mirrors=False,
        rehearsal=rehearsal,
        announcement=announcement,
    )
