"""What is wrong with an input: where it stands, and why; collected, so that a user reads all of it at once."""

from __future__ import annotations

import dataclasses
import gzip
import lzma
import zlib
from collections.abc import Iterable
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Problem:
    """Attributes:
    file: where it stands.
    reason: what came, what is allowed.
    record: name of the sequence or structure.
    line, column: from 1.
    fatal: whether the item cannot be used; else it is a note on what was changed.
    """

    file: str
    reason: str
    record: str | None = None
    line: int | None = None
    column: int | None = None
    fatal: bool = True

    def __str__(self) -> str:
        place = self.file
        place += f", record {self.record}" if self.record else ""
        place += f", line {self.line}" if self.line else ""
        place += f", column {self.column}" if self.column else ""
        return f"{place}: {self.reason}"


def fatal(problems: Iterable[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem.fatal]


class Unreadable(Exception):
    """A file that is no text, or a damaged archive."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_text(path: Path) -> str:
    """The text of a file, which may be packed (.gz, .xz); a byte-order mark is left out and line ends are unified.

    Raises:
        Unreadable: it is no UTF-8 text, or a damaged archive, or it cannot be opened.
    """
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        elif data[:6] == b"\xfd7zXZ\0":
            data = lzma.decompress(data)
        text = data.decode("utf-8-sig")
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise Unreadable(Problem(str(path), f"a damaged archive ({error})")) from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        kind = "neither packed nor text" if path.suffix.lower() in (".gz", ".xz") else "not a text file (no UTF-8)"
        raise Unreadable(Problem(str(path), kind, line=line)) from None
    except OSError as error:
        raise Unreadable(Problem(str(path), error.strerror or "cannot be read")) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
