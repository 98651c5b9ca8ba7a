"""Cuts of a chain against every way to cut it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flowaware_core.search.partition import candidates, partition, pipelined


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
    cuts = partition(weights, positions, transfer, stages, 8)
    assert cuts is not None and list(cuts) == sorted(cuts)
    entry = [0.0, *(transfer[cut - 1] for cut in cuts)]
    edges = itertools.pairwise([0, *cuts, 14])
    loads = [weights[a:b].sum() + e for (a, b), e in zip(edges, entry, strict=True)]
    assert pipelined(loads, 8) <= 1.03 * best(weights, positions, transfer, stages, 8)


def test_too_few_places() -> None:
    assert partition(np.ones(3), np.array([1]), np.zeros(1), 3, 4) is None


def test_cuts_are_where_least_passes() -> None:
    assert candidates(np.array([0.0, 9.0, 2.0, 9.0, 9.0, 1.0, 7.0, 0.0])).tolist() == [2, 5]
