"""Several processes as one run: who takes part, joining and leaving.

A process that loses a peer cannot go on: its next collective never ends, and JAX's own way out takes minutes and
aborts. So the launcher ends the others when one dies, and a process that fails leaves at once by `os._exit`.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping

import jax

from zoo.errors import UserError

INDEX, COUNT, COORDINATOR, LAUNCHED = "ZOO_PROCESS_INDEX", "ZOO_PROCESS_COUNT", "ZOO_COORDINATOR", "ZOO_LAUNCHED"


@dataclasses.dataclass(frozen=True)
class Group:
    """The processes of one run, seen from one of them.

    Attributes:
        index: which one this is, from 0.
        count: how many there are.
        coordinator: `host:port` where process 0 listens; None where JAX finds it by itself (SLURM).
        launched: whether `zoo.runtime.launcher` started this process.
    """

    index: int = 0
    count: int = 1
    coordinator: str | None = None
    launched: bool = False


def here(environ: Mapping[str, str] = os.environ) -> Group:
    """The group this process was started in: by our launcher or by hand (ZOO_PROCESS_*), by srun (SLURM_*), or alone.

    Raises:
        UserError: the variables contradict each other.
    """
    if COUNT in environ:
        return explicit(environ)
    # A batch script without srun is one process, whatever SLURM_NTASKS says; only a step's own variable counts.
    count = int(environ.get("SLURM_STEP_NUM_TASKS", "1"))
    if count > 1 and "SLURM_PROCID" in environ:
        return Group(int(environ["SLURM_PROCID"]), count)
    return Group()


def explicit(environ: Mapping[str, str]) -> Group:
    given = ", ".join(f"{name}={environ[name]}" for name in (COUNT, INDEX, COORDINATOR) if name in environ)
    try:
        index, count = int(environ.get(INDEX, "")), int(environ[COUNT])
    except ValueError:
        raise UserError(f"{given}: {COUNT} and {INDEX} must both be whole numbers") from None
    coordinator = environ.get(COORDINATOR)
    if not 0 <= index < count:
        raise UserError(f"{given}: {INDEX} must lie between 0 and {COUNT} - 1")
    if count > 1 and not coordinator:
        raise UserError(f"{given}: {COORDINATOR} is missing; give host:port of process 0, the same for all")
    return Group(index, count, coordinator, LAUNCHED in environ)


def join(group: Group) -> None:
    """Connects this process to its group; does nothing where it is alone.

    Must come before JAX starts a backend and before signal handlers are installed, which it would replace.
    """
    if group.count == 1:
        return
    # The older JAX leaves collectives between processes out of its CPU backend unless told.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if group.launched:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a lost peer makes JAX abort: no core file for that
        leave_with_parent()
    if group.coordinator is None:
        jax.distributed.initialize()
    else:
        jax.distributed.initialize(group.coordinator, group.count, group.index)


def leave_with_parent() -> None:
    """Ends this process when the one that started it is gone, even by SIGKILL: nobody would end it otherwise."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="leave-with-parent", daemon=True).start()


def leave(code: int, group: Group) -> None:
    """Ends this process with an exit code; a group that is done leaves together, a process that failed at once.

    Returns only where the process is alone: then it ends as any other.
    """
    if group.count == 1:
        return
    if code in (0, 75):
        jax.distributed.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the usual way out waits for peers that may be gone


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
