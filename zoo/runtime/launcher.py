"""Starts several processes of one command on this machine and watches them: `processes=2`.

Process 0 writes to the terminal. The others are silent; what they said on stderr is shown when one of them is the first
to fail. When one dies the launcher says which, gives the rest a moment to leave by themselves, and kills what is left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import IO

from zoo.errors import BUG, DONE, INTERRUPTED, STOPPED, UserError
from zoo.runtime.processes import COORDINATOR, COUNT, INDEX, LAUNCHED, Group, free_port, signal_name

GRACE_S = 10.0
"""How long the others may take to leave after one has failed."""

TOGETHER_S = 60.0
"""How long the others may take after one has ended well: they leave together, so more than a moment is a hang."""

ENDED_WELL = (DONE, STOPPED)


@dataclasses.dataclass(frozen=True)
class Worker:
    """One started process and the file that holds what it says; process 0 has the terminal instead."""

    index: int
    process: subprocess.Popen[bytes]
    said: IO[bytes] | None


@dataclasses.dataclass(frozen=True)
class Death:
    """The end of one process: its exit code, or minus the signal that killed it."""

    index: int
    code: int


def needed(processes: int, group: Group) -> bool:
    """Whether this process must start `processes` others instead of doing the work itself.

    Raises:
        UserError: it is one of several already, which somebody else started.
    """
    if group.launched or processes == 1:
        return False
    if group.count > 1:
        raise UserError(
            f"processes={processes}, but this is one of {group.count} processes already; leave processes out"
        )
    return True


def launch(command: Sequence[str], count: int, grace_s: float = GRACE_S) -> int:
    """Runs `count` processes of a command until all have ended; passes SIGINT and SIGTERM on to them.

    Args:
        command: program and arguments, such as `[sys.executable, "-m", "zoo.train", ...]`; each process finds its place
            in the group in its environment (`zoo.runtime.processes.here`).
        count: how many.
        grace_s: how long the others may take to leave after one has failed.

    Returns:
        The exit code they agree on; else that of the first to fail, or 1 where that one was killed.
    """
    address = f"127.0.0.1:{free_port()}"
    deaths: queue.Queue[Death] = queue.Queue()
    workers: list[Worker] = []
    with passing_on(workers) as signals:
        try:
            for index in range(count):
                place = {INDEX: str(index), COUNT: str(count), COORDINATOR: address, LAUNCHED: "1"}
                workers.append(start(command, index, {**os.environ, **place}))
                for number in signals:  # one that came while this process started
                    workers[-1].process.send_signal(number)
                threading.Thread(target=report, args=(workers[-1], deaths), daemon=True).start()
            ended = supervise(count, deaths, grace_s)
            return verdict(ended, workers, bool(signals))
        finally:
            for worker in workers:
                worker.process.kill()


def start(command: Sequence[str], index: int, environ: Mapping[str, str]) -> Worker:
    said = tempfile.TemporaryFile() if index else None  # noqa: SIM115 (read when the process has ended)
    # A session of its own: Ctrl-C in the terminal then reaches it once, through the launcher.
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
    )
    return Worker(index, process, said)


def report(worker: Worker, deaths: queue.Queue[Death]) -> None:
    deaths.put(Death(worker.index, worker.process.wait()))


@contextlib.contextmanager
def passing_on(workers: list[Worker]) -> Iterator[list[int]]:
    """Passes SIGINT and SIGTERM on to the workers; gives the list of those received so far."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for worker in workers:
            if worker.process.poll() is None:
                worker.process.send_signal(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def supervise(count: int, deaths: queue.Queue[Death], grace_s: float) -> list[Death]:
    """Waits until all `count` have ended, or the time after the first end is over; returns the ends in their order."""
    ended = [deaths.get()]
    deadline = time.monotonic() + TOGETHER_S
    while len(ended) < count:
        if ended[-1].code not in ENDED_WELL:
            deadline = min(deadline, time.monotonic() + grace_s)
        try:
            ended.append(deaths.get(timeout=max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            break
    return ended


def verdict(ended: Sequence[Death], workers: Sequence[Worker], signalled: bool) -> int:
    """The exit code of the whole, after saying on stderr what the user must know."""
    count, codes = len(workers), [death.code for death in ended]
    failed = [death for death in ended if death.code not in ENDED_WELL]
    if not failed:
        if len(ended) < count:
            late = sorted({worker.index for worker in workers} - {death.index for death in ended})
            say(f"processes {late} of {count} did not end within {TOGETHER_S:.0f} s of the others and were killed")
            return BUG
        return max(codes)
    first = failed[0]
    if signalled and first.code in (-signal.SIGINT, -signal.SIGTERM, INTERRUPTED):
        say("interrupted before there was anything to save")
        return INTERRUPTED
    said = workers[first.index].said
    if said is not None and Death(0, first.code) not in ended:  # process 0 says the same on the terminal
        said.seek(0)
        sys.stderr.write(said.read().decode(errors="replace"))
    if first.code < 0:
        say(f"process {first.index} of {count} died of {signal_name(-first.code)}; the others were ended")
        return BUG
    if first.code == BUG:
        say(f"process {first.index} of {count} failed; the others were ended")
    return first.code


def say(sentence: str) -> None:
    print(f"error: {sentence}", file=sys.stderr, flush=True)
