"""Predictions go on where they stopped, keep their order, and say which records failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zoo.errors import PartlyFailed, UserError
from zoo.prediction import run, text_of

RECORDS = [{"text": str(number)} for number in range(7)]


def doubled(some: list) -> list:
    return [{"twice": 2 * int(text_of(record, "text"))} for record in some]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_record_has_its_line(tmp_path: Path) -> None:
    said: list[str] = []
    assert run(RECORDS, doubled, tmp_path / "new" / "out.jsonl", 3, said.append) == 7
    assert [line["twice"] for line in lines(tmp_path / "new" / "out.jsonl")] == [0, 2, 4, 6, 8, 10, 12]
    assert said == ["3 records", "6 records", "7 records"]


def test_a_second_run_goes_on_after_whole_lines(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text('{"text": "0", "twice": 0}\n{"text": "1", "twice": 2}\n{"text": "2", "tw')
    asked: list[dict] = []
    run(RECORDS, lambda some: asked.extend(some) or doubled(some), out, 4, lambda line: None)  # type: ignore[func-returns-value]
    assert asked == RECORDS[2:]
    assert [line["twice"] for line in lines(out)] == [0, 2, 4, 6, 8, 10, 12]


def test_a_bad_record_has_an_error_and_the_others_are_done(tmp_path: Path) -> None:
    def careful(some: list) -> list:
        if any(record["text"] == "4" for record in some):
            raise UserError("no four")
        return doubled(some)

    with pytest.raises(PartlyFailed, match="1 of 7 records failed"):
        run(RECORDS, careful, tmp_path / "out.jsonl", 3, lambda line: None)
    found = lines(tmp_path / "out.jsonl")
    assert found[4] == {"text": "4", "error": "no four"} and found[5]["twice"] == 10


def test_a_record_without_text_lists_what_it_has() -> None:
    with pytest.raises(UserError, match="no text in 'text'; the record has body, id"):
        text_of({"body": "x", "id": 1}, "text")
    with pytest.raises(UserError, match="'text' is 3, which is no text"):
        text_of({"text": 3}, "text")
    with pytest.raises(UserError, match="'text' is null"):
        text_of({"text": None}, "text")


def test_lines_of_other_records_are_not_taken_for_these(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text('{"text": "9", "twice": 18}\n')
    with pytest.raises(UserError, match=r"line 1 of .*out.jsonl is of another record; name another output"):
        run(RECORDS, doubled, out, 4, lambda line: None)
    out.write_text(
        '{"text": "0", "label": "predicted", "twice": 0}\n'
    )  # a label of the record gave way to the prediction
    assert run([{**RECORDS[0], "label": "given"}, RECORDS[1]], doubled, out, 4, lambda line: None) == 2


def test_more_lines_than_records_are_of_another_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run(RECORDS, doubled, out, 4, lambda line: None)
    with pytest.raises(UserError, match="has 7 lines, and the input 3 records; name another output"):
        run(RECORDS[:3], doubled, out, 4, lambda line: None)
    assert len(lines(out)) == 7


def test_a_file_of_another_kind_is_refused_whole(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no text in 'text'; the record has body"):
        run([{"body": "a"}, {"body": "b"}], doubled, tmp_path / "out.jsonl", 2, lambda line: None)
    assert not list(tmp_path.iterdir())


def test_lines_of_other_weights_are_not_taken_for_these(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    run(RECORDS[:3], doubled, out, 4, lambda line: None, maker={"init_from": "a", "task": ""})
    with pytest.raises(
        UserError, match=r"out.jsonl were made with another init_from; name another output, or remove it"
    ):
        run(RECORDS, doubled, out, 4, lambda line: None, maker={"init_from": "b", "task": ""})
    with pytest.raises(UserError, match=r"were made with another length and stride;"):
        run(
            RECORDS,
            doubled,
            out,
            4,
            lambda line: None,
            maker={"init_from": "a", "task": "", "length": "9", "stride": "1"},
        )
    assert run(RECORDS, doubled, out, 4, lambda line: None, maker={"init_from": "a", "task": ""}) == 7
    out.unlink()
    assert run(RECORDS, doubled, out, 4, lambda line: None, maker={"init_from": "b", "task": ""}) == 7


def test_a_record_keeps_its_number_whatever_was_predicted_before(tmp_path: Path) -> None:
    def numbers(some: list) -> list:
        return [{"value": record.number} for record in some]

    out, other = tmp_path / "out.jsonl", tmp_path / "other.jsonl"
    run(RECORDS, numbers, out, 2, lambda line: None)
    run(RECORDS[:3], numbers, other, 4, lambda line: None)
    run(RECORDS, numbers, other, 3, lambda line: None)
    assert out.read_text() == other.read_text()
    assert [json.loads(line)["value"] for line in out.read_text().splitlines()] == list(range(7))
