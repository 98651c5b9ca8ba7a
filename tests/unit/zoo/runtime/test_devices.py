"""Which devices a command runs on; those that change a process run in one of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from zoo.clusters import ClusterConfig
from zoo.config import choices, compose
from zoo.errors import UserError
from zoo.runtime import devices
from zoo.runtime.devices import Found, detected, free_host_memory, known_device, settle, xla_flags
from zoo.runtime.processes import Group

GIB = 2**30


def cluster(*overrides: str) -> ClusterConfig:
    return compose(["recipe=resnet50", *overrides]).cluster


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Keeps this process as it is; the list receives the numbers of virtual devices asked for."""
    asked: list[int] = []
    monkeypatch.setattr(devices, "emulate", asked.append)
    return asked


def test_flags_that_were_given_stay_and_win() -> None:
    assert xla_flags("", 4, timeouts=False) == "--xla_force_host_platform_device_count=4"
    given = "--xla_dump_to=/tmp/x --xla_force_host_platform_device_count=2"
    assert xla_flags(given, 4, timeouts=False) == "--xla_dump_to=/tmp/x --xla_force_host_platform_device_count=4"
    ours = "--xla_cpu_collective_call_terminate_timeout_seconds=7"
    flags = xla_flags(ours, 4, timeouts=True).split()
    assert ours in flags and sum("terminate_timeout" in flag for flag in flags) == 1
    assert any("warn_stuck_timeout" in flag for flag in flags)


@pytest.mark.parametrize("count", [3, 32])
def test_emulation_gives_a_process_its_devices(count: int, root: Path) -> None:
    program = (
        f"from zoo.runtime.devices import emulate; emulate({count})\n"
        "import jax, jax.numpy as jnp\n"
        "total = jax.pmap(lambda x: jax.lax.psum(x, 'i'), 'i')(jnp.ones(jax.device_count()))\n"
        "print(jax.default_backend(), jax.device_count(), float(total[0]))"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True)
    assert result.stdout.split() == ["cpu", str(count), str(float(count))]


def test_an_emulated_cluster_is_virtual_devices_shared_among_processes(untouched: list[int]) -> None:
    machine = settle(cluster("cluster=emulated", "cluster.n=8"), Group())
    assert (machine.level, machine.cluster.num_devices) == ("emulated", 8)
    settle(cluster("cluster=emulated", "cluster.n=8"), Group(1, 2, "localhost:1", launched=True))
    assert untouched == [8, 4]


def test_a_cluster_that_is_not_here_is_rehearsed(untouched: list[int]) -> None:
    machine = settle(cluster("cluster=dcu32"), Group())
    assert (
        machine.level == "emulated"
        and untouched == [32]
        and "1 x cpu" in machine.sentence
        and "32 x DCU" in machine.sentence
    )


@pytest.mark.parametrize(
    ("found", "group", "here"),
    [
        (Found("gpu", "NVIDIA H200", 8, 140 * GIB), Group(), True),
        (Found("gpu", "NVIDIA H200", 4, 140 * GIB), Group(0, 2, "host:1"), True),
        (Found("gpu", "NVIDIA H200", 4, 140 * GIB), Group(), False),
        (Found("gpu", "NVIDIA A100", 8, 80 * GIB), Group(), False),
    ],
)
def test_a_cluster_is_here_when_kind_and_number_agree(
    found: Found, group: Group, here: bool, untouched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "look", lambda: found)
    machine = settle(cluster("cluster=h200x8"), group)
    assert (machine.level == "cluster", bool(untouched)) == (here, not here)


def test_launched_processes_do_not_share_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "look", lambda: Found("gpu", "NVIDIA H200", 4, 140 * GIB))
    with pytest.raises(UserError, match="srun"):
        settle(cluster("cluster=local"), Group(0, 2, "localhost:1", launched=True))


def test_devices_must_divide_among_the_processes() -> None:
    with pytest.raises(UserError, match=r"processes=3: .*choose one of 1, 2, 4, 8, 16, 32"):
        settle(cluster("cluster=dcu32"), Group(0, 3, "localhost:1", launched=True))


def test_local_takes_rates_from_the_file_that_knows_the_kind() -> None:
    found = Found("gpu", "NVIDIA H200", 2, 139 * GIB)
    one, two = (detected(cluster("cluster=local"), found, group) for group in (Group(), Group(0, 2, "host:1")))
    assert one.device.peak_flops_per_s["bfloat16"] == 9.89e14 and one.device.memory_bytes == 139 * GIB
    assert [level.name for level in one.levels] == ["card"] and one.num_devices == 2
    assert [level.name for level in two.levels] == ["node", "card"] and two.num_devices == 4
    unknown = detected(cluster("cluster=local"), Found("gpu", "Nobody's", 1, 0), Group())
    assert unknown.device.kind == "Nobody's" and unknown.device.memory_bytes == 16 * GIB


def test_every_described_kind_is_found_by_its_own_name() -> None:
    for name in choices("cluster"):
        config = cluster(f"cluster={name}")
        if config.kind != "detected":
            device = known_device(f"Maker's {config.device.kind} 1")
            assert device is not None and device.kind == config.device.kind


def test_local_without_accelerators_is_the_processor(untouched: list[int]) -> None:
    machine = settle(cluster("cluster=local"), Group())
    assert machine.cluster.num_devices == 1 and machine.cluster.device.kind == "cpu"
    assert 0 < machine.cluster.device.memory_bytes <= psutil.virtual_memory().total
    assert untouched == [1] and machine.level == "cluster"


def test_the_look_at_the_devices_is_one_line_of_json(root: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "zoo.runtime.look"], capture_output=True, text=True, cwd=root, check=True
    )
    assert json.loads(result.stdout)["count"] == 8  # those of the tests


def test_free_memory_is_a_part_of_the_whole() -> None:
    assert 0 < free_host_memory() <= psutil.virtual_memory().total
