"""Ctrl-C and SIGTERM as a wish to stop: the run saves and ends by itself, with exit code 75.

Install after `processes.join`: jax.distributed.initialize puts a handler of its own on SIGTERM.
"""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType

from zoo.errors import INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """While it is entered, the first signal is remembered and the second one ends the process at once.

    This is one process' own wish; several must agree on the step to stop at.

    Example:
        with StopSignals() as stop:
            while not stop.wanted():
                step()
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, object] = {}

    def wanted(self) -> bool:
        """Whether a signal has come."""
        return self._received is not None

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python; it cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            os._exit(INTERRUPTED)
        self._received = number
        name = signal.Signals(number).name
        # os.write, since a handler may run in the middle of a print; 2 is stderr
        os.write(2, f"{name}: saving, then stopping; once more to leave at once\n".encode())
