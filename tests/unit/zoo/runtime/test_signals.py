"""Signals as a wish to stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zoo.runtime.signals import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_remembered_and_the_handlers_come_back(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    with StopSignals() as stop:
        assert not stop.wanted()
        os.kill(os.getpid(), number)
        assert stop.wanted()
    assert {one: signal.getsignal(one) for one in before} == before


def test_the_second_signal_ends_the_process_at_once(root: Path) -> None:
    program = (
        "import os, signal\nfrom zoo.runtime.signals import StopSignals\n"
        "with StopSignals() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    print(stop.wanted(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    print('still here', flush=True)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root)
    assert (result.returncode, result.stdout) == (130, "True\n")
    assert "once more to leave at once" in result.stderr
