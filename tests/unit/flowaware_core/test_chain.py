"""Cuts and groups of a small chain against every way to choose them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import flowaware_core as fa
from flowaware_core.chain import Chain
from flowaware_core.cluster.groups import chain, groups, link
from flowaware_core.search.partition import pipelined

CARD = fa.Device("card", fa.GIB, {"float32": 1e12}, 1e11)
CLUSTERS = {
    "2 nodes of 4": (fa.Level("node", 2, 2.0, 0.01, shared=True), fa.Level("card", 4, 5.0, 0.002)),
    "3 nodes of 2": (fa.Level("node", 3, 1.0, 0.01), fa.Level("card", 2, 5.0, 0.002)),
    "5 cards": (fa.Level("card", 5, 2.0, 0.01),),
}
EQUATIONS = 7


def divisions(cluster: fa.Cluster) -> Iterator[tuple[int, ...]]:
    """All sizes in a row that are groups."""
    count = cluster.num_devices
    for stages in range(2, EQUATIONS + 1):
        for sizes in itertools.product(range(1, count), repeat=stages):
            if sum(sizes) == count:
                try:
                    chain(cluster, sizes)
                except ValueError:
                    continue
                yield sizes


def loads(found: Chain, cuts: tuple[int, ...], sizes: tuple[int, ...]) -> list[float]:
    row, edges = chain(found.cluster, sizes), [0, *cuts, EQUATIONS]
    spent = [
        float(found.weights[found.kinds.index(one.cluster), begin:end].sum())
        for one, (begin, end) in zip(row, itertools.pairwise(edges), strict=True)
    ]
    for stage, cut in enumerate(cuts, start=1):
        bandwidth, latency = link(found.cluster, row[stage - 1], row[stage])
        spent[stage] += 2.0 * (found.crossing[cut] / bandwidth + latency)
    return spent


def drawn(levels: tuple[fa.Level, ...], seed: int) -> Chain:
    """Weights that fall with the number of devices, some more than others."""
    draw, cluster = np.random.default_rng(seed), fa.Cluster("c", CARD, levels)
    found = groups(cluster)
    kinds = tuple({one.size: one.cluster for one in found}.values())
    sizes = np.array([kind.num_devices for kind in kinds])
    weights = draw.uniform(0.2, 1.0, EQUATIONS) / sizes[:, None] * draw.uniform(1.0, 1.5, (len(kinds), EQUATIONS))
    return Chain(cluster, found, kinds, weights, np.arange(1, EQUATIONS), draw.uniform(0.0, 0.1, EQUATIONS + 1))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("micro_batches", [1, 2, 8, 64])
def test_no_other_cuts_and_groups_are_faster(name: str, seed: int, micro_batches: int) -> None:
    problem = drawn(CLUSTERS[name], seed)
    best = dict.fromkeys(range(2, EQUATIONS + 1), np.inf)
    for sizes in divisions(problem.cluster):
        for cuts in itertools.combinations(range(1, EQUATIONS), len(sizes) - 1):
            step = pipelined(loads(problem, cuts, sizes), micro_batches)
            best[len(sizes)] = min(best[len(sizes)], step)
    for stages in (None, 2, 3, 5):
        found = problem.partition(micro_batches, stages)
        assert found is not None and stages in (None, len(found.places))
        sizes = tuple(problem.groups[place].size for place in found.places)
        assert found.loads == pytest.approx(loads(problem, found.cuts, sizes))
        least = min(best.values()) if stages is None else best[stages]
        assert least * (1 - 1e-9) <= pipelined(found.loads, micro_batches) <= least * 1.002


def test_stages_that_take_longer_than_thought_correct_equations_or_the_kind_of_group() -> None:
    problem = drawn(CLUSTERS["3 nodes of 2"], 0)
    found = problem.partition(8, 3)
    assert found is not None
    thought = [load - entry for load, entry in zip(found.loads, problem.entries(found), strict=True)]
    wanted = [1.5 * one + 0.1 * number for number, one in enumerate(thought)]
    after = problem.corrected(found, wanted)
    again = loads(after, found.cuts, tuple(problem.groups[place].size for place in found.places))
    assert [one - entry for one, entry in zip(again, problem.entries(found), strict=True)] == pytest.approx(wanted)
    even = problem.corrected(found, [2.0 * one for one in thought])
    np.testing.assert_allclose(even.weights, 2.0 * problem.weights)
