"""Two real processes of two virtual devices each: a collective, an agreed stop, a lost peer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROLOGUE = """
import os, signal, sys, time
from pathlib import Path
from zoo.clusters import ClusterConfig
from zoo.config import compose
from zoo.runtime import devices, processes
from zoo.runtime.signals import StopSignals
group = processes.here()
machine = devices.settle(compose(["recipe=resnet50", "cluster=emulated", "cluster.n=DEVICES"]).cluster, group)
processes.join(group)
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
split = NamedSharding(Mesh(np.asarray(jax.devices()), ("card",)), PartitionSpec("card"))
whole = NamedSharding(split.mesh, PartitionSpec())
total = jax.jit(lambda x: x.sum(), out_shardings=whole)
def summed(value):
    rows = np.full(1, value, np.float32)
    return float(total(jax.make_array_from_callback((4,), split, lambda _: rows)))
"""


def started(folder: Path, root: Path, body: str, devices: int = 4) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(PROLOGUE.replace("DEVICES", str(devices)) + body)
    launcher = (
        "import sys; from zoo.runtime.launcher import launch\n"
        f"sys.exit(launch([sys.executable, {str(folder / 'program.py')!r}], 2))"
    )
    environ = {**os.environ, "PYTHONPATH": str(root), "FOLDER": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", launcher],
        cwd=folder,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_two_processes_add_up_over_four_devices(tmp_path: Path, root: Path) -> None:
    body = "print(jax.process_count(), jax.device_count(), summed(group.index + 1.0))\nprocesses.leave(0, group)"
    process = started(tmp_path, root, body)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and out.splitlines()[-1] == "2 4 6.0", err  # the lines before are gloo's


@pytest.mark.parametrize("victim", [0, 1])
def test_when_one_process_dies_the_other_is_ended(victim: int, tmp_path: Path, root: Path) -> None:
    body = f"""
step = 0
while True:
    summed(1.0)
    step += 1
    if step == 5 and group.index == {victim}:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    begin = time.monotonic()
    process = started(tmp_path, root, body)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1 and f"process {victim} of 2 died of SIGKILL; the others were ended" in err
    assert time.monotonic() - begin < 60
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]  # and no core file


def test_a_process_that_fails_takes_the_other_along(tmp_path: Path, root: Path) -> None:
    body = """
from zoo.errors import UserError, exit_code
def main(argv):
    for step in range(10**6):
        summed(1.0)
        if step == 5 and group.index == 1:
            raise UserError("file b is broken; download it again")
    return 0
processes.leave(exit_code(main)([]), group)
"""
    process = started(tmp_path, root, body)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2 and err.splitlines()[-1] == "error: file b is broken; download it again"


def test_handlers_installed_after_joining_receive_the_signal(tmp_path: Path, root: Path) -> None:
    body = """
folder = Path(os.environ["FOLDER"])
with StopSignals() as stop:
    (folder / f"ready{group.index}").touch()
    step = 0
    while not summed(float(stop.wanted())):
        step += 1
    (folder / f"stopped{group.index}").write_text(str(step))
processes.leave(75, group)
"""
    process = started(tmp_path, root, body)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("ready*"))) < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    steps = {path.read_text() for path in tmp_path.glob("stopped*")}
    assert len(list(tmp_path.glob("stopped*"))) == 2 and len(steps) == 1


def test_processes_do_not_outlive_a_killed_launcher(tmp_path: Path, root: Path) -> None:
    body = """
Path(os.environ["FOLDER"], f"pid{group.index}").write_text(str(os.getpid()))
while True:
    summed(1.0)
"""
    process = started(tmp_path, root, body)
    deadline = time.monotonic() + 60
    while len(pids := [path for path in tmp_path.glob("pid*") if path.read_text()]) < 2:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.kill()
    deadline = time.monotonic() + 20
    while any(alive(int(path.read_text())) for path in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
