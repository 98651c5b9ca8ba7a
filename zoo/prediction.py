"""Records in, records out: in batches, one line of JSON each, going on where an earlier run stopped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import PartlyFailed, Stopped, UserError

# What predictions are called; a record may have a column of the same name, in whose place they are written.
PREDICTED = frozenset("answer embedding error fills generated label labels probabilities score start value".split())
Record = dict[str, Any]


class Numbered(Record):
    """A record that knows its number in the file, from 0 on."""

    number: int


Predictor = Callable[[Sequence[Record]], list[Record]]


def run(
    records: Iterable[Record],
    predict: Predictor,
    output: Path,
    batch: int,
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
    maker: Mapping[str, str] | None = None,
) -> int:
    """Writes a line for each record: the record with what was predicted, in order. Returns the number of lines.

    Lines that `output` already has are of the first records and are kept; a line that was cut off is written anew. A record that
    cannot be predicted (UserError) gets "error" in place of a prediction.

    Args:
        records: as they come from a file.
        predict: some records to as many predictions.
        output: a file of JSON lines.
        batch: records at a time.
        say: told what is going on.
        stopped: asked before each batch: whether to end here.
        maker: what predicts: kept beside `output`, since lines of another are none of these.

    Raises:
        Stopped: it was so.
        PartlyFailed: some records have an error.
        UserError: the lines that are there are of other records or another maker, or no record of the first batch can be
            predicted.
    """
    lines, remaining = _kept(output), _numbered(records)
    done, failed = len(lines), sum("error" in line for line in lines)
    _check_lines(output, lines, remaining)
    if lines:
        _check_maker(output, maker or {})
    if done:
        say(f"{output} has {done} lines already; going on after them")
    some = list(itertools.islice(remaining, batch))
    first = _predicted(predict, some) if some and not done and not stopped() else None
    if first is not None and len(first) > 1 and all(one.keys() == {"error"} and one == first[0] for one in first):
        raise UserError(first[0]["error"])  # not one bad record, but another kind of file
    output.parent.mkdir(parents=True, exist_ok=True)
    if not lines:
        _beside(output).write_text(json.dumps(dict(maker or {})), encoding="utf-8")
    with output.open("a", encoding="utf-8") as file:
        while some:
            if stopped():
                raise Stopped(f"{done} records are in {output}; the same command goes on after them")
            predicted, first = first if first is not None else _predicted(predict, some), None
            for record, found in zip(some, predicted, strict=True):
                failed += "error" in found
                file.write(json.dumps({**record, **found}, ensure_ascii=False) + "\n")
            file.flush()
            done += len(some)
            say(f"{done} records")
            some = list(itertools.islice(remaining, batch))
    if failed:
        raise PartlyFailed(f'{failed} of {done} records failed; their lines in {output} have "error"')
    return done


def _numbered(records: Iterable[Record]) -> Iterator[Record]:
    for number, record in enumerate(records):
        made = Numbered(record)
        made.number = number
        yield made


def _predicted(predict: Predictor, some: Sequence[Record]) -> list[Record]:
    try:
        return predict(some)
    except UserError as error:
        if len(some) == 1:
            return [{"error": str(error)}]
        return [_predicted(predict, [one])[0] for one in some]


def _check_lines(output: Path, lines: Sequence[Record], records: Iterator[Record]) -> None:
    """Takes as many records as there are lines. Raises UserError where a line is not of its record."""
    number = 0
    for number, (line, record) in enumerate(zip(lines, records, strict=False), start=1):
        given = json.loads(json.dumps(record)).items()
        if any(line.get(name) != value for name, value in given if name not in PREDICTED):
            raise UserError(f"line {number} of {output} is of another record; name another output, or remove that file")
    if number < len(lines):
        raise UserError(
            f"{output} has {len(lines)} lines, and the input {number} records; name another output, or remove that file"
        )


def _beside(output: Path) -> Path:
    return output.with_name(f".{output.name}.from")


def _check_maker(output: Path, maker: Mapping[str, str]) -> None:
    """Raises UserError where the lines are known to be of another one."""
    try:
        before = json.loads(_beside(output).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    other = [name for name in (*maker, *(set(before) - set(maker))) if before.get(name) != maker.get(name)]
    if other:
        raise UserError(
            f"the lines of {output} were made with another {' and '.join(sorted(other))}; name another output, or remove it"
        )


def _kept(output: Path) -> list[Record]:
    """The whole lines that there are; what follows them is cut off."""
    if not output.exists():
        return []
    content = output.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        output.write_bytes(whole)
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError:
        raise UserError(f"{output} is there and is no JSON lines; name another output") from None


def text_of(record: Record, column: str, what: str = "text") -> str:
    """The text of a record. Raises UserError where it has none, or an empty one; the sentence lists what it has.

    Args:
        what: what the text is, for the sentence.
    """
    value = record.get(column)
    if value is None and column in record:
        raise UserError(f"{column!r} is null, which is no {what}")
    if value is None:
        raise UserError(f"no {what} in {column!r}; the record has {', '.join(record) or 'nothing'}")
    if not isinstance(value, str):
        raise UserError(f"{column!r} is {json.dumps(value)[:60]}, which is no {what}")
    if not value.strip():
        raise UserError(f"{column!r} is empty")
    return value
