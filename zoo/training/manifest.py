"""The manifest of a directory: every file with its size and SHA-256, so that what is read is what was written.

    {"files": {"arrays/d/8e1f...": {"size": 664, "sha256": "..."}, ...}, "sha256": "<of the files object>"}

The manifest is written last: a directory without one is half-written. It holds a digest of itself, so that damage to
the manifest is not blamed on another file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

NAME = "manifest.json"
THREADS = 4  # hashing leaves the interpreter lock: one thread reads while the other computes


@dataclass(frozen=True)
class Entry:
    """What one file holds: size in bytes and the SHA-256 of its content in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Damage:
    """One file that is not what the manifest says; `reason` completes the sentence that `file` begins."""

    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file} {self.reason}"


def write(directory: Path) -> None:
    """Lists every file below `directory` in its manifest, which appears at once and whole. Raises OSError."""
    files = sorted(file for file in directory.rglob("*") if file.is_file() and file != directory / NAME)
    with ThreadPoolExecutor(THREADS) as pool:
        entries = list(pool.map(lambda file: _entry(file, durable=True), files))
    listed = {file.relative_to(directory).as_posix(): asdict(entry) for file, entry in zip(files, entries, strict=True)}
    temporary = directory / (NAME + ".tmp")
    with temporary.open("w") as out:
        json.dump({"files": listed, "sha256": _digest(listed)}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(directory / NAME)


def read(directory: Path) -> dict[str, Entry] | Damage:
    """The files that `directory` should hold, or what is wrong with the manifest itself."""
    try:
        content = json.loads((directory / NAME).read_bytes())
        files = {name: Entry(entry["size"], entry["sha256"]) for name, entry in content["files"].items()}
        intact = content["sha256"] == _digest(content["files"])
    except FileNotFoundError:
        return Damage(NAME, "is missing")
    except (ValueError, KeyError, TypeError, AttributeError):  # ValueError covers broken UTF-8 and broken JSON
        return Damage(NAME, "is not the JSON that was written")
    return files if intact else Damage(NAME, "does not have the digest that it names")


def damages(directory: Path, files: Iterable[tuple[str, Entry]]) -> list[Damage]:
    """Those of the files whose content differs from the manifest's, in the order given."""
    with ThreadPoolExecutor(THREADS) as pool:
        return [damage for damage in pool.map(lambda item: _damage(directory, *item), files) if damage is not None]


def _damage(directory: Path, name: str, expected: Entry) -> Damage | None:
    try:
        size = (directory / name).stat().st_size
        if size != expected.size:
            return Damage(name, f"has {size} bytes, the manifest says {expected.size}")
        found = _entry(directory / name)
    except FileNotFoundError:
        return Damage(name, "is missing")
    except OSError as error:
        return Damage(name, f"cannot be read ({error.strerror})")
    if found != expected:
        return Damage(name, f"has sha256 {found.sha256[:16]}..., the manifest says {expected.sha256[:16]}...")
    return None


def _entry(file: Path, durable: bool = False) -> Entry:
    with file.open("rb") as content:
        if durable:  # the manifest vouches for bytes that a power cut must not take back
            os.fsync(content.fileno())
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        return Entry(content.tell(), digest)


def _digest(files: dict) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
