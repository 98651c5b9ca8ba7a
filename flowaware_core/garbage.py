"""Python's search for reference cycles, held back while graphs of many small objects are built and walked."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Inside, nothing is searched for garbage: the objects here live on, and looking through them again and again takes as long as
    making them. Counted references are freed as ever. What was made counts as old afterwards: a program of twice the length would
    else pay for the look through all of it as soon as the block ends.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation, without a look
            gc.enable()
