"""Every way of writing groups of devices, against the groups written out by hand."""

import pytest

from flowaware_core.hlo.groups import pairs, replica_groups

ROWS = ((0, 1, 2, 3), (4, 5, 6, 7))
COLUMNS = ((0, 4), (1, 5), (2, 6), (3, 7))
ALL = (tuple(range(8)),)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", ROWS),
        ("replica_groups={{0,4},{1,5},{2,6},{3,7}}", COLUMNS),
        ("replica_groups={}", ALL),
        ("replica_groups=[1,8]<=[8]", ALL),
        ("replica_groups=[2,4]<=[8]", ROWS),
        ("replica_groups=[4,2]<=[8]", ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("replica_groups=[4,2]<=[2,4]T(1,0)", COLUMNS),
        ("replica_groups=[4,2]<=[2,2,2]T(0,2,1)", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("replica_groups=mesh['axis_0'=8,'axis_1'=1] {'axis_0'}", ALL),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", ROWS),
        ("replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", COLUMNS),
        ("replica_groups=mesh['a'=2,'b'=4] {'b','a'}", ((0, 4, 1, 5, 2, 6, 3, 7),)),
        ("replica_groups=mesh['a'=1,'b'=4,'c'=2], device_ids=([2,4]T(1,0)) {'b'}", ROWS),
        (
            "replica_groups=mesh['a'=2,'b'=2,'c'=2], device_ids=([2,2,2]T(1,0,2)) {'a'}",
            ((0, 2), (1, 3), (4, 6), (5, 7)),
        ),
        ("replica_groups=mesh['a'=2,'b'=4], device_ids=(7,6,5,4,3,2,1,0) {'b'}", ((7, 6, 5, 4), (3, 2, 1, 0))),
        ("replica_groups=mesh['a'=8] {'a':(1)2}", COLUMNS),
        ("replica_groups=mesh['a'=8] {'a':(2)4}", ROWS),
        ("replica_groups=mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("replica_groups=mesh['a'=8] {'a':(1)2,'a':(4)2}", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("replica_groups=mesh[x=2,y=4] {y}", ROWS),
        ("dimensions={0}", None),
    ],
)
def test_replica_groups(text, groups):
    assert replica_groups(f"channel_id=1, {text}, use_global_device_ids=true", 8) == groups


def test_pairs_of_a_permute():
    assert pairs("channel_id=1, source_target_pairs={{0,1},{1,2},{3,0}}, metadata={}") == ((0, 1), (1, 2), (3, 0))
    assert pairs("source_target_pairs={}") == ()
    assert pairs("dimensions={0}") is None
