"""Scores of words: what the libraries count, and answers as SQuAD counts them."""

from __future__ import annotations

import pytest

from zoo import scores


def test_only_whole_entities_count() -> None:
    pytest.importorskip("seqeval")
    found = scores.entities([["B-PER", "O", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-LOC"]])
    assert found == {"precision": 0.5, "recall": 0.5, "f1": 0.5}


def test_rouge_and_bleu() -> None:
    pytest.importorskip("rouge_score")
    found = scores.overlaps(["the cat sat on the mat", "a"], ["the cat sat on the mat", "b"])
    assert found["rouge1"] == found["rougeL"] == 50 and 0 < found["bleu"] < 100
    assert scores.exact_share(["a ", "b"], ["a", "c"]) == 50


def test_answers() -> None:
    found = scores.answers(["The  Cat.", "big dog", ""], [["a cat"], ["dog", "the bird"], []])
    assert found["exact_match"] == pytest.approx(200 / 3) and found["f1"] == pytest.approx(100 * (1 + 2 / 3 + 1) / 3)
