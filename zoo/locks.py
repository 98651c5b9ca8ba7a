"""A lock on a folder between processes: whoever holds it is alone with what lies in there."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# File systems without locks (some network mounts) say so with one of these; work there goes on without.
UNSUPPORTED = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)


@contextlib.contextmanager
def locked(place: Path, wait: bool = True) -> Iterator[bool]:
    """Makes the folder and holds its lock; afterwards the lock is gone, and the folder too where it stayed empty.

    The lock goes with its process, however that ends.

    Args:
        place: the folder.
        wait: for as long as another process holds the lock; otherwise the value is False at once where one does.
    """
    made = [folder for folder in (place, *place.parents) if not folder.exists()]
    path = place / ".lock"
    while (lock := _opened(path, wait)) is None:
        pass
    if not wait and lock.closed:
        yield False
        return
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)
        lock.close()
        with contextlib.suppress(OSError):  # not empty
            for folder in made:
                folder.rmdir()


def _opened(path: Path, wait: bool) -> IO[str] | None:
    """The locked file, or closed where another process holds it; None where that process has just removed it."""
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return file
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        file.close()
    except FileNotFoundError:
        pass
    return None
