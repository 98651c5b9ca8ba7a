"""What the processes of one run settle among themselves; with one process nothing is sent.

These functions run a collective: all processes call them from their main thread, in the same order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils

from zoo.errors import UserError


def smallest(value: int) -> int:
    """The smallest of the values that the processes give."""
    return min(_gathered(value))


@contextlib.contextmanager
def all_or_none(what: str) -> Iterator[None]:
    """The body succeeds on all processes or raises on all: none waits alone at a barrier for the others."""
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        error = caught
    failed = _gathered(int(error is not None))
    if error is not None:
        raise error
    if any(failed):
        raise UserError(f"process {failed.index(1)} could not {what}; its message says why")


def _gathered(value: int) -> list[int]:
    if jax.process_count() == 1:
        return [value]
    return np.ravel(multihost_utils.process_allgather(np.asarray(value, np.int32))).tolist()
