"""The host's memory, as a process that computes on the processor uses it."""

from __future__ import annotations

import ctypes
import mmap
import os

# Of glibc's malloc.h.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
HUGE_PAGE = 2**21


def keep_freed() -> bool:
    """Lets this process keep memory that it has freed, for what it allocates next; whether the C library can do that.

    By itself glibc gives large arrays back to the system as soon as they are freed. A training step frees and allocates the same
    gigabytes each time, and the system hands them out page by page, on one thread: a third of a step of BERT. Threads that start
    from now on share the one heap: the heaps of their own that they would have are given back whatever is asked for. What the heap
    gets from now on lies on huge pages where the system has them: products read matrices across thousands of small pages, whose
    addresses cost a sixth of a step of BERT to look up.
    """
    try:
        library = ctypes.CDLL(None)
        mallopt = library.mallopt
    except (OSError, TypeError, AttributeError):  # no glibc
        return False
    kept = bool(mallopt(MMAP_MAX, 0) and mallopt(TRIM_THRESHOLD, -1) and mallopt(ARENA_MAX, 1))
    if kept:
        _ask_for_huge_pages(library)
    return kept


def _ask_for_huge_pages(library: ctypes.CDLL) -> None:
    # Advice holds for addresses that are mapped already. So the heap grows by most of the memory at once, which takes none of it
    # before it is written to, is advised, and is freed: what is allocated later comes from there.
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE * 3 // 4
    while size > 2**30:
        if place := library.malloc(size):
            start = -(-place // HUGE_PAGE) * HUGE_PAGE
            library.madvise(start, place + size - start, mmap.MADV_HUGEPAGE)
            library.free(place)
            return
        size //= 2  # a limit on this process's memory
