"""Bytes and seconds of collectives, by hand."""

from __future__ import annotations

import pytest

from flowaware_core.cluster.mesh import Axis, Mesh
from flowaware_core.cost.communication import combine, reshard, seconds

MESH = Mesh((Axis("node", 2, 1e9, 1e-6), Axis("card", 4, 1e10, 1e-7)))


def test_a_gather_puts_in_its_shard() -> None:
    (move,) = reshard((16, 8), 4, ((0, 1), ()), ((), ()), MESH.sizes)
    assert (move.kind, move.bytes, move.axes) == ("all-gather", 16 * 8 * 4 // 8, (0, 1))


def test_partial_sums_cut_at_once_are_a_reduce_scatter() -> None:
    (move,) = combine((16, 8), 4, ((), ()), ((0, 1), ()), ((0, 1),), MESH.sizes)
    assert (move.kind, move.bytes) == ("reduce-scatter", 512)


def test_partial_sums_kept_whole_are_an_all_reduce_and_sums_over_two_dimensions_are_two() -> None:
    (move,) = combine((16, 8), 4, ((), ()), ((), ()), ((0, 1),), MESH.sizes)
    assert (move.kind, move.bytes, move.axes) == ("all-reduce", 512, (0, 1))
    moves = combine((16, 8), 4, ((), ()), ((), ()), ((0,), (1,)), MESH.sizes)
    assert [(m.kind, m.axes) for m in moves] == [("all-reduce", (0,)), ("all-reduce", (1,))]


def test_sums_that_are_cut_into_unequal_shards_are_an_all_reduce() -> None:
    (move,) = combine((6, 8), 4, ((), ()), ((1,), ()), ((1,),), MESH.sizes)
    assert (move.kind, move.bytes) == ("all-reduce", 6 * 8 * 4)


def test_slices_cost_nothing() -> None:
    assert reshard((16, 8), 4, ((), ()), ((0,), (1,)), MESH.sizes) == ()


def test_hierarchical_seconds_by_hand() -> None:
    # Shards cross the network first, while they are small; then pieces twice as large go round inside the node.
    gather = (2 - 1) * 100 / 1e9 + 1e-6 + (4 - 1) * 200 / 1e10 + 2e-7
    assert seconds("all-gather", 100, (0, 1), MESH) == pytest.approx(gather)
    assert seconds("reduce-scatter", 800, (0, 1), MESH) == pytest.approx(gather)
    assert seconds("all-reduce", 800, (0, 1), MESH) == pytest.approx(2 * gather)
    assert seconds("all-to-all", 400, (1,), MESH) == pytest.approx(0.75 * 400 / 1e10 + 3e-7)


def test_axes_of_one_level_exchange_as_one() -> None:
    links = {"bandwidth_bytes_per_s": 1e10, "latency_s": 1e-7}
    split = Mesh((Axis("node_a", 4, **links), Axis("node_b", 2, **links)))
    whole = Mesh((Axis("node", 8, **links),))
    for kind in ("all-to-all", "all-gather", "all-reduce", "reduce-scatter"):
        assert seconds(kind, 800, (0, 1), split) == pytest.approx(seconds(kind, 800, (0,), whole))


def test_one_device_needs_no_collective() -> None:
    assert seconds("all-reduce", 1e9, (0,), Mesh((Axis("card", 1, 1e9, 1e-6),))) == 0.0


def test_axes_of_one_device_move_nothing() -> None:
    assert reshard((16, 8), 4, ((0,), ()), ((), (0,)), (1, 4)) == ()
    assert combine((16, 8), 4, ((), ()), ((0,), ()), ((0,),), (1, 4)) == ()
    (move,) = combine((16, 8), 4, ((), ()), ((), ()), ((0,), (1,)), (1, 4))
    assert (move.kind, move.axes) == ("all-reduce", (1,))


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        seconds("broadcast", 1, (0,), MESH)
