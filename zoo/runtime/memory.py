"""The host's memory, as a process that computes on the processor uses it."""

from __future__ import annotations

import ctypes

# Of glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8


def keep_freed() -> bool:
    """Lets this process keep memory that it has freed, for what it allocates next; whether the C library can do that.

    By itself glibc gives large arrays back to the system as soon as they are freed. A training step frees and allocates the same
    gigabytes each time, and the system hands them out page by page, on one thread: a third of a step of BERT. Threads that start
    from now on share the one heap: the heaps of their own that they would have are given back whatever is asked for.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # no glibc
        return False
    return bool(mallopt(MMAP_MAX, 0) and mallopt(TRIM_THRESHOLD, -1) and mallopt(ARENA_MAX, 1))
