"""Batches of text: complete, in a seeded order, the same for any number of readers and processes, resumed exactly."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
pytest.importorskip("sentencepiece")

from zoo.data import spans
from zoo.data.pretraining import bert_examples, t5_examples, t5_lengths
from zoo.data.shards import Order, sentence_chunks, tokenised
from zoo.data.text import TextConfig, TextExamples, open_text, open_vocabulary, sentences
from zoo.data.vocabulary import SPECIAL, SentencePiece, WordPiece
from zoo.errors import UserError

WORDS = [f"w{n}" for n in range(40)]
VOCABULARY = WordPiece([*SPECIAL, ".", *WORDS])


def corpus(folder: Path, shards: int = 3, documents: int = 5) -> Path:
    rng = np.random.default_rng(0)
    for number in range(shards):
        lines = [
            json.dumps({"text": " ".join(" ".join(rng.choice(WORDS, 5)) + "." for _ in range(6))})
            for _ in range(documents)
        ]
        (folder / f"train-{number}.jsonl").write_text("\n".join(lines))
    (folder / "test.jsonl").write_text("\n".join(lines))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY.words))
    return folder


def examples(folder: Path, **options: object) -> TextExamples:
    config = TextConfig("text", 4, 16, **options)  # type: ignore[arg-type]
    text = open_text(config, folder, rehearsal=False)
    vocabulary = open_vocabulary(WordPiece, config, folder, text, 100)
    return bert_examples(config, text, vocabulary, folder / ".tokens")


def taken(
    made: TextExamples, number: int, start: int = 0, readers: int = 0, slice_of: tuple[int, int] = (0, 1)
) -> list:
    return list(itertools.islice(made.batches("train", 7, start, 4, readers, slice_of), number))


def assert_same(one: list, two: list) -> None:
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_examples_are_well_formed(tmp_path: Path) -> None:
    for batch in taken(examples(corpus(tmp_path)), 12):
        ids, mask = batch["ids"], batch["mask"]
        assert ids.shape == mask.shape == batch["types"].shape == (4, 16) and ids.dtype == np.int32
        assert np.all(ids[:, 0] == VOCABULARY.class_id) and np.all((ids == VOCABULARY.separator_id).sum(1) == 2)
        assert np.all(ids[mask == 0] == VOCABULARY.pad_id) and np.all(np.diff(mask, axis=1) <= 0)
        assert np.all(batch["word_weight"].sum(1) >= 1)
        assert set(np.unique(batch["next_sentence"])) <= {0, 1}


def test_a_resumed_run_on_other_readers_and_processes_sees_the_same(tmp_path: Path) -> None:
    made = examples(corpus(tmp_path))
    whole = taken(made, 12)
    assert_same(whole[5:], taken(examples(tmp_path), 7, start=5, readers=2))
    halves = [taken(examples(tmp_path), 12, slice_of=(index, 2)) for index in range(2)]
    joined = [{name: np.concatenate([a[name], b[name]]) for name in a} for a, b in zip(*halves, strict=True)]
    assert_same(whole, joined)


def test_a_run_that_goes_on_with_one_two_and_four_processes_sees_the_same(tmp_path: Path) -> None:
    whole = taken(examples(corpus(tmp_path)), 12)
    for start, processes, readers in ((0, 1, 1), (4, 2, 2), (8, 4, 0)):
        parts = [
            taken(examples(tmp_path), 4, start=start, readers=readers, slice_of=(index, processes))
            for index in range(processes)
        ]
        joined = [
            {name: np.concatenate([one[name] for one in row]) for name in row[0]} for row in zip(*parts, strict=True)
        ]
        assert_same(whole[start : start + 4], joined)


def test_an_epoch_has_every_token_once(tmp_path: Path) -> None:
    made = examples(corpus(tmp_path), next_sentence=False)
    config = TextConfig("text", 4, 16)
    text = open_text(config, tmp_path, rehearsal=False)
    shards = [tokenised(source, "k", VOCABULARY.encode, sentences, None) for source in text.train]
    total = sum(len(sentence_chunks(shard, 14)) for shard in shards)
    wanted = Counter(int(one) for shard in shards for one in shard.ids)
    rows: Counter = Counter()
    batches = made.batches("train", 7, 0, 1, 0, (0, 1))
    for batch in itertools.islice(batches, total):
        ids = batch["ids"][0].copy()
        count = batch["word_weight"][0] > 0
        ids[batch["positions"][0][count]] = batch["words"][0][count]
        rows.update(int(one) for one in ids if one > 4)
    assert rows == wanted


def test_the_test_split_ends_and_fills_up_with_weight_zero(tmp_path: Path) -> None:
    made = examples(corpus(tmp_path))
    batches = list(made.batches("test", 0, 0, 4, 0, (0, 1)))
    weights = np.concatenate([batch["weight"] for batch in batches])
    again = list(made.batches("test", 5, 0, 3, 0, (0, 1)))
    assert weights.sum() == np.concatenate([batch["weight"] for batch in again]).sum()
    assert np.all(weights[: int(weights.sum())] == 1)


def test_orders_differ_by_seed_and_epoch_and_are_complete() -> None:
    sizes = [3, 0, 5]
    order = Order(lambda shard: sizes[shard], 3, seed=1)
    epochs = [[order.locate(number) for number in range(8 * epoch, 8 * epoch + 8)] for epoch in range(3)]
    everything = {(0, n) for n in range(3)} | {(2, n) for n in range(5)}
    assert all(set(epoch) == everything for epoch in epochs) and epochs[0] != epochs[1]
    fresh = Order(lambda shard: sizes[shard], 3, seed=1)
    assert fresh.locate(17) == epochs[2][1]
    assert [Order(lambda shard: sizes[shard], 3, seed=2).locate(number) for number in range(8)] != epochs[0]
    with pytest.raises(UserError, match="no shard has enough text"):
        Order(lambda shard: 0, 3, seed=1).locate(0)


def test_t5_examples_give_the_text_back(reference_data: Path) -> None:
    config = TextConfig("c4", 2, 64)
    folder = reference_data / "text"
    text = open_text(config, folder, rehearsal=False)
    vocabulary = open_vocabulary(SentencePiece, config, folder, text, 32128)
    made = t5_examples(config, text, vocabulary)
    batch = next(made.batches("test", 0, 0, 2, 0, (0, 1)))
    length, source, target = t5_lengths(config)
    assert batch["source"].shape == (2, source) == (2, 64) and batch["target"].shape == (2, target)
    stream = [one for document in text.test[0].documents() for one in [*vocabulary.encode([document])[0], 1]][
        : 2 * length
    ]
    for row in range(2):
        found = spans.restored(batch["source"][row], batch["target"][row], 32099, 100, 1)
        np.testing.assert_array_equal(found, stream[row * length : (row + 1) * length])


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    config = TextConfig("wikitext2", 4, 16)
    with pytest.raises(UserError, match="no wikitext2 in data_dir=.*wiki.train.raw"):
        open_text(config, tmp_path, rehearsal=False)
    text = open_text(config, tmp_path, rehearsal=True)
    assert "so this rehearsal runs on the documentation of the Python language" in text.announcement
    corpus(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    config = TextConfig("text", 4, 16)
    text = open_text(config, tmp_path, rehearsal=False)
    with pytest.raises(UserError, match="no vocabulary in data_dir=.*vocab.txt"):
        open_vocabulary(WordPiece, config, tmp_path, text, 100)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY.words))
    with pytest.raises(UserError, match="has 46 tokens, and recipe.model.vocabulary_size=40 is less"):
        open_vocabulary(WordPiece, config, tmp_path, text, 40)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    corpus(tmp_path)
    (tmp_path / "train-1.jsonl").write_text("")
    with pytest.raises(UserError, match="train-1.jsonl is empty"):
        taken(examples(tmp_path), 12)
