"""Runs of the commands on a ResNet small enough to train in milliseconds; programs compiled once are kept for the session."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from zoo import train
from zoo.errors import exit_code

TINY = (
    "recipe=resnet50",
    "cluster=emulated",
    "cluster.n=4",
    "recipe.model.blocks=[1,1]",
    "recipe.model.width=8",
    "recipe.data.image_size=8",
    "recipe.data.global_batch=4",
    "recipe.data.readers=0",
    "recipe.optimizer.warmup_steps=2",
    "recipe.optimizer.learning_rate=0.002",
    "log_every=1",
)


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory):
    """The folder of compiled programs, for this process and the ones it starts."""
    if jax.__version_info__ < (0, 5):
        return {}  # a program that comes back from the cache aborts the process when it is run on several CPU devices
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@pytest.fixture(scope="session")
def command(compile_cache):
    """Runs `command(main, *words)` in this process, on its 8 devices, with the exit codes of a shell.

    `bare=True` leaves the options of the tiny ResNet out.
    """
    flags = os.environ["XLA_FLAGS"]
    assert (
        jax.device_count() == 8
    )  # starts the backend: a command's own number of devices comes too late for this process

    def run(main, *words, bare=False):
        out, err = io.StringIO(), io.StringIO()
        with caching(compile_cache), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = exit_code(main)([*(() if bare else TINY), *(str(word) for word in words)])
        os.environ["XLA_FLAGS"] = flags
        return Result(code, out.getvalue(), err.getvalue())

    return run


@contextlib.contextmanager
def caching(environ):
    """Sets in this process what these variables set in a new one, for a while."""
    kinds = {"dir": str, "secs": float, "bytes": int}
    wanted = {name.lower(): kinds[name.lower().rpartition("_")[2]](value) for name, value in environ.items()}
    before = {name: getattr(jax.config, name) for name in wanted}
    settle(wanted)
    try:
        yield
    finally:
        settle(before)


def settle(values):
    for name, value in values.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # it looks at its settings only once


@pytest.fixture(scope="session")
def start(root, compile_cache, tmp_path_factory):
    """Starts `python -m zoo.train` as a user would, from an empty folder."""
    running = []

    def start(*words):
        environ = {**os.environ, **compile_cache, "PYTHONPATH": str(root)}
        environ.pop("XLA_FLAGS")
        process = subprocess.Popen(
            [sys.executable, "-m", "zoo.train", *TINY, *(str(word) for word in words)],
            env=environ,
            cwd=tmp_path_factory.mktemp("cwd"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="session")
def straight(command, tmp_path_factory):
    """The run folder of ten steps without a stop, and how it went; not to be written to."""
    run_dir = tmp_path_factory.mktemp("straight") / "run"
    result = command(train.main, f"run_dir={run_dir}", "steps=10", "checkpoint_every=5", "eval_every=5")
    assert result.code == 0, result.err
    return run_dir, result


@pytest.fixture(scope="session")
def lines():
    """Reads metrics.jsonl, without what depends on the clock."""

    def lines(run_dir, split="train"):
        found = [json.loads(text) for text in (run_dir / "metrics.jsonl").read_text().splitlines()]
        timed = ("step_s", "examples_per_s")
        return [{key: line[key] for key in line if key not in timed} for line in found if line["split"] == split]

    return lines
