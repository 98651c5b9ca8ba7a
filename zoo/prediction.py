"""Records in, records out: in batches, one line of JSON each, going on where an earlier run stopped."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from zoo.errors import PartlyFailed, Stopped, UserError

Record = dict[str, Any]
Predictor = Callable[[Sequence[Record]], list[Record]]


def run(
    records: Iterable[Record],
    predict: Predictor,
    output: Path,
    batch: int,
    say: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
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

    Raises:
        Stopped: it was so.
        PartlyFailed: some records have an error.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    done, failed = _kept(output)
    if done:
        say(f"{output} has {done} lines already; going on after them")
    remaining = itertools.islice(iter(records), done, None)
    with output.open("a", encoding="utf-8") as file:
        while some := list(itertools.islice(remaining, batch)):
            if stopped():
                raise Stopped(f"{done} records are in {output}; the same command goes on after them")
            for record, found in zip(some, _predicted(predict, some), strict=True):
                failed += "error" in found
                file.write(json.dumps({**record, **found}, ensure_ascii=False) + "\n")
            file.flush()
            done += len(some)
            say(f"{done} records")
    if failed:
        raise PartlyFailed(f'{failed} of {done} records failed; their lines in {output} have "error"')
    return done


def _predicted(predict: Predictor, some: Sequence[Record]) -> list[Record]:
    try:
        return predict(some)
    except UserError as error:
        if len(some) == 1:
            return [{"error": str(error)}]
        return [_predicted(predict, [one])[0] for one in some]


def _kept(output: Path) -> tuple[int, int]:
    """How many whole lines there are, and how many of them have an error; what follows them is cut off."""
    if not output.exists():
        return 0, 0
    content = output.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        output.write_bytes(whole)
    lines = whole.splitlines()
    return len(lines), sum("error" in json.loads(line) for line in lines)


def text_of(record: Record, column: str) -> str:
    """The text of a record. Raises UserError where it has none, or an empty one; the sentence lists what it has."""
    value = record.get(column)
    if not isinstance(value, str):
        raise UserError(f"no text in {column!r}; the record has {', '.join(record) or 'nothing'}")
    if not value.strip():
        raise UserError(f"{column!r} is empty")
    return value
