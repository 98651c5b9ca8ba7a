"""Alignments from a server that speaks ColabFold's protocol. In folding this alone uses a network, and only when asked.

A search is submitted to HOST/ticket/msa (or HOST/ticket/pair for rows that belong together), asked after at HOST/ticket/ID and
fetched from HOST/result/download/ID: a tar archive whose A3M files hold one alignment per sequence, separated by a zero byte.
"""

from __future__ import annotations

import io
import json
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from typing import Any

from zoo.proteins.search import SearchFailed

FIRST = 101  # the server wants its queries numbered from here
TRIES, PAUSE_S, WAIT_S, TIMEOUT_S, LONGEST_S = 5, 1.0, 5.0, 30.0, 4 * 3600.0
ALONE, PAIRED = ("msa", "env"), ("pair", "pairgreedy")  # (what is asked for, mode): also metagenomes; each species once
WANTED = {"msa": ("uniref.a3m", "bfd.mgnify30.metaeuk30.smag30.a3m"), "pair": ("pair.a3m",)}


def alignment(host: str, chains: Sequence[str], wait_s: float = WAIT_S) -> str:
    """What the server finds for a protein, as one A3M file.

    Args:
        host: such as https://api.colabfold.com.
        chains: sequences. With several different ones the file is ColabFold's of a complex: rows of all chains side by
            side, first those that belong together, then those of each chain alone.
        wait_s: between two questions whether it is done.

    Raises:
        SearchFailed: the server cannot be reached, refuses, or gives what cannot be read.
    """
    different = list(dict.fromkeys(chains))
    found = results(host, different, ALONE, wait_s)
    if len(chains) == 1:
        return "".join(row for part in found for row in records(part[0], keep_query=part is found[0]))
    lengths, copies = zip(*((str(len(chain)), str(chains.count(chain))) for chain in different), strict=True)
    names = "\t".join(str(FIRST + number) for number in range(len(different)))
    text = f"#{','.join(lengths)}\t{','.join(copies)}\n>{names}\n{''.join(different)}\n"
    if len(different) > 1:
        (pairs,) = results(host, different, PAIRED, wait_s)
        rows = [records(one, keep_query=False) for one in pairs]
        if len({len(one) for one in rows}) > 1:
            raise SearchFailed(f"{host}: the paired alignments of the chains have different numbers of rows")
        text += "".join(side_by_side(row) for row in zip(*rows, strict=True))
    for part in found:
        for number in range(len(different)):
            before, after = ("-" * sum(map(len, some)) for some in (different[:number], different[number + 1 :]))
            for row in records(part[number], keep_query=False):
                name, _, sequence = row.rstrip("\n").partition("\n")
                text += f"{name}\n{before}{sequence}{after}\n"
    return text


def side_by_side(rows: Sequence[str]) -> str:
    names, sequences = zip(*(row.rstrip("\n").split("\n", 1) for row in rows), strict=True)
    joined = "\t".join(name.removeprefix(">") for name in names)
    return f">{joined}\n{''.join(sequences)}\n"


def records(text: str, keep_query: bool) -> list[str]:
    """The records of an A3M text, each as two lines; the first is the query."""
    found = []
    for record in text.split(">")[1:]:
        name, _, sequence = record.partition("\n")
        found.append(f">{name.strip()}\n{''.join(sequence.split())}\n")
    return found if keep_query else found[1:]


def results(host: str, sequences: Sequence[str], what: tuple[str, str], wait_s: float) -> list[list[str]]:
    """For each file of the answer the A3M text of each sequence."""
    kind, mode = what
    query = "".join(f">{FIRST + number}\n{sequence}\n" for number, sequence in enumerate(sequences))
    ticket = done(host, kind, {"q": query, "mode": mode}, wait_s)
    packed = asked(f"{host}/result/download/{urllib.parse.quote(ticket)}")
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:  # read in memory; nothing is unpacked to the disk
            members = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
            texts = [file.read().decode() for name in WANTED[kind] if (file := members.get(name)) is not None]
    except (tarfile.TarError, UnicodeDecodeError, EOFError, OSError) as error:
        raise SearchFailed(f"{host}: its answer cannot be read ({error})") from None
    return [by_sequence(text, len(sequences), host) for text in texts]


def by_sequence(text: str, count: int, host: str) -> list[str]:
    found: dict[int, str] = {}
    for part in text.split("\0"):
        number = part.lstrip(">").split("\n", 1)[0].strip()
        if number.isdigit():
            found[int(number) - FIRST] = part
    missing = [number + 1 for number in range(count) if number not in found]
    if missing:
        raise SearchFailed(f"{host}: no alignment of sequence {missing[0]} in its answer")
    return [found[number] for number in range(count)]


def done(host: str, kind: str, query: dict[str, str], wait_s: float) -> str:
    """The ticket of the search, once it is complete."""
    ends = time.monotonic() + LONGEST_S
    body = urllib.parse.urlencode(query).encode()
    answer = status(f"{host}/ticket/{kind}", body)
    while (state := answer.get("status")) != "COMPLETE":
        if state not in ("UNKNOWN", "RATELIMIT", "PENDING", "RUNNING"):
            raise SearchFailed(
                f"{host}: the search ended with {state!r}; try again later, or search databases= of your own"
            )
        if time.monotonic() > ends:
            raise SearchFailed(f"{host}: still {state} after {LONGEST_S / 3600:.0f} hours; the same command asks again")
        time.sleep(wait_s)
        # A server that takes no more for now has given no ticket.
        again = state in ("UNKNOWN", "RATELIMIT")
        answer = status(f"{host}/ticket/{kind}", body) if again else status(f"{host}/ticket/{answer.get('id')}")
    return str(answer.get("id"))


def status(url: str, body: bytes | None = None) -> dict[str, Any]:
    text = asked(url, body)
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise SearchFailed(f"{url}: no server of alignments answers there ({text[:60]!r})")
    return answer


def asked(url: str, body: bytes | None = None) -> bytes:
    """The answer; a server that is busy or out of reach is asked again a few times."""
    request = urllib.request.Request(url, data=body, headers={"User-Agent": "flowaware-zoo"})
    for left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                return response.read()
        except urllib.error.HTTPError as error:
            if error.code < 500 or not left:
                raise SearchFailed(f"{url}: {error.code} {error.reason}") from None
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
            if not left or isinstance(error, ValueError):
                raise SearchFailed(f"{url}: {getattr(error, 'reason', error)}") from None
        time.sleep(PAUSE_S)
    raise AssertionError("the last try returns or raises")
