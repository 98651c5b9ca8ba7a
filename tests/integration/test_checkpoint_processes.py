"""Checkpoints across processes: killed while saving, two that write one, and the other version lane."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from zoo.training.checkpoints import Checkpoints

ROOT = Path(__file__).parents[2]
UNIT_TESTS = ROOT / "tests" / "unit" / "zoo" / "training"
SMALL = {"w": jax.ShapeDtypeStruct((64, 8), "float32"), "b": jax.ShapeDtypeStruct((3,), "float32")}


def child(code: str, *arguments: object, python: str = sys.executable, **environment: str) -> subprocess.Popen:
    """A Python process that sees the project and this module's environment."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(UNIT_TESTS)]), **environment}
    command = [python, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


FILE_LIMIT = """
import resource, sys, jax, numpy as np
from zoo.errors import UserError
from zoo.training.checkpoints import Checkpoints
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
checkpoints = Checkpoints(sys.argv[1])
checkpoints.save(1, {"w": np.ones(3)}, {})
try:
    checkpoints.save(2, {"w": jax.random.normal(jax.random.key(0), (400, 400))}, {})
    checkpoints.wait()
except UserError as error:
    print("user error:", error)
print(checkpoints.steps())
"""


def test_a_write_that_the_file_system_refuses_midway_leaves_nothing(tmp_path):
    """A limit on the size of files stands for a full disk: TensorStore meets it in the middle of an array."""
    output, _ = child(FILE_LIMIT, tmp_path).communicate(timeout=120)
    assert "user error: cannot save in" in output and "[1]" in output, output
    assert "Traceback" not in output and "WARNING" not in output, output
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


KILLED = """
import sys, time, jax
from zoo.training import checkpoints as module, manifest
checkpoints = module.Checkpoints(sys.argv[1])
state = {"w": jax.numpy.ones((64, 8)), "b": jax.numpy.ones(3)}
checkpoints.save(10, state, {})
checkpoints.wait()
manifest.write = lambda directory: (print("all but the manifest", flush=True), time.sleep(60))
print("saving", flush=True)
checkpoints.save(20, {"w": jax.random.normal(jax.random.key(0), (2048, 4096))}, {})
checkpoints.wait()
"""


@pytest.mark.parametrize("moment", ["saving", "the first array file", "all but the manifest"])
def test_killed_during_a_save_the_previous_step_is_chosen(tmp_path, moment):
    process = child(KILLED, tmp_path)
    awaited = "saving" if moment == "the first array file" else moment
    assert any(line.startswith(awaited) for line in process.stdout)
    while moment == "the first array file" and not list((tmp_path / "20.writing").glob("*arrays*/**/d/*")):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() == 10
    checkpoints.restore(10, SMALL)
    checkpoints.save(21, {"w": np.ones(3)}, {})
    checkpoints.wait()
    assert {path.name for path in tmp_path.iterdir()} == {"10", "21"}


FORGOTTEN = """
import sys, jax
from zoo.training.checkpoints import Checkpoints
Checkpoints(sys.argv[1]).save(10, {"w": jax.random.normal(jax.random.key(0), (1024, 1024)), "n": 3}, {})
"""
FAILED = """
checkpoints = Checkpoints(sys.argv[1])
checkpoints.save(20, {"w": jax.random.normal(jax.random.key(1), (1024, 1024)), "n": 3}, {})
raise ValueError("the training failed")
"""


@pytest.mark.parametrize("code", [FORGOTTEN, FORGOTTEN + FAILED], ids=["forgotten", "failed"])
def test_a_save_that_nobody_waits_for_is_completed_before_the_process_ends(tmp_path, code):
    process = child(code, tmp_path)
    output, _ = process.communicate(timeout=180)
    last = 20 if FAILED in code else 10
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest() == last, output
    checkpoints.verify(last)
    assert "closed" not in output and process.returncode == (1 if FAILED in code else 0), output


OTHER_SAVE = """
import sys
import jax
from test_checkpoints import META, Checkpoints, training_state
checkpoints = Checkpoints(sys.argv[1])
checkpoints.save(4, training_state(), META)
checkpoints.wait()
print("jax", jax.__version__)
"""
OTHER_RESTORE = """
import sys
from test_checkpoints import Checkpoints, abstract, assert_same, training_state
state = training_state()
found, meta = Checkpoints(sys.argv[1]).restore(4, abstract(state))
assert_same(found, state)
print("restored what jax", meta["versions"]["jax"])
"""


def other_lane(code: str, directory: Path) -> str:
    """Runs code with the other version lane; returns what it printed."""
    python = os.environ.get("ZOO_OTHER_PYTHON")
    if not python:
        pytest.skip("ZOO_OTHER_PYTHON names no Python with the other version lane")
    process = child(code, directory, python=python)
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    return output


def test_a_checkpoint_of_the_other_version_lane_restores_here(tmp_path):
    theirs = other_lane(OTHER_SAVE, tmp_path)
    output, _ = child(OTHER_RESTORE, tmp_path).communicate(timeout=180)
    assert "restored what " + theirs.split("\n")[-2] in output, output


def test_ours_restores_in_the_other_version_lane(tmp_path):
    ours, _ = child(OTHER_SAVE, tmp_path).communicate(timeout=180)
    assert "restored what " + ours.split("\n")[-2] in other_lane(OTHER_RESTORE, tmp_path)


FEWER_DEVICES = """
import sys, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from zoo.training.checkpoints import Checkpoints
assert len(jax.devices()) == 2
checkpoints = Checkpoints(sys.argv[1])
assert "over card=4" in checkpoints.describe(1), checkpoints.describe(1)
for count in (1, 2):
    place = NamedSharding(Mesh(np.array(jax.devices()[:count]), ("half",)), P("half"))
    found, _ = checkpoints.restore(1, {"w": jax.ShapeDtypeStruct((64, 8), "float32", sharding=place)})
    assert found["w"].sharding == place
    np.testing.assert_array_equal(found["w"], np.arange(512.0).reshape(64, 8))
found, _ = checkpoints.restore(1, {"w": jax.ShapeDtypeStruct((64, 8), "float32")})
assert set(found["w"].devices()) == {jax.devices()[0]}
print("restored")
"""


def test_what_was_saved_on_devices_that_are_not_here_restores_and_is_shown(tmp_path):
    """From the last four of eight devices to a process that has two: none of those named in the checkpoint exists there."""
    place = NamedSharding(Mesh(np.array(jax.devices()[4:8]), ("card",)), PartitionSpec("card"))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"w": jax.device_put(np.arange(512, dtype=np.float32).reshape(64, 8), place)}, {})
    checkpoints.wait()
    # Nor does it say of what kind they were, so that accelerators need not be there either.
    texts = [file.read_text(errors="ignore") for file in tmp_path.rglob("*") if file.is_file()]
    assert not [text for text in texts if jax.devices()[0].platform in text.lower()]
    process = child(FEWER_DEVICES, tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0 and "restored" in output, output


def pair(code: str, directory: Path) -> list[subprocess.Popen]:
    """Two processes of two devices each, that run the same code as one group."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return [child(code, directory, index, port, **flags) for index in (0, 1)]


TWO_PROCESSES = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_cpu_collectives_implementation", "gloo")
directory, index, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=index)
from zoo.errors import UserError
from zoo.training.checkpoints import Checkpoints
mesh = Mesh(np.array(jax.devices()), ("card",))
def make():
    key, w = jax.random.key(0), jax.numpy.arange(48.0).reshape(8, 6)
    return {"w": w, "b": jax.numpy.arange(6), "keys": jax.random.split(key, 4), "k": key}
place = {"w": P("card"), "b": P(), "keys": P("card"), "k": P()}
shardings = {name: NamedSharding(mesh, spec) for name, spec in place.items()}
state = {**jax.jit(make, out_shardings=shardings)(), "own": jax.numpy.float32(2.5), "host": np.arange(3)}
checkpoints = Checkpoints(directory, keep=2)
for step in (1, 2, 3):
    checkpoints.save(step, state, {"cursor": step})
checkpoints.wait()
assert checkpoints.steps() == [2, 3], checkpoints.steps()
shapes = jax.eval_shape(make)
abstract = {n: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=shardings[n]) for n, s in shapes.items()}
abstract |= {"own": jax.ShapeDtypeStruct((), "float32", sharding=NamedSharding(mesh, P())), "host": np.zeros(3, int)}
found, meta = checkpoints.restore(3, abstract)
data = lambda x: jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
for name in shardings:
    assert found[name].sharding.is_equivalent_to(shardings[name], found[name].ndim), name
    for one, other in zip(data(found[name]).addressable_shards, data(state[name]).addressable_shards):
        np.testing.assert_array_equal(one.data, other.data)
assert float(found["own"].addressable_shards[0].data) == 2.5 and meta["cursor"] == 3
try:
    Checkpoints("/proc/checkpoints").save(1, state, {})
except UserError as error:
    print("refused", index, error)
checkpoints.verify(2)
if index == 0:
    file = max((checkpoints.directory / "3" / "arrays").rglob("d/*"), key=lambda f: f.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])
from jax.experimental import multihost_utils
multihost_utils.sync_global_devices("damaged")
try:
    checkpoints.restore(3, abstract)
except UserError as error:
    print("damage", index, error)
print("done", index)
"""


@pytest.mark.smoke
def test_two_processes_write_one_checkpoint(tmp_path):
    processes = pair(TWO_PROCESSES, tmp_path)
    outputs = [process.communicate(timeout=180)[0] for process in processes]
    for index, output in enumerate(outputs):
        assert f"done {index}" in output, "\n".join(outputs)
        assert f"refused {index}" in output and "step 2 before it is good" in output, output
    assert "cannot save in /proc" in outputs[0] and "process 0 could not start" in outputs[1]
    (tmp_path / "3").rename(tmp_path / "0")  # the damaged one out of the way: one process reads what two wrote
    whole = {"w": np.zeros((8, 6), np.float32), "own": np.float32(0)}
    found, _ = Checkpoints(tmp_path).restore(2, whole, partial=True)
    np.testing.assert_array_equal(found["w"], np.arange(48.0).reshape(8, 6))
    files = json.loads((tmp_path / "2" / "manifest.json").read_text())["files"]
    assert any("ocdbt.process_1" in name for name in files)


ONE_FAILS = """
import os, resource, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_cpu_collectives_implementation", "gloo")
directory, index, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=index)
from zoo.errors import UserError
from zoo.training.checkpoints import Checkpoints
place = NamedSharding(Mesh(np.array(jax.devices()), ("card",)), P("card"))
state = {"w": jax.jit(lambda: jax.random.normal(jax.random.key(0), (400, 400)), out_shardings=place)()}
if index == 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
checkpoints = Checkpoints(directory)
checkpoints.save(1, state, {})
try:
    checkpoints.wait()
except UserError as error:
    print("user error:", error, flush=True)
    os._exit(2)
"""


def test_a_process_that_cannot_write_its_part_says_so_at_once(tmp_path):
    """The other one waits for that part; the launcher ends it when the first has left."""
    healthy, failing = pair(ONE_FAILS, tmp_path)
    try:
        output, _ = failing.communicate(timeout=500)
    finally:
        healthy.kill()
        failing.kill()
    assert failing.returncode == 2 and "user error: cannot save in" in output, output
    assert Checkpoints(tmp_path).steps() == []
