"""Downloads from a server on this machine that breaks off, ignores ranges, and sends something else."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from zoo.data import download as module
from zoo.data.cards import Archive, Card, card
from zoo.data.choice import open_dataset
from zoo.data.download import download, fetch
from zoo.data.images import DataConfig
from zoo.errors import UserError

CONTENT = np.random.default_rng(0).integers(0, 256, 3_000_000, dtype=np.uint8).tobytes()


@dataclasses.dataclass
class Server:
    """What the server does, and what it was asked."""

    content: bytes = CONTENT
    breaks_after: int | None = None
    knows_ranges: bool = True
    status: int = 200
    ranges: list[str | None] = dataclasses.field(default_factory=list)
    port: int = 0

    @property
    def archive(self) -> Archive:
        return Archive(
            f"http://127.0.0.1:{self.port}/files.tar.gz", len(CONTENT), f"sha256:{sha256(CONTENT)}", "files", 1000
        )


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.ranges.append(asked)
            if state.status != 200:
                self.send_error(state.status)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and state.knows_ranges else 0
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(state.content) - 1}/{len(state.content)}")
            self.send_header("Content-Length", str(len(state.content) - start))
            self.end_headers()
            end = None if state.breaks_after is None else start + state.breaks_after
            self.wfile.write(state.content[start:end])

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        state.port = running.server_address[1]
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield state
        running.shutdown()


def test_a_file_arrives_whole_and_progress_is_told(server: Server, tmp_path: Path) -> None:
    seen: list[int] = []
    download(server.archive, tmp_path / "file", seen.append)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert seen == sorted(seen) and seen[-1] == len(CONTENT)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_broken_connection_is_taken_up_where_it_broke(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 1_000_000
    download(server.archive, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000000-", "bytes=2000000-"]


def test_an_interrupted_run_goes_on_in_the_next(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT[:2_500_000])
    download(server.archive, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.ranges == ["bytes=2500000-"]


def test_a_server_without_ranges_sends_it_all_again(server: Server, tmp_path: Path) -> None:
    server.knows_ranges = False
    (tmp_path / "file.part").write_bytes(b"x" * 2_999_000)
    download(server.archive, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_another_content_is_refused_with_both_checksums_and_not_kept(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(UserError, match=f"should be sha256:{sha256(CONTENT)} and is sha256:{sha256(server.content)}"):
        download(server.archive, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_server_that_always_breaks_off_leaves_the_part_for_the_next_run(server: Server, tmp_path: Path) -> None:
    server.breaks_after = 1000
    with pytest.raises(UserError, match="after 5,000 of 3,000,000 bytes; run the same command again to go on"):
        download(server.archive, tmp_path / "file")
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:5000]


@pytest.mark.parametrize("status", [404, 503])
def test_a_refusal_is_told_with_its_reason(server: Server, tmp_path: Path, status: int) -> None:
    server.status = status
    with pytest.raises(UserError, match=r"files.tar.gz cannot be fetched: .*after 0 of"):
        download(server.archive, tmp_path / "file")
    assert len(server.ranges) == 1 and not list(tmp_path.iterdir())


def test_no_server_is_told_at_once(tmp_path: Path) -> None:
    archive = Archive("http://127.0.0.1:9/file", 10, "sha256:00", "files", 10)
    with pytest.raises(UserError, match="http://127.0.0.1:9/file cannot be fetched: .*refused"):
        download(archive, tmp_path / "file")


def packed(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def small_set(server: Server, monkeypatch: pytest.MonkeyPatch) -> Card:
    """CIFAR-10 of two images, its card pointing at the server."""
    record = bytes([1]) + bytes(3072)
    server.content = packed(
        {"files/data_batch_1.bin": record, "files/test_batch.bin": record, "files/other": b"", "../evil": b"x"}
    )
    archive = dataclasses.replace(
        server.archive, bytes=len(server.content), checksum=f"sha256:{sha256(server.content)}"
    )
    files = {name: f"sha256:{sha256(record)}" for name in ("data_batch_1.bin", "test_batch.bin")}
    small = dataclasses.replace(card("cifar10"), archive=dataclasses.replace(archive, folder="files"), files=files)
    monkeypatch.setattr(module, "card", lambda name: small)
    return small


def test_fetch_unpacks_the_listed_files_and_nothing_else(server: Server, small_set: Card, tmp_path: Path) -> None:
    folder = fetch("cifar10", tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["data_batch_1.bin", "test_batch.bin"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["files"]
    assert fetch("cifar10", tmp_path) == folder and len(server.ranges) == 1


def test_processes_that_fetch_at_once_download_once(server: Server, small_set: Card, tmp_path: Path) -> None:
    threads = [threading.Thread(target=fetch, args=("cifar10", tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.ranges) == 1


def test_too_little_space_is_told_before_anything_is_fetched(
    server: Server, small_set: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small_set.archive is not None
    huge = dataclasses.replace(small_set, archive=dataclasses.replace(small_set.archive, unpacked_bytes=2**60))
    monkeypatch.setattr(module, "card", lambda name: huge)
    with pytest.raises(UserError, match="MiB free, but 1,099,511,627,776 MiB are needed"):
        fetch("cifar10", tmp_path)
    assert not server.ranges


def test_an_archive_put_there_by_hand_is_verified(server: Server, small_set: Card, tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10/files.tar.gz").write_bytes(b"something else")
    with pytest.raises(UserError, match="files.tar.gz is not the file that .* sha256:[0-9a-f]{64} and is sha256:"):
        fetch("cifar10", tmp_path)
    (tmp_path / "cifar10/files.tar.gz").write_bytes(server.content)
    assert fetch("cifar10", tmp_path).is_dir() and not server.ranges


def test_a_rehearsal_does_not_pass_over_a_damaged_archive(small_set: Card, tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10/files.tar.gz").write_bytes(b"something else")
    with pytest.raises(UserError, match="files.tar.gz is not the file that"):
        open_dataset(DataConfig("cifar10", image_size=16, global_batch=4), tmp_path, 10, rehearsal=True)


def test_a_missing_data_set_is_an_error_in_training_and_digits_in_a_rehearsal(
    server: Server, small_set: Card, tmp_path: Path
) -> None:
    server.status = 404
    tmp_path = tmp_path / "deep/data"
    config = DataConfig("cifar10", image_size=16, global_batch=4)
    with pytest.raises(UserError, match="no CIFAR-10 in data_dir=.*python -m zoo.data.download cifar10 --data-dir"):
        open_dataset(config, tmp_path, 10, rehearsal=False)
    assert not tmp_path.parent.exists()
    dataset = open_dataset(config, tmp_path, 10, rehearsal=True)
    assert dataset.name == "digits"
    assert "handwritten digits, enlarged to 16x16 pixels" in dataset.announcement and "\n" not in dataset.announcement
