"""The input pipeline: what a batch holds is a function of (seed, step), whoever reads it and from wherever on."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from zoo.data.images import ArrayExamples, DataConfig, ImageDataset, cropped, resize

CONFIG = DataConfig(name="cifar10", image_size=8, global_batch=12, readers=0)


def numbered(count: int, seed: int = 0) -> ArrayExamples:
    """Random images whose label is their number."""
    images = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return ArrayExamples(images, np.arange(count, dtype=np.int32))


def dataset(train: int = 30, test: int = 29) -> ImageDataset:
    return ImageDataset(
        "numbered", numbered(train), numbered(test, 1), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), ("class",), mirrors=True
    )


def first(count: int, split: str = "train", config: DataConfig = CONFIG, **options: object) -> list[dict]:
    arguments = {"seed": 3, "start_step": 0, "global_batch": 12} | options
    return list(itertools.islice(dataset().batches(split, config, **arguments), count))  # type: ignore[arg-type]


def same(one: list[dict], other: list[dict]) -> bool:
    return all(np.array_equal(a[name], b[name]) for a, b in zip(one, other, strict=True) for name in a)


def test_every_epoch_holds_every_example_once_in_an_order_of_its_own() -> None:
    labels = np.concatenate([batch["label"] for batch in first(10)])
    epochs = labels.reshape(4, 30)
    assert all(sorted(epoch) == list(range(30)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1])


def test_a_seed_fixes_everything_and_another_changes_it() -> None:
    assert same(first(4), first(4))
    assert not same(first(1), first(1, seed=4))


def test_starting_at_a_step_gives_what_follows_it() -> None:
    assert same(first(9)[5:], first(4, start_step=5))
    assert first(1, start_step=10**9)[0]["image"].shape == (12, 8, 8, 3)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("split", ["train", "test"])
def test_the_parts_of_all_processes_make_the_batch_of_one(count: int, split: str) -> None:
    parts = [first(3, split, slice_of=(index, count)) for index in range(count)]
    joined = [{name: np.concatenate([part[step][name] for part in parts]) for name in parts[0][0]} for step in range(3)]
    assert same(first(3, split), joined)


@pytest.mark.parametrize("readers", [1, 4])
def test_the_number_of_readers_changes_nothing(readers: int) -> None:
    assert same(first(6), first(6, config=dataclasses.replace(CONFIG, readers=readers)))


def test_test_split_ends_after_every_example_with_weight_zero_on_the_rest() -> None:
    batches = first(99, "test")
    assert len(batches) == 3
    labels, weights = (np.concatenate([batch[name] for batch in batches]) for name in ("label", "weight"))
    assert list(labels[weights == 1]) == list(range(29)) and weights.sum() == 29
    assert all(batch["image"].shape == (12, 8, 8, 3) for batch in batches)


def test_images_are_normalised_and_plain_without_augmentation() -> None:
    batch = first(1, config=dataclasses.replace(CONFIG, augment=False))[0]
    expected = (dataset().train.take(batch["label"], 8)[0] / 255 - 0.5) / 0.25
    assert batch["image"].dtype == np.float32 and batch["label"].dtype == np.int32
    np.testing.assert_allclose(batch["image"], expected, atol=1e-5)


def test_augmentation_shifts_by_at_most_the_padding_and_mirrors_half() -> None:
    mirrored = shifted = total = 0
    for batch in first(40):
        images = np.rint((batch["image"] * 0.25 + 0.5) * 255).astype(int)
        for image, label in zip(images, batch["label"], strict=True):
            padded = np.pad(dataset().train.take(np.asarray([label]), 8)[0][0], ((1, 1), (1, 1), (0, 0)))
            windows = [(top, left, flip) for top in range(3) for left in range(3) for flip in (False, True)]
            match = [
                window
                for window in windows
                if np.array_equal(
                    image, padded[window[0] :, window[1] :][:8, :8][:, :: -1 if window[2] else 1].astype(int)
                )
            ]
            assert len(match) == 1
            mirrored += match[0][2]
            shifted += match[0][:2] != (1, 1)
            total += 1
    assert 0.4 < mirrored / total < 0.6
    assert 0.8 < shifted / total < 0.95  # 8 of the 9 windows


def test_digits_are_not_mirrored() -> None:
    plain = dataclasses.replace(dataset(), mirrors=False)
    config = dataclasses.replace(CONFIG, image_size=4)  # no padding left, so that only mirroring could change an image
    batch = next(plain.batches("train", config, 0, 0, 12))
    expected = (plain.train.take(batch["label"], 4)[0] / 255 - 0.5) / 0.25
    np.testing.assert_allclose(batch["image"], expected, atol=1e-5)


def test_cropped_cuts_the_window_out_of_black_padding() -> None:
    image = np.arange(1, 28, dtype=np.uint8).reshape(1, 3, 3, 3)
    out = cropped(image, 1, np.asarray([0]), np.asarray([2]))
    assert (out[0, 0] == 0).all() and (out[0, :, 2] == 0).all()
    np.testing.assert_array_equal(out[0, 1:, :2], image[0, :2, 1:])


def test_resize_keeps_constants_and_ramps_and_averages_when_coarser() -> None:
    flat = np.full((1, 8, 6, 3), 77, np.uint8)
    assert (resize(flat, 32) == 77).all() and resize(flat, 32).shape == (1, 32, 32, 3)
    ramp = np.broadcast_to((np.arange(8) * 30).astype(np.uint8)[None, :, None, None], (1, 8, 8, 3))
    # Twice as fine: the centres of the new pixels lie a quarter of an old one off.
    np.testing.assert_allclose(resize(ramp, 16)[0, 1:-1, 0, 0], np.arange(14) * 15 + 7.5, atol=1)
    checks = np.indices((8, 8)).sum(0) % 2 * 200
    assert np.abs(resize(checks.astype(np.uint8)[None, ..., None].repeat(3, -1), 2).astype(int) - 100).max() <= 10
