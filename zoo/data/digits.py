"""Handwritten digits that scikit-learn ships: real data for a rehearsal on a machine that has no other."""

from __future__ import annotations

import numpy as np

from zoo.data.cards import card
from zoo.data.images import ArrayExamples, ImageDataset


def open_digits(announcement: str, num_classes: int = 10) -> ImageDataset:
    """The 1797 images of 8x8 pixels as grey RGB; only the digits below `num_classes` are taken."""
    from sklearn.datasets import load_digits  # here: it takes a second, and only rehearsals need it

    about = card("digits")
    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None].repeat(3, axis=-1)
    labels = bunch.target.astype(np.int32)

    def split(part: slice) -> ArrayExamples:
        kept = labels[part] < num_classes
        return ArrayExamples(images[part][kept], labels[part][kept])

    return ImageDataset(
        name="digits",
        train=split(slice(None, about.splits["train"])),
        test=split(slice(about.splits["train"], None)),
        mean=about.mean,
        std=about.std,
        classes=about.classes[:num_classes],
        mirrors=False,
        announcement=announcement,
    )
