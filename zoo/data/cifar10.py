"""CIFAR-10 from its official files, binary or Python, whole or in part, plain or compressed by gzip.

Reference: Alex Krizhevsky. Learning Multiple Layers of Features from Tiny Images. 2009.
"""

from __future__ import annotations

import dataclasses
import gzip
import re
import zlib
from pathlib import Path

import numpy as np

from zoo.data import pickled_batch
from zoo.data.cards import card, verify
from zoo.data.images import ArrayExamples, ImageDataset
from zoo.errors import UserError

NAME = "cifar10"
# Where the files may be below data_dir, the first place that has some wins.
FOLDERS = (
    "cifar10/cifar-10-batches-bin",
    "cifar10/cifar-10-batches-py",
    "cifar10",
    "cifar-10-batches-bin",
    "cifar-10-batches-py",
    ".",
)
BATCH = re.compile(r"(?P<kind>data|test)_batch(_\w+)?(\.bin)?(\.gz)?")
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
ADVICE = "delete it and get it again; a part of your own needs a name of its own, such as data_batch_1_part.bin"


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of both splits, in the order in which they are read."""

    train: tuple[Path, ...]
    test: tuple[Path, ...]


def find(data_dir: Path) -> Files | None:
    """The files of CIFAR-10 below `data_dir`; None where no folder has any.

    Raises:
        UserError: the first folder that has some has only one of the splits.
    """
    for folder in FOLDERS:
        place = data_dir / folder
        names = sorted(path.name for path in place.iterdir() if path.is_file()) if place.is_dir() else []
        matches = [match for match in map(BATCH.fullmatch, names) if match]
        train, test = (tuple(place / m.string for m in matches if m["kind"] == kind) for kind in ("data", "test"))
        if train and test:
            return Files(train, test)
        if train or test:
            here, missing = (train, "test_batch") if train else (test, "data_batch_1 to data_batch_5")
            raise UserError(
                f"{here[0]} is there, but no {missing} beside it; put the missing files there, or delete "
                f"{'it' if len(here) == 1 else 'all ' + str(len(here))} and get the whole set again"
            )
    return None


def open_cifar10(files: Files) -> ImageDataset:
    """Reads all files into memory, 184 MB for the whole set.

    Raises:
        UserError: a file is damaged or is no batch of images; its name and both checksums are given.
    """
    about = card(NAME)
    train, test = (_read_all(paths, about.files) for paths in (files.train, files.test))
    found, whole = (len(train), len(test)), (about.splits["train"], about.splits["test"])
    part = "" if found == whole else f", a part: {found[0]:,} of {whole[0]:,} and {found[1]:,} of {whole[1]:,} images"
    return ImageDataset(
        name=NAME,
        train=train,
        test=test,
        mean=about.mean,
        std=about.std,
        classes=about.classes,
        announcement=f"data: CIFAR-10 from {files.train[0].parent}{part}",
    )


def read_file(path: Path, checksums: dict[str, str]) -> ArrayExamples:
    """The images and labels of one batch file.

    Args:
        path: *.bin is the binary layout, anything else the Python layout; either may end in .gz.
        checksums: file name -> checksum of the uncompressed content, for the files that have a known one.
    """
    content = _decompressed(path) if path.suffix == ".gz" else path.read_bytes()
    name = path.name.removesuffix(".gz")
    if name in checksums:
        verify(path, content, checksums[name], ADVICE)
    pixels, labels = _binary(path, content) if name.endswith(".bin") else _python(path, content)
    if labels.max() > 9:
        raise UserError(f"{path} has the label {labels.max()}, but CIFAR-10's are 0 to 9; {ADVICE}")
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return ArrayExamples(np.ascontiguousarray(images), labels.astype(np.int32))


def _read_all(paths: tuple[Path, ...], checksums: dict[str, str]) -> ArrayExamples:
    parts = [read_file(path, checksums) for path in paths]
    return ArrayExamples(
        np.concatenate([part.images for part in parts]), np.concatenate([part.labels for part in parts])
    )


def _binary(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    if not content or len(content) % RECORD:
        raise UserError(
            f"{path} has {len(content)} bytes, which is not a whole number of {RECORD}-byte images; {ADVICE}"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    return records[:, 1:], records[:, 0]


def _python(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = pickled_batch.parse(content)
        missing = {"data", "labels"} - batch.keys()
        if missing:
            raise pickled_batch.UnknownPickle(f"it has no {' and no '.join(sorted(missing))}")
        pixels, labels = pickled_batch.array(batch["data"]), pickled_batch.numbers(batch["labels"])
        if pixels.shape != (len(labels), PIXELS):
            raise pickled_batch.UnknownPickle(f"it has pixels of shape {pixels.shape} and {len(labels)} labels")
    except pickled_batch.UnknownPickle as error:
        raise UserError(f"{path} is not a batch of CIFAR-10 in the Python layout: {error}; {ADVICE}") from None
    return pixels, labels


def _decompressed(path: Path) -> bytes:
    """The content of a gzip file, checked against the checksum that is stored at its end."""
    chunks = []
    try:
        with gzip.open(path) as file:
            while chunk := file.read(1 << 20):
                chunks.append(chunk)
    except (zlib.error, EOFError, gzip.BadGzipFile):
        stored = int.from_bytes(path.read_bytes()[-8:-4], "little")
        content = b"".join(chunks)
        raise UserError(
            f"{path} is damaged: its checksum should be crc32:{stored:08x} and is crc32:{zlib.crc32(content):08x} "
            f"over the {len(content):,} bytes that could be decompressed; {ADVICE}"
        ) from None
    return b"".join(chunks)
