"""Groups of neighbouring devices, and the links between them."""

from __future__ import annotations

import pytest

import flowaware_core as fa
from flowaware_core.cluster.groups import chain, equal, group, groups, link

DEVICE = fa.Device("card", fa.GIB, {"float32": 1e12}, 1e11)
CARDS = fa.Level("card", 4, 3e10, 1e-6)
PAIR = fa.Cluster("pair", DEVICE, (fa.Level("node", 2, 8e9, 5e-6, shared=True), CARDS))


def test_groups_are_members_of_a_level_inside_one_member_of_the_level_around_it() -> None:
    found = [(one.begin, one.size) for one in groups(PAIR)]
    inside = [(node + begin, size) for node in (0, 4) for begin in range(4) for size in range(1, 5 - begin)]
    assert sorted(found) == sorted(inside)
    assert all(one == group(PAIR, one.begin, one.size) and one.end <= 8 for one in groups(PAIR))
    assert [(one.begin, one.size) for one in groups(PAIR, least=3)] == [(0, 3), (0, 4), (1, 3), (4, 3), (4, 4), (5, 3)]
    three = fa.Cluster("three", DEVICE, (fa.Level("node", 3, 8e9, 5e-6), CARDS))
    assert [(one.begin, one.size) for one in groups(three, least=4)] == [(0, 4), (0, 8), (4, 4), (4, 8), (8, 4)]
    assert group(three, 4, 8).cluster.levels == (fa.Level("node", 2, 8e9, 5e-6), CARDS)  # type: ignore[union-attr]


def test_equal_groups_divide_the_outermost_level_that_has_several_members() -> None:
    assert [[one.size for one in found] for found in equal(PAIR)] == [[4, 4]]
    one = fa.Cluster("one", DEVICE, (fa.Level("node", 1, 8e9, 5e-6), CARDS))
    assert [[one.size for one in found] for found in equal(one)] == [[2, 2], [1, 1, 1, 1]]


def test_links_carry_what_both_ends_can_send_side_by_side() -> None:
    def rate(*sizes: int) -> tuple[float, float]:
        found = chain(PAIR, sizes)
        at = next(index for index, one in enumerate(found) if one.begin == 4)
        return link(PAIR, found[at - 1], found[at])

    assert rate(4, 4) == rate(2, 2, 4) == rate(4, 3, 1) == (8e9, 5e-6)  # one card alone may have the link of its node
    one, other = chain(PAIR, (2, 2, 4))[:2]
    assert link(PAIR, one, other) == (2 * 3e10, 1e-6)
    three = fa.Cluster("three", DEVICE, (fa.Level("node", 3, 8e9, 5e-6), CARDS))
    assert link(three, *chain(three, (8, 4))) == (4 * 8e9, 5e-6)
    with pytest.raises(ValueError, match="devices 3 to 7 are no group of 2 nodes of 4 cards"):
        chain(PAIR, (3, 5))
