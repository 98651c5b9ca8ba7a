"""Freed memory stays with the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Figures of mallinfo2: bytes of the heap, then what is mapped beside it, last what a trim would give back.
CODE = """
import ctypes
from zoo.runtime.memory import keep_freed
c = ctypes.CDLL(None)
if not hasattr(c, "mallinfo2"):
    raise SystemExit("no mallinfo2")
class Facts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "heap ordblks smblks hblks mapped usmblks fsmblks used free top".split()]
c.mallinfo2.restype, c.malloc.restype, c.malloc.argtypes = Facts, ctypes.c_void_p, [ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
def mapped_and_kept():
    place = c.malloc(2**28)
    mapped = c.mallinfo2().mapped
    c.free(place)
    return mapped >= 2**28, c.mallinfo2().heap >= 2**28
print(mapped_and_kept(), keep_freed(), mapped_and_kept())
"""


def test_large_arrays_come_from_what_was_freed(root: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, timeout=120)
    if "no mallinfo2" in ran.stderr:
        pytest.skip("the C library is no glibc of 2.33 or later")
    assert ran.stdout.split("\n")[0] == "(True, False) True (False, True)", ran.stdout + ran.stderr


# Pages that a thread is handed for 32 MiB, which it had before.
THREAD = """
import ctypes, resource, sys, threading
from zoo.runtime.memory import keep_freed
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
c.free.argtypes, c.memset.argtypes = [ctypes.c_void_p], [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
kept = sys.argv[1] == "kept" and keep_freed()
def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    place = c.malloc(2**25)
    c.memset(place, 1, 2**25)
    c.free(place)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
found = []
thread = threading.Thread(target=lambda: found.extend([pages(), pages()]))
thread.start()
thread.join()
print(kept, found[1])
"""


def test_threads_keep_what_they_freed_too(root: Path) -> None:
    pages = {}
    for word in ("kept", "left"):
        ran = subprocess.run(
            [sys.executable, "-c", THREAD, word], cwd=root, capture_output=True, text=True, timeout=120, check=True
        )
        kept, count = ran.stdout.split()
        pages[word] = int(count)
        if word == "kept" and kept == "False":
            pytest.skip("the C library is no glibc")
    assert pages["kept"] < 100 < 4000 < pages["left"]


# Whether the pages in the middle of 64 MiB are asked for as huge ones ("hg" in the flags of where they lie).
HUGE = """
import ctypes
from zoo.runtime.memory import keep_freed
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
kept = keep_freed()
place = c.malloc(2**26)
inside = False
for line in open("/proc/self/smaps"):
    words = line.split()
    if "-" in words[0] and not words[0].endswith(":"):
        first, last = (int(word, 16) for word in words[0].split("-"))
        inside = first <= place + 2**25 < last
    elif inside and words[0] == "VmFlags:":
        print(kept, "hg" in words)
"""


def test_large_arrays_lie_on_huge_pages(root: Path) -> None:
    offered = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not offered.exists() or "[never]" in offered.read_text():
        pytest.skip("this system has no huge pages to offer")
    ran = subprocess.run(
        [sys.executable, "-c", HUGE], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    if ran.stdout.startswith("False"):
        pytest.skip("the C library is no glibc")
    assert ran.stdout == "True True\n", ran.stdout + ran.stderr


LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from zoo.runtime.memory import keep_freed
print(keep_freed(), len(bytearray(2**27)))
"""


def test_a_limit_on_a_process_s_memory_is_no_hindrance(root: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED], cwd=root, capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.endswith(f" {2**27}\n"), ran.stdout + ran.stderr
