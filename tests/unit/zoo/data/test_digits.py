"""The digits of scikit-learn: whole, split, and with the statistics that their card states."""

from __future__ import annotations

import numpy as np

from zoo.data.cards import card
from zoo.data.digits import open_digits


def test_splits_and_statistics_are_the_card_s() -> None:
    dataset = open_digits("announced")
    about = card("digits")
    assert {"train": len(dataset.train), "test": len(dataset.test)} == about.splits
    images, labels = dataset.train.take(np.arange(len(dataset.train)), 8)
    np.testing.assert_allclose(images.reshape(-1, 3).mean(axis=0) / 255, about.mean, atol=1e-3)
    np.testing.assert_allclose(images.reshape(-1, 3).std(axis=0) / 255, about.std, atol=1e-3)
    assert set(labels) == set(range(10)) and images.max() == 255
    assert dataset.announcement == "announced" and not dataset.mirrors


def test_only_the_classes_that_the_model_has_are_taken() -> None:
    dataset = open_digits("", num_classes=3)
    assert set(dataset.train.take(np.arange(len(dataset.train)), 8)[1]) == {0, 1, 2}
    assert dataset.classes == ("0", "1", "2")
