"""What a data set's card says: source, licence, splits, statistics, checksums."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import yaml

from zoo.errors import UserError
from zoo.paths import cards_dir
from zoo.typed import typed


@dataclasses.dataclass(frozen=True)
class Archive:
    """One file on a server that holds the whole data set.

    Attributes:
        url: where it is.
        bytes: its size.
        checksum: "algorithm:hexadecimal digits".
        folder: the folder inside it that the data set's files are in.
        unpacked_bytes: what those files add up to.
    """

    url: str
    bytes: int
    checksum: str
    folder: str
    unpacked_bytes: int


@dataclasses.dataclass(frozen=True)
class Card:
    """One datasets/*/card.yaml; the comments there say what each value means.

    Text has no classes, and no pixels with a mean and a spread.
    """

    description: str
    homepage: str
    citation: str
    licence: str
    splits: dict[str, int]
    classes: tuple[str, ...] = ()
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    archive: Archive | None = None
    files: dict[str, str] = dataclasses.field(default_factory=dict)


def card(name: str) -> Card:
    """The card of a data set."""
    return typed(Card, yaml.safe_load((cards_dir() / name / "card.yaml").read_text()), f"datasets/{name}/card.yaml")


def verify(path: Path, content: bytes, expected: str, advice: str) -> None:
    """Raises UserError with both checksums where `content`, read from `path`, has another than `expected`."""
    algorithm = expected.partition(":")[0]
    found = f"{algorithm}:{hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()}"
    if found != expected:
        raise UserError(f"{path} is damaged: its checksum should be {expected} and is {found}; {advice}")
