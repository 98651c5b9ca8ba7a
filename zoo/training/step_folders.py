"""The folders of the steps: `20` is complete, `20.writing` is not, and nothing else counts.

Every change is one rename, so a kill at any moment leaves a step complete or absent. `tidy` sees to what is left:

    20.writing     being saved, or left by a save that was interrupted
    20.replaced    a complete step 20 that makes way for a newer one of the same number
    20.deleting    an old step on its way out
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from zoo.errors import UserError
from zoo.training import manifest

WRITING, REPLACED, DELETING = ".writing", ".replaced", ".deleting"


def complete(directory: Path) -> list[int]:
    """The complete steps below `directory`, ascending; empty when there is no such folder."""
    if not directory.is_dir():
        return []
    return sorted(int(folder.name) for folder in directory.iterdir() if is_complete(folder))


def is_complete(folder: Path) -> bool:
    return _is_number(folder.name) and (folder / manifest.NAME).is_file()


def begin(directory: Path, step: int, num_bytes: int) -> Path:
    """A fresh folder for the step being saved. Raises OSError, and UserError when the disk has no room for it."""
    tidy(directory)
    folder = directory / f"{step}{WRITING}"
    folder.mkdir(parents=True)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        folder.rmdir()
        need, have = (f"{size / 2**20:.1f} MiB" for size in (num_bytes, free))
        raise UserError(
            f"a checkpoint needs {need} in {directory}, where {have} are free; free some space or name another run_dir"
        )
    return folder


def publish(directory: Path, step: int) -> None:
    """Turns the folder that `begin` gave, now holding its manifest, into the complete step."""
    final, replaced = directory / str(step), directory / f"{step}{REPLACED}"
    if final.exists():
        final.rename(replaced)
    (directory / f"{step}{WRITING}").rename(final)
    _flush(directory)
    shutil.rmtree(replaced, ignore_errors=True)


def retire(directory: Path, steps: Iterable[int]) -> None:
    """Deletes complete steps."""
    for step in steps:
        doomed = directory / f"{step}{DELETING}"
        (directory / str(step)).rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def tidy(directory: Path) -> None:
    """Removes what interrupted saves left; a step that was about to be replaced comes back."""
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if not _is_number(path.stem) or path.suffix not in (WRITING, REPLACED, DELETING):
            continue
        if path.suffix == REPLACED and not (directory / path.stem).exists():
            path.rename(directory / path.stem)
        else:
            shutil.rmtree(path, ignore_errors=True)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name


def _flush(directory: Path) -> None:
    """Makes a rename last through a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
