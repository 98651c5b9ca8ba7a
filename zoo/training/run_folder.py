"""The folder of one run: its files, checked before anything is planned and each written whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.errors import UserError
from zoo.locks import locked

KEPT_FREE_BYTES = 64 * 2**20
"""What a disk must hold beyond the run's own files: a file system filled to the last byte breaks more than this run."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """What a run writes, and where.

    Attributes:
        path: the folder; it comes into being with the first file.
        writes: whether this process writes; of several processes only the first one does.
    """

    path: Path
    writes: bool = True

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps other runs out of the folder meanwhile.

        Raises:
            UserError: another run is at work in it.
        """
        if not self.writes:
            yield
            return
        with locked(self.path, wait=False) as free:
            if not free:
                raise UserError(f"run_dir={self.path} is in use by another run; wait for it or give another run_dir")
            yield

    def write(self, name: str, content: str | bytes | Mapping[str, Any]) -> None:
        """Writes one file of text, bytes or JSON; a reader sees the old content or the new one, never a part.

        Raises:
            UserError: the file system refuses it.
        """
        if not self.writes:
            return
        text = content if isinstance(content, str | bytes) else json.dumps(content, indent=1) + "\n"
        target = self.path / name
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            replace(target, text)
        except OSError as error:
            raise UserError(
                f"cannot write {target}: {error.strerror}; free some space or give another run_dir"
            ) from error

    def set_aside(self, step: int) -> Path | None:
        """Moves what an earlier run left beyond `step` into `earlier-N`: checkpoints; for step 0 metrics, events too.

        Returns:
            Where it went, or None when there was nothing.
        """
        found = self.checkpoints.iterdir() if self.checkpoints.is_dir() else ()
        beyond = [path for path in found if path.name.isdecimal() and int(path.name) > step]
        lines = [path for path in (self.metrics, self.events) if path.exists() and step == 0]
        if not self.writes or not (beyond or lines):
            return None
        number = 1
        while (place := self.path / f"earlier-{number}").exists():
            number += 1
        (place / "checkpoints").mkdir(parents=True)
        for path in beyond:
            path.rename(place / "checkpoints" / path.name)
        for path in lines:
            path.rename(place / path.name)
        return place


def replace(target: Path, content: str | bytes) -> None:
    """Puts `content` into `target` in one move, by way of a file beside it."""
    descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(draft, 0o644)
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def check_place(path: Path, needed_bytes: int = 0, option: str = "run_dir") -> None:
    """Makes sure that a run can write into `path`, leaving nothing behind.

    Args:
        path: the future run folder; it need not exist.
        needed_bytes: what the run's largest files will take.
        option: which names it.

    Raises:
        UserError: it lies below a file, may not be written, or its disk is too full.
    """
    ground = path
    while not ground.exists() and not ground.is_symlink():
        ground = ground.parent
    if not ground.is_dir():
        raise UserError(f"{option}={path}: {ground} is a file; give a folder, such as {option}=runs/mine")
    try:
        with tempfile.NamedTemporaryFile(dir=ground, prefix=".zoo-") as probe:
            probe.write(bytes(4096))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise UserError(
            f"{option}={path} cannot be written ({error.strerror}); give a folder that you may write"
        ) from error
    free = shutil.disk_usage(ground).free
    if free < needed_bytes + KEPT_FREE_BYTES:
        raise UserError(
            f"{option}={path} has {free / 2**30:.2f} GiB of free disk, and this run needs "
            f"{(needed_bytes + KEPT_FREE_BYTES) / 2**30:.2f} GiB; free some space or give a folder on another disk"
        )
