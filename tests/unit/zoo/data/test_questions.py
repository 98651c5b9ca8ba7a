"""Windows over a text, where the answer stands in them, and the best span over all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers")

from zoo.data import questions
from zoo.data.vocabulary import SPECIAL, WordPiece
from zoo.errors import UserError

WORDS = WordPiece([*SPECIAL, "who", *(f"w{number}" for number in range(10))])
CONFIG = questions.QuestionsConfig(2, 9, stride=2)
CONTEXT = " ".join(f"w{number}" for number in range(10))
ROW = {"question": "who", "context": CONTEXT, "answers": {"text": ["w6 w7"], "answer_start": [18]}}


def test_windows_overlap_and_know_the_answer() -> None:
    found = questions.windows(CONFIG, WORDS, [ROW])
    assert [window.ids[3] - 6 for window in found] == [0, 3, 6] and all(len(window.ids) <= 9 for window in found)
    assert [window.span for window in found] == [(0, 0), (6, 7), (3, 4)]
    arrays = questions.arrays(CONFIG, WORDS, found)
    assert arrays["start"].tolist() == [0, 6, 3] and arrays["types"][0].tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_the_best_span_is_text_of_the_context() -> None:
    found = questions.windows(CONFIG, WORDS, [ROW])
    logits = np.zeros((3, 9, 2))
    first, last = found[1].span
    logits[1, first, 0] = logits[1, last, 1] = 5.0
    logits[2, 5, 0], logits[2, 3, 1] = 9.0, 9.0  # an end before its start is no answer
    best = {"answer": "w6 w7", "start": 18, "score": 10.0}
    assert questions.best_answers(CONFIG, found, logits, [CONTEXT]) == [best]
    none = questions.QuestionsConfig(2, 9, stride=2, unanswerable=True)
    logits[:, 0] = 20.0
    assert questions.best_answers(none, found, logits, [CONTEXT])[0]["answer"] == ""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"answers": "w99"}, "has the answer 'w99', which is not in its context"),
        ({"answers": {"text": ["w1"], "answer_start": [2]}}, "has the answer 'w1', which is not in its context at 2"),
        ({"answers": []}, "has no answer; recipe.data.unanswerable=true allows that"),
    ],
)
def test_wrong_answers_are_named(change: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError, match=text):
        questions.answers_of(CONFIG, ROW | change)


def test_short_answers_and_long_questions(tmp_path: Path) -> None:
    assert questions.answers_of(CONFIG, ROW | {"answers": ["w1", "w2"]}) == [("w1", 3), ("w2", 6)]
    with pytest.raises(UserError, match="leaves room for 1 tokens, no more than recipe.data.stride=2"):
        questions.windows(CONFIG, WORDS, [ROW | {"question": "who " * 5}])
    assert questions.open_questions(CONFIG, tmp_path, rehearsal=True).rehearsed
