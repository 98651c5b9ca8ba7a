"""Questions with the text that answers them, as arrays that a model reads: windows that overlap, each with the answer's ends.

A text that is longer than a window allows is read in several, which share `stride` tokens; where a window does not hold the
answer, start and end point at the first token, as they do where there is no answer at all.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.tables import Row, Table, TableFiles, announced, is_missing, paragraphs, split_rows
from zoo.data.vocabulary import WordPiece
from zoo.errors import UserError

Arrays = dict[str, np.ndarray]
LONGEST_QUESTION = 64


@dataclasses.dataclass(frozen=True)
class QuestionsConfig(TableFiles):
    """A table of questions.

    Attributes:
        question, context, answers: columns. An answer is text, a list of texts, or as in SQuAD {"text": [...], "answer_start":
            [...]} (an object, or JSON in a field); where a text alone is given its first place in the context counts.
        stride: tokens that neighbouring windows share.
        longest_answer: tokens of an answer at most.
        unanswerable: whether a question may have no answer; otherwise one is always given.
    """

    length: int = 384
    question: str = "question"
    context: str = "context"
    answers: str = "answers"
    stride: int = 128
    longest_answer: int = 30
    unanswerable: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.stride < self.length - 3:
            raise ValueError(f"stride={self.stride}; it must be at least 0 and below length - 3 = {self.length - 3}")
        if self.longest_answer < 1:
            raise ValueError(f"longest_answer={self.longest_answer}; it must be at least 1")


@dataclasses.dataclass(frozen=True)
class Window:
    """A question and a part of its text.

    Attributes:
        row: number of the row.
        ids: tokens, with the special ones.
        context: number of the first token of the text.
        places: where in the text (characters from, to) each of its tokens stands.
        span: first and last token of the answer; (0, 0) where the window does not hold it.
    """

    row: int
    ids: tuple[int, ...]
    context: int
    places: tuple[tuple[int, int], ...]
    span: tuple[int, int]


def open_questions(config: QuestionsConfig, data_dir: Path, rehearsal: bool) -> Table:
    """Reads the table.

    Raises:
        UserError: a file or a column is missing, an answer is not in its text, or there is none and there must be.
    """
    place = data_dir / config.train
    if rehearsal and is_missing(config, data_dir):
        return _stand_in(config, place)
    texts = (config.question, config.context)
    train, test = split_rows(config, data_dir, (*texts, config.answers), texts)
    for row in (*train, *test):
        answers_of(config, row, str(place))
    return Table(train, test, (), announced(train, test, place))


def answers_of(config: QuestionsConfig, row: Row, source: str = "the table") -> list[tuple[str, int]]:
    """The answers to a question, each with the character of the context that it begins at.

    Raises:
        UserError: one is not there, or there is none and there must be.
    """
    value = row[config.answers]
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    if isinstance(value, dict):
        found = list(zip(value.get("text", ()), value.get("answer_start", ()), strict=False))
    else:
        texts = value if isinstance(value, list) else [str(value)]
        found = [(str(text), str(row[config.context]).find(str(text))) for text in texts if str(text)]
    about = f"{source}: the question {str(row[config.question])[:60]!r}"
    if not found and not config.unanswerable:
        raise UserError(f"{about} has no answer; recipe.data.unanswerable=true allows that")
    for text, begin in found:
        if begin < 0 or str(row[config.context])[begin : begin + len(text)] != text:
            where = f" at {begin}" if begin >= 0 else ""
            raise UserError(f"{about} has the answer {text[:60]!r}, which is not in its {config.context}{where}")
    return [(str(text), int(begin)) for text, begin in found]


def _stand_in(config: QuestionsConfig, place: Path) -> Table:
    """Paragraphs of Python's documentation; the question is how they begin, the answer their first word."""
    rows = {}
    for split in ("train", "test"):
        rows[split] = tuple(
            {config.question: "How does it begin?", config.context: text, config.answers: text.split()[0]}
            for text in (one.strip() for one in paragraphs(split))
        )
    said = f"data: no {place}, so this rehearsal runs on paragraphs of Python's documentation (which word do they begin with?)"
    return Table(rows["train"], rows["test"], (), said, rehearsed=True)


def windows(config: QuestionsConfig, vocabulary: WordPiece, rows: Sequence[Row], answered: bool = True) -> list[Window]:
    """The windows of all rows, in order; `answered` rows have answers, the first of which is to be found."""
    questions = vocabulary.encode([str(row[config.question]) for row in rows])
    found: list[Window] = []
    for number, (row, question) in enumerate(zip(rows, questions, strict=True)):
        head = [vocabulary.class_id, *question[:LONGEST_QUESTION], vocabulary.separator_id]
        room = config.length - len(head) - 1
        if room <= config.stride:
            raise UserError(
                f"the question {str(row[config.question])[:60]!r} leaves room for {room} tokens, no more than "
                f"recipe.data.stride={config.stride}; make recipe.data.length larger"
            )
        ids, places = vocabulary.encode_with_offsets(str(row[config.context]))
        answers = answers_of(config, row) if answered else []
        span = _tokens(places, answers[0]) if answers else None
        begin = 0
        while True:
            part = slice(begin, begin + room)
            inside = span is not None and begin <= span[0] and span[1] < begin + room
            at = tuple(len(head) + one - begin for one in span) if inside and span is not None else (0, 0)
            tokens = (*head, *ids[part], vocabulary.separator_id)
            found.append(Window(number, tokens, len(head), tuple(places[part]), (at[0], at[1])))
            if begin + room >= len(ids):
                break
            begin += room - config.stride
    return found


def _tokens(places: Sequence[tuple[int, int]], answer: tuple[str, int]) -> tuple[int, int] | None:
    """The first and the last token that the answer touches."""
    text, begin = answer
    touched = [number for number, (low, high) in enumerate(places) if low < begin + len(text) and high > begin]
    return (touched[0], touched[-1]) if touched else None


def arrays(config: QuestionsConfig, vocabulary: WordPiece, some: Sequence[Window]) -> Arrays:
    """{"ids", "types", "mask": int32 [N, length], "start", "end": int32 [N]} of windows."""
    found = {name: np.zeros((len(some), config.length), np.int32) for name in ("ids", "types", "mask")}
    found["ids"][:] = vocabulary.pad_id
    for row, window in enumerate(some):
        found["ids"][row, : len(window.ids)] = window.ids
        found["types"][row, window.context : len(window.ids)] = 1
        found["mask"][row, : len(window.ids)] = 1
    spans = np.asarray([window.span for window in some], np.int32).reshape(-1, 2)
    return {**found, "start": spans[:, 0], "end": spans[:, 1]}


def best_answers(
    config: QuestionsConfig, some: Sequence[Window], spans: np.ndarray, contexts: Sequence[str]
) -> list[dict[str, Any]]:
    """{"answer", "start" (its character), "score"} for each context: the span with the largest sum of two logits.

    Args:
        config: how long an answer may be, and whether there may be none (then "answer" is "").
        some: windows of these contexts.
        spans: logits of start and end, float [N, length, 2].
        contexts: the texts by the windows' row.
    """
    best: list[dict[str, Any]] = [{"answer": "", "start": -1, "score": -np.inf} for _ in contexts]
    none = np.full(len(contexts), np.inf)
    for window, logits in zip(some, spans, strict=True):
        row, count = window.row, len(window.places)
        if not count:
            continue
        none[row] = min(none[row], float(logits[0].sum()))
        start, end = (logits[window.context : window.context + count, one] for one in (0, 1))
        sums = np.where(_allowed(count, config.longest_answer), start[:, None] + end[None], -np.inf)
        first, last = np.unravel_index(int(np.argmax(sums)), sums.shape)
        score = float(sums[first, last])
        if score > best[row]["score"]:
            begin, stop = window.places[first][0], window.places[last][1]
            best[row] = {"answer": contexts[row][begin:stop], "start": begin, "score": score}
    if config.unanswerable:
        for row, found in enumerate(best):
            if none[row] > found["score"]:
                best[row] = {"answer": "", "start": -1, "score": float(none[row])}
    return best


def _allowed(count: int, longest: int) -> np.ndarray:
    """Which (first, last) token make an answer, bool [count, count]."""
    distance = np.arange(count)[None] - np.arange(count)[:, None]
    return (distance >= 0) & (distance < longest)
