"""A server of alignments is asked patiently, believed only where it makes sense, and its answer is read as ColabFold's own file."""

from __future__ import annotations

import io
import json
import tarfile
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from zoo.folding.inputs import read_items
from zoo.folding.options import PredictOptions
from zoo.folding.searching import with_alignments
from zoo.proteins import server
from zoo.proteins.search import SearchFailed

A, B = "ACDEFGHIKL", "MNPQRST"
ALONE = {
    "uniref.a3m": f">101\n{A}\n>u1\nACDEFGHIK-\n\0>102\n{B}\n>u2\nMNPQRS-\n",
    "bfd.mgnify30.metaeuk30.smag30.a3m": f">101\n{A}\n>b1\nACDEaFGHIKL\n\0>102\n{B}\n",
}
PAIRS = {"pair.a3m": f">101\n{A}\n>p1\nACDEFGH--L\n\0>102\n{B}\n>p2\nMNP-RST\n"}


def packed(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture
def host() -> Iterator[Callable[..., tuple[str, list[str]]]]:
    """Starts a server whose states and files are given; what it was asked is in the list."""
    running: list[ThreadingHTTPServer] = []

    def start(states: list[str], broken: bytes | None = None) -> tuple[str, list[str]]:
        asked: list[str] = []
        left = list(states)

        class Answers(BaseHTTPRequestHandler):
            def say(self, body: bytes) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def state(self, ticket: str) -> None:
                now = left.pop(0) if left else "COMPLETE"
                self.say(json.dumps({"id": ticket, "status": now}).encode())

            def do_POST(self) -> None:
                words = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                asked.append(f"{self.path} {words['mode'][0]} {words['q'][0].count('>')}")
                self.state(self.path.rsplit("/", 1)[1])

            def do_GET(self) -> None:
                ticket = self.path.rsplit("/", 1)[1]
                if "download" not in self.path:
                    return self.state(ticket)
                return self.say(broken if broken is not None else packed(PAIRS if ticket == "pair" else ALONE))

            def log_message(self, *args: Any) -> None:
                pass

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Answers))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_address[1]}", asked

    yield start
    for one in running:
        one.shutdown()
        one.server_close()


def test_a_chain_has_the_rows_of_all_databases_once_with_its_query(host: Any) -> None:
    url, asked = host(["RATELIMIT", "PENDING", "RUNNING"])
    text = server.alignment(url, [A], wait_s=0.001)
    assert text == f">101\n{A}\n>u1\nACDEFGHIK-\n>b1\nACDEaFGHIKL\n"
    assert asked == ["/ticket/msa env 1"] * 2  # one more time after RATELIMIT


def test_a_complex_is_read_with_its_pairs(host: Any, tmp_path: Path) -> None:
    url, asked = host([])
    (tmp_path / "in.fasta").write_text(f">x\n{A}:{B}\n>bad\nA-C\n")
    options, said = PredictOptions(msa_server=url), []
    items = read_items(tmp_path / "in.fasta", None)
    (item, _) = with_alignments(items, options, tmp_path / "out", said.append)
    assert asked == ["/ticket/msa env 2", "/ticket/pair pairgreedy 2"] and "found 4 rows" in said[0]
    assert item.paired_by_row and [len(rows) for rows in item.pairing] == [2, 2]
    assert [len(rows[0]) for rows in item.alignments] == [3, 2]  # the chain itself, u1 and b1; the chain itself and u2
    assert item.alignments[0][0].deletions[2].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
    with_alignments(items, options, tmp_path / "out", said.append)
    assert len(asked) == 2  # what it answered before is kept


@pytest.mark.parametrize(
    ("states", "broken", "text"),
    [
        (["ERROR"], None, "ended with 'ERROR'"),
        (["MAINTENANCE"], None, "ended with 'MAINTENANCE'"),
        ([], b"no archive", "cannot be read"),
        ([], packed({"uniref.a3m": f">102\n{B}\n"}), "no alignment of sequence 1"),
    ],
)
def test_what_goes_wrong_is_said(host: Any, states: list[str], broken: bytes | None, text: str) -> None:
    url, _ = host(states, broken)
    with pytest.raises(SearchFailed, match=text):
        server.alignment(url, [A], wait_s=0.001)


def test_a_server_that_is_not_there_fails_its_protein_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TRIES", 1)
    (tmp_path / "in.fasta").write_text(f">x\n{A}\n")
    options = PredictOptions(msa_server="http://127.0.0.1:9")
    (item,) = with_alignments(read_items(tmp_path / "in.fasta", None), options, tmp_path / "out", lambda line: None)
    assert item.failed and "127.0.0.1:9" in item.reason and not (tmp_path / "out").exists()


def test_where_to_search_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both say where"):
        PredictOptions(msa_server="https://host", databases=tmp_path)
    with pytest.raises(ValueError, match="https://HOST"):
        PredictOptions(msa_server="host")
