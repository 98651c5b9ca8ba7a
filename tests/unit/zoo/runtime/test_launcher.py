"""The launcher with tiny processes; those that use JAX are in tests/integration/test_processes.py."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from zoo.errors import UserError
from zoo.runtime.launcher import launch, needed
from zoo.runtime.processes import Group

PLACE = "import os, sys, time, signal\nindex = int(os.environ['ZOO_PROCESS_INDEX'])\n"


def run(program: str, count: int = 2, grace_s: float = 0.5) -> int:
    return launch([sys.executable, "-c", PLACE + program], count, grace_s)


def test_processes_find_their_place_and_the_first_alone_speaks(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("print(index, os.environ['ZOO_PROCESS_COUNT'], os.environ['ZOO_COORDINATOR'].split(':')[0])", 3) == 0
    assert capfd.readouterr() == ("0 3 127.0.0.1\n", "")


@pytest.mark.parametrize(("codes", "together"), [((0, 0), 0), ((75, 75), 75), ((2, 2), 2), ((3, 3), 3)])
def test_a_code_they_agree_on_is_the_launchers(
    codes: tuple[int, int], together: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(f"sys.exit({codes}[index])") == together
    assert capfd.readouterr().err == ""


def test_a_killed_process_is_named_and_the_others_are_ended(capfd: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    assert run("os.kill(os.getpid(), signal.SIGKILL) if index == 1 else time.sleep(60)", 3) == 1
    assert time.monotonic() - begin < 20
    assert "process 1 of 3 died of SIGKILL; the others were ended" in capfd.readouterr().err


def test_what_a_silent_process_said_is_shown_when_it_fails_first(capfd: pytest.CaptureFixture[str]) -> None:
    said = "print('error: file b is broken', file=sys.stderr); sys.exit(2)"
    assert run(f"exec({said!r}) if index == 1 else time.sleep(60)") == 2
    assert capfd.readouterr().err == "error: file b is broken\n"


def test_a_bug_keeps_its_traceback_and_names_the_process(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("assert index == 0; time.sleep(60)") == 1
    said = capfd.readouterr().err
    assert "AssertionError" in said and "process 1 of 2 failed" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_every_process(number: signal.Signals, root: Path, tmp_path: Path) -> None:
    worker = PLACE + (
        "from pathlib import Path\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, lambda n, frame: ((folder / f'{index}-{n}').touch(), sys.exit(75)))\n"
        "(folder / f'ready{index}').touch()\ntime.sleep(60)"
    )
    program = (
        f"import sys\nfrom zoo.runtime.launcher import launch\nsys.exit(launch([sys.executable, '-c', {worker!r}], 2))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", program], cwd=root)
    wait_for(lambda: len(list(tmp_path.glob("ready*"))) == 2)
    launcher.send_signal(number)
    assert launcher.wait(timeout=30) == 75
    assert sorted(path.name for path in tmp_path.glob("?-*")) == [f"{index}-{int(number)}" for index in range(2)]


def test_who_launches() -> None:
    assert needed(2, Group()) and not needed(1, Group())
    assert not needed(2, Group(1, 2, "localhost:1", launched=True))
    with pytest.raises(UserError, match="one of 4 processes already"):
        needed(2, Group(0, 4, "host:1"))


def wait_for(condition, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
