"""What a user can mend, and how every command turns the end of a run into an exit code.

0   done
1   our bug: the traceback is printed
2   the user can mend it: one sentence, no traceback
3   the plan does not fit in memory: says the nearest thing that would
4   some items of a list failed, the rest are done
75  stopped on a signal after saving: the same command goes on
130 interrupted before there was anything to save
"""

from __future__ import annotations

import errno
import functools
import sys
import traceback
from collections.abc import Callable

import flowaware_core as fa

DONE, BUG, USER, DOES_NOT_FIT, PARTLY, STOPPED, INTERRUPTED = 0, 1, 2, 3, 4, 75, 130

# Failures of the file system that the user can mend; the others are our bugs.
MENDABLE = {
    errno.ENOSPC: "free some space or name a directory on another disk",
    errno.EDQUOT: "free some of the quota or name a directory on another disk",
    errno.EROFS: "name a directory on a file system that can be written",
    errno.EACCES: "name a directory that you may read and write",
    errno.EPERM: "name a directory that you may read and write",
    errno.ENOTDIR: "a part of this path is a file; name a directory",
    errno.EISDIR: "this is a directory; name a file",
    errno.ENOENT: "name something that exists",
    errno.ENAMETOOLONG: "name something shorter",
}


class UserError(Exception):
    """What came, what is allowed, what to do: one sentence for the user, exit code 2."""


class PartlyFailed(Exception):
    """Some items of a list failed and the rest are done; the sentence says which. Exit code 4."""


class Stopped(Exception):
    """A signal ended the run after it saved; the sentence says at which step. Exit code 75."""


def exit_code(main: Callable[[list[str]], int]) -> Callable[[list[str]], int]:
    """Wraps a command: its exceptions become one line on stderr and the exit code of the table above.

    Example:
        sys.exit(exit_code(main)(sys.argv[1:]))
    """

    @functools.wraps(main)
    def guarded(argv: list[str]) -> int:
        try:
            return main(argv)
        except KeyboardInterrupt:
            return ended("interrupted before there was anything to save", INTERRUPTED)
        except BrokenPipeError:  # the reader of our output left, as `| head` does
            sys.stdout = None  # or the interpreter complains once more when it flushes
            return DONE
        except Exception as error:
            code = code_of(error)
            if code == BUG:
                traceback.print_exc()
                return BUG
            return ended(sentence_of(error), code)

    return guarded


def code_of(error: Exception) -> int:
    """The exit code that belongs to an exception."""
    if isinstance(error, UserError):
        return USER
    if isinstance(error, fa.DoesNotFit):
        return DOES_NOT_FIT
    if isinstance(error, PartlyFailed):
        return PARTLY
    if isinstance(error, Stopped):
        return STOPPED
    if isinstance(error, OSError) and error.errno in MENDABLE and error.filename is not None:
        return USER
    return BUG


def sentence_of(error: Exception) -> str:
    """What the user reads about an exception that is not our bug."""
    if isinstance(error, OSError) and error.errno is not None:
        return f"{error.filename}: {error.strerror}; {MENDABLE[error.errno]}"
    return str(error)


def ended(sentence: str, code: int) -> int:
    prefix = "stopped" if code in (STOPPED, INTERRUPTED) else "error"
    print(f"{prefix}: {sentence}", file=sys.stderr, flush=True)
    return code
