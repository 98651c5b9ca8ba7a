"""Chains of layouts: they arrive, each link is elementary, and moving bytes round and back changes nothing."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from flowaware_core.graph.layout import Layout, axes_of, local_shape, steps


@st.composite
def layouts(draw: st.DrawFn, rank: int = 3, axes: int = 3) -> Layout:
    places = draw(st.lists(st.integers(-1, rank - 1), min_size=axes, max_size=axes))
    return tuple(tuple(axis for axis, place in enumerate(places) if place == dim) for dim in range(rank))


@given(layouts(), layouts())
def test_chains_arrive_in_elementary_steps(source: Layout, target: Layout) -> None:
    chain = steps(source, target)
    assert (chain[-1].layout if chain else source) == target
    for before, step in itertools.pairwise([None, *chain]):
        old = source if before is None else before.layout
        leaving = axes_of(old) - axes_of(step.layout)
        entering = axes_of(step.layout) - axes_of(old)
        if step.kind == "slice":
            assert entering == set(step.axes) and not leaving
            assert all(new[: len(was)] == was for was, new in zip(old, step.layout, strict=True))
        elif step.kind == "all-gather":
            assert leaving == set(step.axes) and not entering
            changed = [(was, new) for was, new in zip(old, step.layout, strict=True) if was != new]
            assert len(changed) == 1 and changed[0][0] == changed[0][1] + step.axes
        else:
            assert not leaving and not entering
            (lost,) = [(was, new) for was, new in zip(old, step.layout, strict=True) if len(new) < len(was)]
            (won,) = [(was, new) for was, new in zip(old, step.layout, strict=True) if len(new) > len(was)]
            assert lost[0] == lost[1] + step.axes and won[1] == won[0] + step.axes


def test_an_axis_that_changes_its_dimension_is_exchanged() -> None:
    (step,) = steps(((0,), ()), ((), (0,)))
    assert step.kind == "all-to-all" and step.axes == (0,)


def test_axes_that_change_to_the_same_dimension_are_one_exchange() -> None:
    (step,) = steps(((0, 1), ()), ((), (0, 1)))
    assert step.kind == "all-to-all" and step.axes == (0, 1)
    (step,) = steps(((0, 1, 2), (), ()), ((0,), (), (1, 2)))
    assert step.axes == (1, 2)


def test_axes_that_change_to_different_dimensions_are_exchanged_the_last_first() -> None:
    kinds = [(step.kind, step.axes) for step in steps(((0, 1, 2), (), ()), ((), (0, 1), (2,)))]
    assert kinds == [("all-to-all", (2,)), ("all-to-all", (0, 1))]


def test_an_axis_between_those_that_leave_is_in_the_way() -> None:
    kinds = [(step.kind, step.axes) for step in steps(((0, 2), (1,)), ((), (0, 1, 2)))]
    assert kinds == [("all-gather", (0, 2)), ("all-gather", (1,)), ("slice", (0, 1, 2))]


def test_an_outer_axis_leaves_through_a_gather_of_what_follows_it() -> None:
    kinds = [(step.kind, step.axes) for step in steps(((0, 1),), ((1,),))]
    assert kinds == [("all-gather", (0, 1)), ("slice", (1,))]


def test_local_shapes_count_the_largest_shard() -> None:
    assert local_shape((8, 7), ((0,), (1,)), (4, 2)) == (2, 4)
