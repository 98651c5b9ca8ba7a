"""Fetches a data set from its official source: `python -m zoo.data.download cifar10 --data-dir data`.

What was fetched stays in a .part file until it is whole and verified, so an interrupted download goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import http.client
import os
import shutil
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from zoo.data.cards import Archive, Card, card, verify
from zoo.errors import UserError, exit_code
from zoo.locks import locked

TIMEOUT_S = 20.0
ATTEMPTS = 5
CHUNK_BYTES = 1 << 20

Progress = Callable[[int], None]


def fetch(name: str, data_dir: Path) -> Path:
    """Downloads, verifies and unpacks a data set into `data_dir/name`; returns the folder with its files.

    Processes that ask for the same data set take turns, and all but the first find it there. A failure leaves nothing but
    what had arrived.

    Raises:
        UserError: no network, not enough space, or the source gives something else than the card says.
    """
    about = card(name)
    assert about.archive is not None, name
    place = data_dir / name
    folder = place / about.archive.folder
    with locked(place):
        if not folder.is_dir():
            archive = place / about.archive.url.rpartition("/")[2]
            if not archive.exists():
                _require_space(place, about.archive, archive)
                with _shown(archive.name, about.archive.bytes) as progress:
                    download(about.archive, archive, progress)
            elif (found := checksum(archive, about.archive.checksum)) != about.archive.checksum:
                raise UserError(
                    f"{archive} is not the file that {about.archive.url} gives: its checksum should be "
                    f"{about.archive.checksum} and is {found}; delete it and run this again"
                )
            _unpack(archive, about, folder)
            archive.unlink()
    return folder


def arrived(name: str, data_dir: Path) -> bool:
    """Whether the archive of a data set is below `data_dir`, so that `fetch` needs no network."""
    about = card(name)
    return about.archive is not None and (data_dir / name / about.archive.url.rpartition("/")[2]).exists()


def download(archive: Archive, target: Path, progress: Progress = lambda received: None) -> None:
    """Fetches one file, going on after interruptions; `target` appears only when it is whole and verified.

    Args:
        archive: where the file is, its size and its checksum.
        target: where it goes; `target` + ".part" holds what has arrived.
        progress: called with the number of bytes that are there.

    Raises:
        UserError: the server cannot be reached, or breaks off again and again, or the checksum is another.
    """
    part = target.with_name(target.name + ".part")
    reason = ""
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            if before < archive.bytes:
                _receive(archive, part, progress)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and not isinstance(
                error, urllib.error.URLError | ConnectionError | TimeoutError
            ):
                raise  # the disk, not the network
            reason = str(getattr(error, "reason", None) or error or type(error).__name__)
        if _size(part) >= archive.bytes:
            break
        if _size(part) <= before and reason:
            break  # nothing arrived: trying again at once is of no use
    if _size(part) < archive.bytes:
        raise UserError(
            f"{archive.url} cannot be fetched: {reason or 'the connection breaks off'}, after {_size(part):,} of "
            f"{archive.bytes:,} bytes; run the same command again to go on, or put the file at {target} yourself"
        )
    found = checksum(part, archive.checksum)
    if found != archive.checksum:
        part.unlink()  # going on from it would never succeed
        raise UserError(
            f"{archive.url} gave another file than expected: its checksum should be {archive.checksum} and is {found}; "
            "what had arrived is deleted; run the same command again"
        )
    os.replace(part, target)


def checksum(path: Path, like: str) -> str:
    """The checksum of a file, by the algorithm of `like`."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"


def _receive(archive: Archive, part: Path, progress: Progress) -> None:
    """One request: appends to `part` what the server sends, from where `part` ends."""
    offset = _size(part)
    request = urllib.request.Request(archive.url, headers={"Range": f"bytes={offset}-"} if offset else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {offset}-")
        if not resumed:
            offset = 0  # the server sends the file from its beginning
        with part.open("r+b" if resumed else "wb") as file:
            file.seek(offset)
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                offset += len(chunk)
                progress(offset)


def _unpack(archive: Path, about: Card, folder: Path) -> None:
    """Takes the files that the card lists out of the archive, and nothing else."""
    assert about.archive is not None
    building = folder.with_name(folder.name + ".part")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    with tarfile.open(archive) as tar:
        for member in tar:
            parent, _, name = member.name.removeprefix("./").rpartition("/")
            if parent != about.archive.folder or name not in about.files or not member.isfile():
                continue
            content: IO[bytes] | None = tar.extractfile(member)
            assert content is not None
            data = content.read()
            verify(archive, data, about.files[name], "delete it and run the same command again")
            (building / name).write_bytes(data)
    os.replace(building, folder)


def _require_space(place: Path, archive: Archive, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    needed = archive.bytes - _size(part) + archive.unpacked_bytes
    free = shutil.disk_usage(place).free
    if free < needed:
        raise UserError(
            f"{place} has {free / 2**20:,.0f} MiB free, but {needed / 2**20:,.0f} MiB are needed for {target.name} and "
            "its files; free some space or choose another data_dir"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@contextlib.contextmanager
def _shown(name: str, total: int) -> Iterator[Progress]:
    """Shows the progress as a bar, or as a line every tenth where the output is no terminal."""
    if not sys.stderr.isatty():
        yield _lines(name, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total)
        yield lambda received: bar.update(task, completed=received)


def _lines(name: str, total: int) -> Progress:
    shown = -1

    def progress(received: int) -> None:
        nonlocal shown
        tenth = received * 10 // total
        if tenth > shown:
            shown = tenth
            print(f"{name}: {received / 2**20:,.0f} of {total / 2**20:,.0f} MiB", file=sys.stderr, flush=True)

    return progress


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m zoo.data.download", description="Fetches a data set.")
    parser.add_argument("name", choices=["cifar10"])
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    options = parser.parse_args(argv)
    print(fetch(options.name, options.data_dir))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main)(sys.argv[1:]))
