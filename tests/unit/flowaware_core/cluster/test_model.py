"""What a device says of its host is kept where it is said, and assumed where it is not."""

from __future__ import annotations

import dataclasses

import pytest

import flowaware_core as fa

CARD = fa.Device("card", fa.GIB, {"float32": 1e13}, 1e12)


def cluster(device: fa.Device) -> fa.Cluster:
    return fa.Cluster("mine", device, (fa.Level("card", 2, 1e10, 1e-6),))


def test_clusters_without_hosts_read_and_write_as_before() -> None:
    tree = cluster(CARD).to_json()
    assert set(tree["device"]) == {
        "kind",
        "memory_bytes",
        "peak_flops_per_s",
        "memory_bandwidth_bytes_per_s",
        "usable_fraction",
    }
    assert fa.Cluster.from_json(tree) == cluster(CARD)


@pytest.mark.parametrize("field", ["host_memory_bytes", "host_bandwidth_bytes_per_s"])
def test_a_described_host_is_kept_and_checked(field: str) -> None:
    described = cluster(dataclasses.replace(CARD, **{field: 12345}))
    assert described.to_json()["device"][field] == 12345
    assert fa.Cluster.from_json(described.to_json()) == described
    with pytest.raises(ValueError, match=f"{field}=-1"):
        dataclasses.replace(CARD, **{field: -1})
