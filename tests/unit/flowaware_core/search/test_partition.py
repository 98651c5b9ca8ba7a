"""Cuts of a chain against every way to cut it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flowaware_core.search.partition import Places, candidates, partition, pipelined


def row(count: int) -> Places:
    """Equal places one behind the other, where a byte takes a second."""
    numbers, behind = np.arange(count), np.ones(count - 1)
    start = np.maximum(np.arange(-1, count), 0)
    return Places(0 * numbers, numbers == 0, numbers == count - 1, start, numbers[:-1], behind, 0 * behind)


def best(weights: np.ndarray, positions: np.ndarray, transfer: np.ndarray, stages: int, micro_batches: int) -> float:
    steps = []
    for chosen in itertools.combinations(range(len(positions)), stages - 1):
        edges = [0, *positions[list(chosen)], len(weights)]
        entry = [0.0, *transfer[list(chosen)]]
        loads = [weights[a:b].sum() + e for (a, b), e in zip(itertools.pairwise(edges), entry, strict=True)]
        steps.append(pipelined(loads, micro_batches))
    return min(steps)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_no_other_cuts_are_much_faster(seed: int, stages: int) -> None:
    """Limits of the busiest stage are tried in steps, so the answer may be off by one of them."""
    draw = np.random.default_rng(seed)
    weights, positions = draw.uniform(0.1, 1.0, 14), np.arange(1, 14)
    transfer = draw.uniform(0.0, 0.5, 13)
    found = partition(weights[None], positions, transfer, row(stages), 8)
    assert found is not None
    cuts = found.cuts
    assert list(cuts) == sorted(cuts)
    entry = [0.0, *(transfer[cut - 1] for cut in cuts)]
    edges = itertools.pairwise([0, *cuts, 14])
    loads = [weights[a:b].sum() + e for (a, b), e in zip(edges, entry, strict=True)]
    assert found.loads == pytest.approx(loads)
    assert pipelined(loads, 8) <= 1.03 * best(weights, positions, transfer, stages, 8)


def test_too_few_places() -> None:
    assert partition(np.ones((1, 3)), np.array([1]), np.zeros(1), row(3), 4) is None


def test_cuts_are_where_least_passes() -> None:
    assert candidates(np.array([0.0, 9.0, 2.0, 9.0, 9.0, 1.0, 7.0, 0.0])).tolist() == [2, 5]
