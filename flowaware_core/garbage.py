"""Python's search for reference cycles, held back while graphs of many small objects are built and walked."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Inside, nothing is searched for garbage: the objects here live on, and looking through them again and again takes as long as
    making them. Counted references are freed as ever.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
