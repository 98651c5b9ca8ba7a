"""Files of text as tokens: a shard each, made when it is first read and kept beside the data.

A corpus of any size is read as it is needed. Which example has which number depends on the files, the vocabulary and the seed
alone, so every process and every number of reading threads sees the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from zoo.errors import UserError

BATCH = 1000


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of one shard.

    Attributes:
        ids: all of them, uint16 or int32.
        sentences: where each sentence starts, and the end of the last one, int64.
        documents: the number of the sentence that each document starts with, and the number of sentences, int64.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


@dataclasses.dataclass(frozen=True)
class Source:
    """A shard that can be read: its name, something that changes with its content, and its documents."""

    name: str
    stamp: str
    documents: Callable[[], Iterable[str]]


def file_source(path: Path, documents: Callable[[Path], Iterable[str]]) -> Source:
    """A file; it is taken for changed when its size or its time of change is another."""
    status = path.stat()
    return Source(str(path), f"{path.name} {status.st_size} {status.st_mtime_ns}", lambda: documents(path))


def tokenised(
    source: Source,
    key: str,
    encode: Callable[[Sequence[str]], list[list[int]]],
    split: Callable[[str], list[str]],
    cache: Path | None,
) -> Tokens:
    """The tokens of a shard, from the cache where they are there.

    Args:
        source: the documents.
        key: differs where `encode` or `split` do.
        encode: texts to tokens.
        split: a document to its sentences.
        cache: a folder; None, or one that cannot be written, keeps nothing.
    """
    name = hashlib.sha256(f"{source.stamp}\n{key}".encode()).hexdigest()[:24]
    place = None if cache is None else cache / f"{name}.npz"
    if place is not None and place.is_file():
        with np.load(place, allow_pickle=False) as file:
            return Tokens(file["ids"], file["sentences"], file["documents"])
    tokens = _encoded(source.documents(), encode, split)
    if not len(tokens.ids):
        raise UserError(f"{source.name} is empty: it has no text")
    if place is not None:
        _keep(place, tokens)
    return tokens


def _encoded(
    documents: Iterable[str], encode: Callable[[Sequence[str]], list[list[int]]], split: Callable[[str], list[str]]
) -> Tokens:
    ids: list[np.ndarray] = []
    lengths: list[int] = []
    starts = [0]
    remaining = iter(documents)
    while batch := list(itertools.islice(remaining, BATCH)):
        parts = [split(document) for document in batch]
        encoded = encode([sentence for sentences in parts for sentence in sentences])
        ids.append(np.asarray([number for sentence in encoded for number in sentence], np.int32))
        lengths += [len(sentence) for sentence in encoded]
        for sentences in parts:
            if sentences:
                starts.append(starts[-1] + len(sentences))
    joined = np.concatenate(ids) if ids else np.zeros(0, np.int32)
    if len(joined) and joined.max() < 2**16:
        joined = joined.astype(np.uint16)
    return Tokens(joined, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), np.asarray(starts, np.int64))


def _keep(place: Path, tokens: Tokens) -> None:
    part = place.with_name(f"{place.stem}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, ids=tokens.ids, sentences=tokens.sentences, documents=tokens.documents)
        os.replace(part, place)
    except OSError:
        part.unlink(missing_ok=True)  # full or read-only: the tokens are made anew next time


def sentence_chunks(tokens: Tokens, longest: int) -> np.ndarray:
    """Runs of whole sentences of one document with at most `longest` tokens, int64 [n, 2] (from, to).

    A longer sentence is cut. Every token is in one chunk.
    """
    chunks = []
    for first, last in itertools.pairwise(tokens.documents):
        begin = int(tokens.sentences[first])
        end = begin
        for stop in tokens.sentences[first + 1 : last + 1]:
            if stop - begin > longest and end > begin:
                chunks.append((begin, end))
                begin = end
            while stop - begin > longest:
                chunks.append((begin, begin + longest))
                begin += longest
            end = int(stop)
        if end > begin:
            chunks.append((begin, end))
    return np.asarray(chunks, np.int64).reshape(-1, 2)


class Order:
    """Which example of which shard has which number, epoch after epoch, each in a new order.

    Shards are taken in a random order, and so are the examples within each; only as many shards are read as numbers are asked for.
    """

    def __init__(self, sizes: Callable[[int], int], num_shards: int, seed: int) -> None:
        """Args: the number of examples of a shard; how many shards there are; fixes the order."""
        self._sizes, self._num_shards, self._seed = sizes, num_shards, seed
        self._ends: list[int] = []
        self._kept: dict[int, np.ndarray] = {}
        self._lock = threading.Lock()

    def locate(self, number: int) -> tuple[int, int]:
        """(shard, example in it) of the number-th example, counted from 0 over all epochs."""
        with self._lock:
            while not self._ends or self._ends[-1] <= number:
                before = self._ends[-1] if self._ends else 0
                self._ends.append(before + self._sizes(self._shard(len(self._ends))))
                if len(self._ends) == self._num_shards and not self._ends[-1]:
                    raise UserError("no shard has enough text for one example; take more text or shorter sequences")
            place = int(np.searchsorted(self._ends, number, side="right"))
            begin = self._ends[place - 1] if place else 0
        shard = self._shard(place)
        return shard, int(self._within(place, self._sizes(shard))[number - begin])

    def _shard(self, place: int) -> int:
        epoch, position = divmod(place, self._num_shards)
        return int(np.random.default_rng((self._seed, epoch, 0)).permutation(self._num_shards)[position])

    def _within(self, place: int, size: int) -> np.ndarray:
        """The order of a shard's examples; the last ones are kept, since neighbouring numbers ask for the same."""
        kept = self._kept.get(place)
        if kept is None:
            kept = np.random.default_rng((self._seed, place, 1)).permutation(size)
            self._kept = {**dict(list(self._kept.items())[-3:]), place: kept}
        return kept
