"""Documents of text from the files that people have: txt, WikiText, JSON lines, CSV, Parquet, plain or gzipped."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from zoo.errors import UserError

ENCODING = "utf-8-sig"
"""UTF-8, with or without the mark that spreadsheets put before it."""
TITLE = re.compile(r" ?= [^=].* = ?")
ENDINGS = (".txt", ".raw", ".tokens", ".json", ".jsonl", ".csv", ".tsv", ".parquet")


def documents(path: Path, column: str = "text") -> Iterator[str]:
    """The documents of one file, in order.

    *.raw, *.tokens: WikiText; an article a document, its paragraphs a line each.
    *.txt: a blank line ends a document.
    *.json, *.jsonl: an object a line; *.csv, *.tsv: a header, then a row each; *.parquet. Of these `column` is taken.
    All but Parquet may end in .gz.

    Raises:
        UserError: the file is damaged, or has no such column, or its kind is not known.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    if kind in ("raw", "tokens"):
        yield from _wikitext(path)
    elif kind == "txt":
        yield from _paragraphs(path)
    else:
        yield from (str(record[column]) for record in records(path, (column,)))


def records(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The rows of a table (JSON lines, CSV, TSV or Parquet), each with at least `columns`.

    Raises:
        UserError: the file is empty or damaged, or a column is missing: the sentence lists those that are there.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    readers: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
        "json": _json_lines,
        "jsonl": _json_lines,
        "csv": _separated,
        "tsv": _separated,
        "parquet": _parquet,
    }
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file")
    if kind not in readers:
        raise UserError(f"{path} has the ending .{kind}; known are {', '.join(ENDINGS)}, and these with .gz")
    if not path.is_file():
        raise UserError(f"{path} does not exist")
    number = 0
    for number, row in enumerate(readers[kind](path), start=1):
        missing = [name for name in columns if row.get(name) is None]
        if missing:
            there = ", ".join(str(name) for name in row if row[name] is not None)
            what = "value for" if missing[0] in row else "column"
            raise UserError(f"{path}, record {number}, has no {what} {missing[0]}; it has {there or 'none'}")
        yield row
    if not number:
        raise UserError(f"{path} is empty" if not path.stat().st_size else f"{path} has no records")


def lines(path: Path) -> Iterator[str]:
    """The lines of a text file without their ends.

    Raises:
        UserError: the file is damaged or is not UTF-8.
    """
    number = 0
    try:
        with _opened(path) as file:
            for line in file:
                number += 1
                yield line.rstrip("\r\n")
    except (zlib.error, EOFError, gzip.BadGzipFile):
        raise UserError(f"{path} is damaged after line {number}: it cannot be decompressed; get it again") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}); convert it") from None


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return io.TextIOWrapper(gzip.open(path), encoding=ENCODING, newline="\n")
    return path.open(encoding=ENCODING, newline="\n")


def _wikitext(path: Path) -> Iterator[str]:
    article: list[str] = []
    for line in lines(path):
        if TITLE.fullmatch(line) and article:
            yield "\n".join(article)
            article = []
        if line.strip():
            article.append(line.strip())
    if article:
        yield "\n".join(article)


def _paragraphs(path: Path) -> Iterator[str]:
    document: list[str] = []
    for line in lines(path):
        if line.strip():
            document.append(line.strip())
        elif document:
            yield "\n".join(document)
            document = []
    if document:
        yield "\n".join(document)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}, line {number}, is not JSON: {error}; each line should be one object") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}, is not a JSON object but {type(row).__name__}")
        yield row


def _separated(path: Path) -> Iterator[dict[str, Any]]:
    separator = "\t" if ".tsv" in path.suffixes else ","
    # Lines keep their ends: a quoted field may go over several.
    reader = csv.DictReader((f"{line}\n" for line in lines(path)), delimiter=separator)
    names = reader.fieldnames or []
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise UserError(f"{path} has the column {twice[0]!r} {names.count(twice[0])} times; each name once")
    for row in reader:
        if None in row:
            raise UserError(
                f"{path}, line {reader.line_num}, has more fields than the {len(row) - 1} columns of the header; "
                "put texts with a separator into quotes"
            )
        if None in row.values():
            raise UserError(
                f"{path}, line {reader.line_num}, has fewer fields than the {len(row)} columns of the header; "
                "a quote may not be closed"
            )
        yield row


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    try:
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise UserError(f"{path} needs pyarrow; run: pip install 'flowaware-zoo[text]'") from None
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except ArrowInvalid as error:
        raise UserError(f"{path} is no Parquet file, or is damaged: {str(error).splitlines()[0]}") from None
