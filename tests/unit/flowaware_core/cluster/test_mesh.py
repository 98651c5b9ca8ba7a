"""Meshes on levels of links."""

from __future__ import annotations

import pytest

import flowaware_core as fa
from flowaware_core.cluster.mesh import meshes, natural

DEVICE = fa.Device("card", fa.GIB, {"float32": 1e12}, 1e11)


def cluster(*levels: fa.Level) -> fa.Cluster:
    return fa.Cluster("c", DEVICE, levels)


def test_a_shared_link_is_divided_by_the_devices_behind_it() -> None:
    mesh = natural(cluster(fa.Level("node", 8, 8e9, 1e-6, shared=True), fa.Level("card", 4, 3e10, 1e-6)))
    assert mesh.names == ("node", "card") and mesh.num_devices == 32
    assert mesh.axes[0].bandwidth_bytes_per_s == 2e9 and mesh.axes[1].bandwidth_bytes_per_s == 3e10


def test_levels_of_one_vanish_and_one_device_keeps_an_axis() -> None:
    assert natural(cluster(fa.Level("node", 1, 1e9, 1e-6), fa.Level("card", 4, 1e9, 1e-6))).names == ("card",)
    assert natural(cluster(fa.Level("card", 1, 1e9, 1e-6))).sizes == (1,)


def test_meshes_split_levels_in_every_way_up_to_order() -> None:
    found = [mesh.sizes for mesh in meshes(cluster(fa.Level("card", 12, 1e9, 1e-6)))]
    assert found[0] == (12,)
    assert set(found) == {(12,), (6, 2), (4, 3), (3, 2, 2)}
    both = {mesh.sizes for mesh in meshes(cluster(fa.Level("node", 4, 1e9, 1e-6), fa.Level("card", 4, 1e9, 1e-6)))}
    assert both == {(4, 4), (2, 2, 4), (4, 2, 2), (2, 2, 2, 2)}


def test_numbers_of_devices_along_some_axes() -> None:
    (whole, *others) = meshes(cluster(fa.Level("node", 2, 1e9, 1e-6), fa.Level("card", 6, 1e9, 1e-6)))
    assert whole.products == {1, 2, 6, 12}
    assert [mesh.products for mesh in others] == [{1, 2, 3, 4, 6, 12}]


def test_resizing_names_unknown_axes() -> None:
    mesh = natural(cluster(fa.Level("card", 4, 1e9, 1e-6)))
    assert mesh.resized({"card": 2}).sizes == (2,)
    with pytest.raises(ValueError, match=r"\['node'\].*\['card'\]"):
        mesh.resized({"node": 2})


@pytest.mark.parametrize(
    "size, bandwidth, latency", [(0, 1e9, 1e-6), (2, -1e9, 1e-6), (2, 1e9, 0.0), (2, float("inf"), 1e-6)]
)
def test_impossible_levels_are_refused(size: int, bandwidth: float, latency: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        fa.Level("node", size, bandwidth, latency)
