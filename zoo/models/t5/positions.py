"""Relative positions as T5 counts them: near ones each for itself, far ones in buckets that widen with the distance."""

from __future__ import annotations

import math

import numpy as np


def buckets(num_queries: int, num_keys: int, num_buckets: int, max_distance: int, both_ways: bool) -> np.ndarray:
    """The bucket of each query and key, int32 [num_queries, num_keys].

    Args:
        num_queries, num_keys: positions count from 0 in both.
        num_buckets, max_distance: all distances from `max_distance` on share the last bucket.
        both_ways: half of the buckets are for keys behind the query; else those all share bucket 0.
    """
    offset = np.arange(num_keys)[None, :] - np.arange(num_queries)[:, None]
    if not both_ways:
        return _by_distance(np.maximum(-offset, 0), num_buckets, max_distance)
    half = num_buckets // 2
    return _by_distance(np.abs(offset), half, max_distance) + np.where(offset > 0, np.int32(half), np.int32(0))


def _by_distance(distance: np.ndarray, num_buckets: int, max_distance: int) -> np.ndarray:
    exact = num_buckets // 2
    # In float32 and in this order, as the models were trained: at 16, 32, ... rounding decides the bucket.
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    far = exact + (ratio / np.float32(math.log(max_distance / exact)) * np.float32(num_buckets - exact)).astype(
        np.int32
    )
    return np.where(distance < exact, distance, np.minimum(far, num_buckets - 1)).astype(np.int32)
