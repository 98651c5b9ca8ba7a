"""Where the text of a recipe comes from: its files, its vocabulary, and what stands in for them in a rehearsal."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import grain
import numpy as np

from zoo.data import corpus, pydoc
from zoo.data.shards import Order, Source, Tokens, file_source, tokenised
from zoo.data.vocabulary import (
    SentencePiece,
    WordPiece,
    read_sentencepiece,
    read_wordpiece,
    train_sentencepiece,
    train_wordpiece,
)
from zoo.errors import UserError

CACHE = ".tokens"
# Where a corpus may be below data_dir, the first place that has both splits wins; and its files.
CORPORA: dict[str, tuple[tuple[str, ...], str, str]] = {
    "wikitext2": (
        ("wikitext-2-raw", "wikitext-2", "wikitext2", "."),
        r"wiki\.train\b.*\.(raw|tokens)(\.gz)?",
        r"wiki\.test\.(raw|tokens)(\.gz)?",
    ),
    "c4": (
        ("c4/en", "c4", "en", "."),
        r"c4-train\..*\.(json|jsonl|parquet)(\.gz)?",
        r"c4-validation\..*\.(json|jsonl|parquet)(\.gz)?",
    ),
    "text": (
        ("text", "."),
        r"train\b.*\.(txt|json|jsonl|csv|tsv|parquet)(\.gz)?",
        r"(test|valid|validation)\b.*\.(txt|json|jsonl|csv|tsv|parquet)(\.gz)?",
    ),
    "pydoc": ((), "", ""),
}
VOCABULARIES = {
    "wordpiece": ("vocab.txt", "bert_base_uncased_vocab.txt"),
    "sentencepiece": ("spiece.model", "t5_spiece.model"),
}
VOCABULARY_FOLDERS = (".", "tokenizers", "vocabularies")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")

Vocabulary = TypeVar("Vocabulary", WordPiece, SentencePiece)


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """Which text, and in which pieces.

    Attributes:
        name: "wikitext2", "c4", "text" (train.* and test.* of your own: txt, JSON lines, CSV, TSV, Parquet) or "pydoc".
        global_batch: examples per step, over all devices.
        length: tokens of an example; of T5, of its source.
        column: what holds the text in JSON lines, CSV and Parquet.
        vocabulary: file of the vocabulary; null: vocab.txt or spiece.model in data_dir; "train": learned from the text.
        lowercase: BERT's text is made lower-case and loses its accents; null: as tokenizer_config.json beside the vocabulary
            says, else it is.
        mask_share: of the tokens that are masked, or taken out in spans.
        most_masked: masked tokens of an example at most; null: what `mask_share` gives.
        whole_words: mask words as a whole.
        next_sentence: examples are two texts, of which the second follows the first in half of the cases.
        mean_span: tokens of a span that is taken out.
        readers: threads that prepare batches; 0 prepares each one when it is asked for.
    """

    name: Literal["wikitext2", "c4", "text", "pydoc"]
    global_batch: int
    length: int
    column: str = "text"
    vocabulary: str | None = None
    lowercase: bool | None = None
    mask_share: float = 0.15
    most_masked: int | None = None
    whole_words: bool = True
    next_sentence: bool = True
    mean_span: float = 3.0
    readers: int = 2

    def __post_init__(self) -> None:
        if self.global_batch < 1:
            raise ValueError(f"global_batch={self.global_batch}; it must be at least 1")
        if self.length < 8:
            raise ValueError(f"length={self.length}; it must be at least 8")
        if not 0 < self.mask_share < 1:
            raise ValueError(f"mask_share={self.mask_share}; it must be above 0 and below 1")
        if self.most_masked is not None and self.most_masked < 1:
            raise ValueError(f"most_masked={self.most_masked}; it must be at least 1, or null")
        if self.mean_span < 1:
            raise ValueError(f"mean_span={self.mean_span}; it must be at least 1")
        if self.readers < 0:
            raise ValueError(f"readers={self.readers}; it must be at least 0")

    @property
    def num_masked(self) -> int:
        """Masked tokens of an example at most."""
        return self.most_masked or max(1, round(self.length * self.mask_share))


@dataclasses.dataclass(frozen=True)
class Text:
    """The shards of each split, and what the user must be told about them."""

    train: tuple[Source, ...]
    test: tuple[Source, ...]
    announcement: str
    rehearsed: bool = False

    def split(self, name: str) -> tuple[Source, ...]:
        return self.train if name == "train" else self.test


def open_text(config: TextConfig, data_dir: Path, rehearsal: bool) -> Text:
    """Finds the text that the configuration names; reads nothing yet.

    Args:
        config: names it.
        data_dir: where it is.
        rehearsal: where it is missing, take Python's own documentation in its place and announce it.

    Raises:
        UserError: it is missing.
    """
    stand_in = (pydoc.source("train"),), (pydoc.source("test"),)
    if config.name == "pydoc":
        return Text(*stand_in, "data: the documentation of the Python language", rehearsed=rehearsal)
    folders, train, test = CORPORA[config.name]
    read = functools.partial(corpus.documents, column=config.column)
    for folder in folders:
        place = data_dir / folder
        names = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
        found = [
            tuple(file_source(place / name, read) for name in _one_form(names, pattern)) for pattern in (train, test)
        ]
        if all(found):
            return Text(found[0], found[1], f"data: {config.name} from {place}, {len(found[0])} file(s) to train on")
    if rehearsal:
        return Text(
            *stand_in,
            f"data: no {config.name} in {data_dir}, so this rehearsal runs on the documentation of the Python language; "
            f"{_wanted(config.name)}",
            rehearsed=True,
        )
    raise UserError(
        f"no {config.name} in data_dir={data_dir}; {_wanted(config.name)}; or take Python's documentation for a "
        "first trial: recipe.data.name=pydoc recipe.data.vocabulary=train"
    )


def _one_form(names: list[str], pattern: str) -> list[str]:
    """The names that fit; the raw form of WikiText where both are there."""
    found = [name for name in names if re.fullmatch(pattern, name)]
    raw = [name for name in found if ".raw" in name]
    return raw or found


def _wanted(name: str) -> str:
    wanted = {
        "wikitext2": "it wants wikitext-2-raw/wiki.train.raw and wiki.test.raw there (or the .tokens files)",
        "c4": "it wants c4/en/c4-train.*.json.gz and c4-validation.*.json.gz there",
        "text": "it wants train.* and test.* there, each txt, jsonl, csv, tsv or parquet, plain or .gz",
    }
    return wanted[name]


def open_vocabulary(kind: type[Vocabulary], config: TextConfig, data_dir: Path, text: Text, size: int) -> Vocabulary:
    """The vocabulary of the configuration; in a rehearsal without one, or where it says "train", one learned from the text.

    Args:
        kind: WordPiece or SentencePiece.
        size: most tokens, the rows of the model's embedding.

    Raises:
        UserError: it is missing or damaged, or has more tokens than the model.
    """
    folder = "wordpiece" if kind is WordPiece else "sentencepiece"
    place = _vocabulary_place(config, data_dir, VOCABULARIES[folder])
    if place is None and not text.rehearsed and config.vocabulary != "train":
        raise UserError(
            f"no vocabulary in data_dir={data_dir}; put {' or '.join(VOCABULARIES[folder])} there, name one with "
            "recipe.data.vocabulary=FILE, or learn one from the text with recipe.data.vocabulary=train"
        )
    found: Any
    if place is None:
        documents = (document for shard in text.train for document in shard.documents())
        small = min(size, 8000)
        train = (
            functools.partial(train_wordpiece, lowercase=config.lowercase is not False)
            if kind is WordPiece
            else train_sentencepiece
        )
        found = train(documents, small)
    else:
        found = read_wordpiece(place, config.lowercase) if kind is WordPiece else read_sentencepiece(place)
    if found.size > size:
        raise UserError(
            f"the vocabulary {place} has {found.size} tokens, and recipe.model.vocabulary_size={size} is less; "
            f"set it to {found.size} or more, or take the model's own vocabulary"
        )
    return found


def _vocabulary_place(config: TextConfig, data_dir: Path, names: Sequence[str]) -> Path | None:
    if config.vocabulary == "train":
        return None
    if config.vocabulary is not None:
        return Path(config.vocabulary)
    places = [data_dir / folder / name for folder in VOCABULARY_FOLDERS for name in names]
    return next((place for place in places if place.is_file()), None)


def sentences(document: str) -> list[str]:
    """A document's sentences, cut after full stops, question and exclamation marks and at ends of lines."""
    return [part for line in document.split("\n") for part in SENTENCE_END.split(line) if part.strip()]


@dataclasses.dataclass(frozen=True)
class Piece:
    """What an example is made of: a shard's tokens, and which part of them."""

    tokens: Tokens
    begin: int
    end: int
    chunks: np.ndarray

    @property
    def ids(self) -> np.ndarray:
        return self.tokens.ids[self.begin : self.end].astype(np.int32)


Example = dict[str, np.ndarray]


class TextExamples:
    """Batches of examples, each a function of (seed, number) alone.

    Args:
        sources: the shards of each split.
        read: a shard to its tokens.
        chunk: tokens to the parts [n, 2] that examples are made of.
        make: a piece and random numbers to an example.
    """

    def __init__(
        self,
        text: Text,
        read: Callable[[Source], Tokens],
        chunk: Callable[[Tokens], np.ndarray],
        make: Callable[[Piece, np.random.Generator], Example],
    ) -> None:
        self._text, self._make = text, make
        # A few shards stay in memory: neighbouring numbers are of the same.
        self._shard = functools.lru_cache(maxsize=4)(lambda source: (tokens := read(source), chunk(tokens)))
        self._count = functools.lru_cache(maxsize=None)(lambda source: len(self._shard(source)[1]))

    def batches(
        self, split: str, seed: int, start_step: int, global_batch: int, readers: int, slice_of: tuple[int, int]
    ) -> Iterator[Example]:
        """Batches from `start_step` on; "train" never ends, "test" ends when all was seen once, with "weight" [b].

        Args: as of a recipe's `batches`; `readers` are threads.
        """
        index, count = slice_of
        assert split in ("train", "test") and 0 <= index < count and global_batch % count == 0, (split, slice_of)
        rows = range(index * global_batch // count, (index + 1) * global_batch // count)
        read, number = (
            self._training(seed, global_batch, rows) if split == "train" else self._testing(global_batch, rows)
        )
        options = grain.ReadOptions(num_threads=readers, prefetch_buffer_size=2 * readers)
        return iter(grain.MapDataset.range(start_step, number).map(read).to_iter_dataset(options))

    def _training(self, seed: int, global_batch: int, rows: range) -> tuple[Callable[[int], Example], int]:
        sources = self._text.train
        order = Order(lambda shard: self._count(sources[shard]), len(sources), seed)

        def read(step: int) -> Example:
            examples = []
            for number in (step * global_batch + row for row in rows):
                shard, chunk = order.locate(number)
                examples.append(self._example(sources[shard], chunk, np.random.default_rng((seed, number))))
            return stacked(examples)

        return read, 2**40

    def _testing(self, global_batch: int, rows: range) -> tuple[Callable[[int], Example], int]:
        sources = self._text.test
        ends = np.cumsum([self._count(source) for source in sources])
        total = int(ends[-1])
        if not total:
            raise UserError("the test split has not enough text for one example; take more text or shorter sequences")

        def read(step: int) -> Example:
            numbers = [step * global_batch + row for row in rows]
            examples = []
            for number in (min(number, total - 1) for number in numbers):  # rows past the end have weight 0
                shard = int(np.searchsorted(ends, number, side="right"))
                chunk = number - (int(ends[shard - 1]) if shard else 0)
                examples.append(self._example(sources[shard], chunk, np.random.default_rng((0, number))))
            weight = np.asarray([number < total for number in numbers], np.float32)
            return {**stacked(examples), "weight": weight}

        return read, -(-total // global_batch)

    def _example(self, source: Source, chunk: int, rng: np.random.Generator) -> Example:
        tokens, chunks = self._shard(source)
        return self._make(Piece(tokens, int(chunks[chunk, 0]), int(chunks[chunk, 1]), chunks), rng)


def stacked(examples: Sequence[Example]) -> Example:
    """Examples to a batch."""
    return {name: np.stack([example[name] for example in examples]) for name in examples[0]}


def reader(
    vocabulary: WordPiece | SentencePiece, split: Callable[[str], list[str]], cache: Path | None
) -> Callable[[Source], Tokens]:
    """A function from a shard to its tokens by a vocabulary."""
    return lambda source: tokenised(source, f"{vocabulary.key} {split.__name__}", vocabulary.encode, split, cache)
