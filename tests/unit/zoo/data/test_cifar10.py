"""CIFAR-10 files in both layouts, whole, partial, damaged and malicious."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from zoo.data import cifar10
from zoo.data.cards import card
from zoo.errors import UserError

RNG = np.random.default_rng(0)
LABELS = np.asarray([3, 9, 0, 5], np.uint8)
PIXELS = RNG.integers(0, 256, (4, 3072), dtype=np.uint8)
BINARY = np.concatenate([LABELS[:, None], PIXELS], axis=1).tobytes()
BATCH = {b"batch_label": b"part 1 of 5", b"labels": LABELS.tolist(), b"data": PIXELS, b"filenames": [b"a.png"] * 4}


def python2_pickle() -> bytes:
    """The instructions that Python 2 and numpy write for such a batch, spelt out."""

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + len(text).to_bytes(4, "little") + text

    dtype = b"cnumpy\ndtype\nq\x04(" + string(b"u1") + b"K\x00K\x01tq\x05Rq\x06(K\x03" + string(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x01(cnumpy\nndarray\nq\x02K\x00\x85" + string(b"b") + b"tq\x03R"
    array += b"(K\x01K\x04M\x00\x0c\x86" + dtype + b"\x89" + string(PIXELS.tobytes()) + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in LABELS) + b"e"
    return b"\x80\x02}q\x00(" + string(b"data") + array + string(b"labels") + labels + b"u."


def read(path: Path, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    path.write_bytes(content)
    batch = cifar10.read_file(path, {})
    return batch.images, batch.labels


def check(images: np.ndarray, labels: np.ndarray) -> None:
    np.testing.assert_array_equal(labels, LABELS)
    np.testing.assert_array_equal(images.transpose(0, 3, 1, 2).reshape(4, 3072), PIXELS)


def test_binary_layout(tmp_path: Path) -> None:
    check(*read(tmp_path / "data_batch_1_part.bin", BINARY))
    check(*read(tmp_path / "data_batch_1_part.bin.gz", gzip.compress(BINARY)))


def test_python_layout_as_python_2_wrote_it(tmp_path: Path) -> None:
    content = python2_pickle()
    assert np.array_equal(pickle.loads(content, encoding="bytes")[b"data"], PIXELS)  # noqa: S301  # the test's own bytes
    check(*read(tmp_path / "data_batch_1_part", content))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_python_layout_as_python_3_writes_it(tmp_path: Path, protocol: int) -> None:
    check(*read(tmp_path / "data_batch_1_part", pickle.dumps(BATCH, protocol)))
    check(*read(tmp_path / "data_batch_1_part.gz", gzip.compress(pickle.dumps(BATCH, protocol))))


class Malicious:
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple:
        return os.mkdir, (self.folder,)


@pytest.mark.parametrize("key", [b"data", b"labels", b"other"])
def test_code_in_a_pickle_is_never_run(tmp_path: Path, key: bytes) -> None:
    victim = tmp_path / "victim"
    content = pickle.dumps({**BATCH, key: Malicious(str(victim))})
    path = tmp_path / "data_batch_1_part"
    path.write_bytes(content)
    try:
        cifar10.read_file(path, {})
        assert key == b"other"  # read past, as a record
    except UserError as error:
        assert str(path) in str(error)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"no pickle at all", "not a whole pickle|not one that a batch"),
        (pickle.dumps(BATCH)[:-200], "not a whole pickle"),
        (pickle.dumps([1, 2]), "holds a list in place of a dictionary"),
        (pickle.dumps({b"labels": [1]}), "it has no data"),
        (pickle.dumps({**BATCH, b"labels": [1, 2]}), r"shape \(4, 3072\) and 2 labels"),
        (pickle.dumps({**BATCH, b"labels": ["x"] * 4}), "not a list of whole numbers"),
        (pickle.dumps({**BATCH, b"data": PIXELS.astype(np.float32)}), "not of dtype uint8"),
        (pickle.dumps({**BATCH, b"data": 1.5}), "BINFLOAT"),
        (pickle.dumps({**BATCH, b"labels": [1, 2, 3, 10]}), "label 10"),
    ],
)
def test_what_is_no_batch_is_refused_by_name(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(UserError, match=text) as caught:
        read(tmp_path / "data_batch_7", content)
    assert str(tmp_path / "data_batch_7") in str(caught.value)


def test_a_file_of_a_wrong_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"part\.bin has 12291 bytes.*3073-byte images"):
        read(tmp_path / "data_batch_1_part.bin", BINARY[:-1])


@pytest.mark.parametrize("name", ["data_batch_1.bin", "data_batch_1.bin.gz", "test_batch"])
def test_a_damaged_official_file_is_named_with_both_checksums(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(BINARY) if name.endswith("gz") else BINARY)
    expected = card("cifar10").files[name.removesuffix(".gz")]
    with pytest.raises(UserError, match=f"{name} is damaged: its checksum should be {expected} and is (sha256|md5):"):
        cifar10.read_file(path, card("cifar10").files)


@pytest.mark.parametrize("damage", ["flip", "cut", "checksum"])
def test_a_damaged_compressed_file_is_named_with_both_checksums(tmp_path: Path, damage: str) -> None:
    content = bytearray(gzip.compress(BINARY))
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2 if damage == "flip" else -6] ^= 255
    path = tmp_path / "data_batch_1_part.bin.gz"
    path.write_bytes(content)
    with pytest.raises(
        UserError, match="part.bin.gz is damaged: its checksum should be crc32:[0-9a-f]{8} and is crc32:"
    ):
        cifar10.read_file(path, {})


@pytest.mark.parametrize("folder", cifar10.FOLDERS)
def test_files_are_found_in_every_usual_place(tmp_path: Path, folder: str) -> None:
    assert cifar10.find(tmp_path) is None
    place = tmp_path / folder
    place.mkdir(parents=True, exist_ok=True)
    for name in ("test_batch.bin", "data_batch_2.bin", "data_batch_1.bin", "batches.meta.txt", "readme.html"):
        (place / name).write_bytes(BINARY)
    files = cifar10.find(tmp_path)
    assert files is not None
    assert [path.name for path in files.train] == ["data_batch_1.bin", "data_batch_2.bin"]
    assert [path.name for path in files.test] == ["test_batch.bin"]


def test_one_split_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1.bin").write_bytes(BINARY)
    with pytest.raises(UserError, match="data_batch_1.bin is there, but no test_batch beside it"):
        cifar10.find(tmp_path)


def test_a_part_of_the_set_is_announced(tmp_path: Path) -> None:
    for name in ("data_batch_1_part.bin", "test_batch_part.bin"):
        (tmp_path / name).write_bytes(BINARY)
    files = cifar10.find(tmp_path)
    assert files is not None
    assert "a part: 4 of 50,000 and 4 of 10,000 images" in cifar10.open_cifar10(files).announcement


def test_the_card_s_statistics_are_those_of_the_data(reference_data: Path) -> None:
    files = cifar10.find(reference_data / "images")
    assert files is not None
    dataset = cifar10.open_cifar10(files)
    images, labels = dataset.train.take(np.arange(len(dataset.train)), 32)
    assert len(labels) == 4000 and list(labels[:10]) == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    pixels = images.reshape(-1, 3) / 255
    # 4000 of 50,000 images: the statistics of the part lie this close to those of the whole.
    np.testing.assert_allclose(pixels.mean(axis=0), dataset.mean, atol=5e-3)
    np.testing.assert_allclose(pixels.std(axis=0), dataset.std, atol=5e-3)
    _, labels = dataset.test.take(np.arange(1000), 32)
    assert list(np.bincount(labels)) == [103, 89, 100, 103, 90, 86, 112, 102, 106, 109]
