"""MNIST from its IDX files, plain or compressed by gzip; grey levels appear as three equal channels.

An IDX file is 2 zero bytes, a code of the type (8: unsigned bytes), the number of dimensions, each dimension as 4 bytes
(big-endian), and the values.

Reference: Yann LeCun, Corinna Cortes, Christopher Burges. The MNIST database of handwritten digits. 1998.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from zoo.data.cards import card, verify
from zoo.data.images import ArrayExamples, ImageDataset
from zoo.errors import UserError

NAME = "mnist"
FOLDERS = ("mnist", "MNIST/raw", ".")
PARTS = {"train": "train", "test": "t10k"}
KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")
WANTED = "it wants train-images-idx3-ubyte, train-labels-idx1-ubyte and both of t10k there or in mnist/, plain or .gz"
ADVICE = "delete it and get it again"

Files = dict[str, tuple[Path, Path]]


def find(data_dir: Path) -> Files | None:
    """The files of images and labels of each split below `data_dir`; None where no folder has all four."""
    for folder in FOLDERS:
        found = {
            split: tuple(_present(data_dir / folder / f"{part}-{kind}") for kind in KINDS)
            for split, part in PARTS.items()
        }
        if all(path is not None for pair in found.values() for path in pair):
            return found  # type: ignore[return-value]
    return None


def _present(path: Path) -> Path | None:
    return next((one for one in (path, path.with_name(f"{path.name}.gz")) if one.is_file()), None)


def open_mnist(files: Files) -> ImageDataset:
    """Reads all files into memory, 165 MB.

    Raises:
        UserError: a file is damaged, or is not what its name says.
    """
    about = card(NAME)
    train, test = (_examples(*files[split], about.files) for split in ("train", "test"))
    return ImageDataset(
        name=NAME,
        train=train,
        test=test,
        mean=about.mean,
        std=about.std,
        classes=about.classes,
        mirrors=False,
        announcement=f"data: MNIST from {files['train'][0].parent}",
    )


def _examples(images_file: Path, labels_file: Path, checksums: dict[str, str]) -> ArrayExamples:
    images, labels = (read_idx(path, checksums) for path in (images_file, labels_file))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise UserError(
            f"{images_file} holds {list(images.shape)} and {labels_file} {list(labels.shape)}; they should be images "
            f"[N, height, width] and labels [N]; {ADVICE}"
        )
    return ArrayExamples(images[..., None].repeat(3, axis=-1), labels.astype(np.int32))


def read_idx(path: Path, checksums: dict[str, str]) -> np.ndarray:
    """The unsigned bytes of one file, in its dimensions.

    Args:
        path: may end in .gz.
        checksums: file name -> checksum of the uncompressed content, for the files that have a known one.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (zlib.error, EOFError, gzip.BadGzipFile):
        raise UserError(f"{path} is damaged: it cannot be decompressed; {ADVICE}") from None
    name = path.name.removesuffix(".gz")
    if content[:3] != b"\0\0\x08" or len(content) < 4 or len(content) < 4 + 4 * content[3]:
        raise UserError(f"{path} is no IDX file of unsigned bytes; {ADVICE}")
    header = 4 + 4 * content[3]
    shape = tuple(int(size) for size in np.frombuffer(content[4:header], ">u4"))
    if len(content) != header + math.prod(shape):
        raise UserError(
            f"{path} says {list(shape)}, {math.prod(shape):,} bytes, and has {len(content) - header:,}; {ADVICE}"
        )
    if name in checksums:
        verify(path, content, checksums[name], ADVICE)
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
