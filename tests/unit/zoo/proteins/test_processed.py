"""Sampling, masking, clustering and padding: shapes, meaning, seeds."""

from __future__ import annotations

import numpy as np

from zoo.proteins.processed import Draws, Sizes, draw, drawn_features, profile

RNG = np.random.default_rng(0)
MSA = RNG.integers(0, 22, (40, 12)).astype(np.int32)
DELETIONS = RNG.integers(0, 3, (40, 12)).astype(np.float32)
SIZES = Sizes(clusters=8, further=16)


def test_same_seed_same_bytes_and_another_differs() -> None:
    one, same, other = (
        drawn_features(MSA, DELETIONS, SIZES, draw(MSA, SIZES, np.random.default_rng(seed))) for seed in (1, 1, 2)
    )
    assert all(one[name].tobytes() == same[name].tobytes() for name in one)
    assert one["msa_feat"].tobytes() != other["msa_feat"].tobytes()


def test_shapes_do_not_depend_on_the_depth_of_the_alignment() -> None:
    for depth in (1, 5, 8, 9, 40):
        msa, deletions = MSA[:depth], DELETIONS[:depth]
        features = drawn_features(msa, deletions, SIZES, draw(msa, SIZES, np.random.default_rng(0)))
        assert features["msa_feat"].shape == (8, 12, 49)
        assert features["extra_msa"].shape == (16, 12)
        assert features["msa_mask"].sum() == 12 * min(depth, 8)
        assert features["extra_msa_mask"].sum() == 12 * min(max(depth - 8, 0), 16)


def test_the_query_is_always_the_first_centre() -> None:
    features = drawn_features(MSA, DELETIONS, SIZES, draw(MSA, SIZES, np.random.default_rng(3)))
    np.testing.assert_array_equal(features["true_msa"][0], MSA[0])


def test_clusters_by_hand() -> None:
    msa = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 9], [4, 5, 21, 7], [0, 21, 2, 3]], np.int32)
    deletions = np.arange(20, dtype=np.float32).reshape(5, 4)
    draws = Draws(np.arange(5), np.zeros((2, 4), bool), np.zeros((2, 4), np.int32), np.arange(3))
    features = drawn_features(msa, deletions, Sizes(2, 3), draws)
    shares = features["msa_feat"][..., 25:48]
    np.testing.assert_allclose(shares[0, 3, [3, 9]], [2 / 3, 1 / 3], atol=1e-6)  # rows 0, 2 and 4
    np.testing.assert_allclose(shares[1, 2, [6, 21]], [1 / 2, 1 / 2], atol=1e-6)  # rows 1 and 3
    mean = (deletions[0] + deletions[2] + deletions[4]) / 3
    np.testing.assert_allclose(features["msa_feat"][0, :, 48], np.arctan(mean / 3) * 2 / np.pi, rtol=1e-5)


def test_masked_letters_follow_the_stated_probabilities() -> None:
    msa = np.tile(np.array([[3] * 50 + [7] * 50], np.int32), (200, 1))
    sizes = Sizes(clusters=200, further=1)
    drawn = draw(msa, sizes, np.random.default_rng(0))
    assert abs(drawn.masked.mean() - 0.15) < 0.01
    assert abs((drawn.replacement == 22).mean() - 0.7) < 0.01
    same = drawn.replacement == msa[drawn.order]
    assert abs(same.mean() - (0.1 + 0.1 + 0.1 / 20)) < 0.01  # itself, its column, any
    assert not (drawn.replacement == 20).any()
    np.testing.assert_allclose(profile(msa).sum(axis=-1), 1, rtol=1e-6)


def test_a_deep_alignment_is_read_in_bounded_memory() -> None:
    msa = np.random.default_rng(0).integers(0, 22, (60_000, 10)).astype(np.int32)
    sizes = Sizes(clusters=128, further=256)
    features = drawn_features(msa, np.zeros(msa.shape, np.float32), sizes, draw(msa, sizes, np.random.default_rng(0)))
    assert features["extra_msa"].shape == (256, 10)
