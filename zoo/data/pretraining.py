"""Examples for the pretraining of BERT and of T5, from pieces of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from zoo.data import spans
from zoo.data.masking import masked
from zoo.data.shards import Tokens, sentence_chunks, tokenised
from zoo.data.text import Example, Piece, Text, TextConfig, TextExamples, reader, sentences
from zoo.data.vocabulary import SentencePiece, WordPiece
from zoo.errors import UserError


def bert_examples(config: TextConfig, text: Text, vocabulary: WordPiece, cache: Path | None = None) -> TextExamples:
    """Examples with masked words, S = length tokens and P = num_masked masked ones:

    {"ids", "types", "mask": int32 [S], "positions", "words": int32 [P], "word_weight": float32 [P], "next_sentence": int32 []}
    """
    room = config.length - (3 if config.next_sentence else 2)

    def make(piece: Piece, rng: np.random.Generator) -> Example:
        first, second, follows_not = piece.ids, None, 0
        if config.next_sentence:
            first, second, follows_not = _two(piece, rng)
        parts = [[vocabulary.class_id], first, [vocabulary.separator_id]]
        parts += [] if second is None else [second, [vocabulary.separator_id]]
        ids = np.concatenate([np.asarray(part, np.int32) for part in parts])
        types = np.zeros(len(ids), np.int32)
        types[len(first) + 2 :] = 1
        found = masked(ids, vocabulary, rng, config.mask_share, config.num_masked, config.whole_words)
        return {
            "ids": _filled(found.ids, config.length, vocabulary.pad_id),
            "types": _filled(types, config.length, 0),
            "mask": _filled(np.ones(len(ids), np.int32), config.length, 0),
            "positions": _filled(found.positions, config.num_masked, 0),
            "words": _filled(found.words, config.num_masked, 0),
            "word_weight": _filled(np.ones(len(found.words)), config.num_masked, 0).astype(np.float32),
            "next_sentence": np.asarray(follows_not, np.int32),
        }

    return TextExamples(text, reader(vocabulary, sentences, cache), lambda tokens: sentence_chunks(tokens, room), make)


def _two(piece: Piece, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """Two texts of together at most the piece's length, and 0 if the second follows the first, else 1."""
    ids = piece.ids
    inner = piece.tokens.sentences
    low, high = np.searchsorted(inner, [piece.begin + 1, piece.end])
    # A piece that is one sentence is cut anywhere.
    cut = int(inner[rng.integers(low, high)]) - piece.begin if high > low else int(rng.integers(1, max(len(ids), 2)))
    first, second = ids[:cut], ids[cut:]
    if rng.random() < 0.5 and len(second):
        return first, second, 0
    begin, end = piece.chunks[rng.integers(len(piece.chunks))]
    other = piece.tokens.ids[begin:end].astype(np.int32)
    return first, other[-max(len(ids) - cut, 1) :], 1


def whole(document: str) -> list[str]:
    """A document as one piece."""
    return [document] if document.strip() else []


def t5_lengths(config: TextConfig) -> tuple[int, int, int]:
    """Tokens of the text that an example is made of, of its source and of its target, for exactly `length` in the source."""
    text = spans.longest_text(config.length, config.mask_share, config.mean_span)
    return text, *spans.lengths(text, config.mask_share, config.mean_span)


def t5_examples(config: TextConfig, text: Text, vocabulary: SentencePiece, cache: Path | None = None) -> TextExamples:
    """Examples with spans taken out: {"source": int32 [S], "target": int32 [T]}, with no place for anything that fills up.

    Documents stand one after the other, each with its end token, and are cut into equal pieces.
    """
    length, source_length, target_length = t5_lengths(config)
    if spans.counts(length, config.mask_share, config.mean_span)[1] > vocabulary.extra_ids:
        raise UserError(
            f"recipe.data.length={config.length} gives more spans than there are sentinels ({vocabulary.extra_ids}); "
            "shorten it, or make recipe.data.mean_span longer"
        )

    def chunk(tokens: Tokens) -> np.ndarray:
        starts = np.arange(0, len(tokens.ids) - length + 1, length)
        return np.stack([starts, starts + length], axis=1)

    def make(piece: Piece, rng: np.random.Generator) -> Example:
        options = (config.mask_share, config.mean_span)
        source, target = spans.corrupted(piece.ids, vocabulary.sentinel(0), vocabulary.end_id, rng, *options)
        assert (len(source), len(target)) == (source_length, target_length)
        return {"source": source, "target": target}

    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [[*ids, vocabulary.end_id] for ids in vocabulary.encode(texts)]

    read = lambda source: tokenised(source, f"{vocabulary.key} with end", encode, whole, cache)
    return TextExamples(text, read, chunk, make)


def _filled(values: np.ndarray, length: int, with_value: int) -> np.ndarray:
    filled = np.full(length, with_value, np.int32)
    filled[: len(values)] = values
    return filled
