"""Few programs, little padding, even loads."""

from __future__ import annotations

import numpy as np

import flowaware_core as fa
from zoo.folding.buckets import Size, cost, planned

LENGTHS = [20, 29, 10, 154, 141, 230, 191, 70, 73, 150, 287, 63]


def sizes() -> list[Size]:
    return [Size(length, 128, 256) for length in LENGTHS]


def test_twelve_proteins_need_four_programs_at_most() -> None:
    plan = planned(sizes())
    assert len(plan.buckets) <= 4
    assert plan.waste < 0.3
    assert sorted(index for bucket in plan.buckets for index in bucket.members) == list(range(12))


def test_every_protein_fits_its_bucket_and_the_waste_is_what_is_said() -> None:
    given = [Size(length, rows, 1) for length, rows in zip(LENGTHS, range(1, 500, 40), strict=False)]
    plan = planned(given)
    whole = 0.0
    for bucket in plan.buckets:
        assert all(bucket.size.cover(given[index]) == bucket.size for index in bucket.members)
        whole += len(bucket.members) * cost(bucket.size)
    assert np.isclose(plan.waste, 1 - sum(cost(size) for size in given) / whole)


def test_less_waste_costs_more_programs_and_equal_sizes_one() -> None:
    assert len(planned(sizes(), most_waste=0.1).buckets) > len(planned(sizes(), most_waste=0.3).buckets)
    assert len(planned([Size(100, 8, 8)] * 7).buckets) == 1
    assert planned([]).buckets == ()


def test_the_order_of_the_input_does_not_matter() -> None:
    def shape(order: list[Size]) -> set[tuple[Size, int]]:
        return {(bucket.size, len(bucket.members)) for bucket in planned(order).buckets}

    assert shape(sizes()) == shape(sizes()[::-1])


def test_loads_are_even() -> None:
    costs = [cost(size) for size in sizes()] * 4
    assert fa.imbalance(costs, fa.spread(costs, 4)) < 0.1
