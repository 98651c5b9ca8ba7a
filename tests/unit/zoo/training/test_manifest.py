"""The manifest names the file that changed, whatever changed about it."""

from __future__ import annotations

import json

import pytest

from zoo.training import manifest


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "data").write_bytes(bytes(range(200)))
    (tmp_path / "empty").touch()
    manifest.write(tmp_path)
    return tmp_path


def found(folder):
    listed = manifest.read(folder)
    return [listed] if isinstance(listed, manifest.Damage) else manifest.damages(folder, sorted(listed.items()))


def test_what_was_written_is_whole(folder):
    assert found(folder) == []
    entry = manifest.read(folder)["a/b/data"]
    assert entry.size == 200 and len(entry.sha256) == 64
    assert set(manifest.read(folder)) == {"a/b/data", "empty"}


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "has 199 bytes, the manifest says 200"),
        (lambda file: file.write_bytes(b"!" + file.read_bytes()[1:]), "has sha256 "),
        (lambda file: file.unlink(), "is missing"),
        (lambda file: (file.unlink(), file.mkdir()), " bytes, the manifest says 200"),
    ],
)
def test_a_changed_file_is_named(folder, change, reason):
    change(folder / "a" / "b" / "data")
    (damage,) = found(folder)
    assert damage.file == "a/b/data" and reason in str(damage)


def test_a_changed_manifest_is_blamed_itself(folder):
    content = (folder / manifest.NAME).read_text()
    digit = content.index("sha256") + 11
    changes = ["", "{", "[]", '{"files": 3, "sha256": ""}', content[:digit] + "x" + content[digit + 1 :]]
    for changed in changes:
        (folder / manifest.NAME).write_text(changed)
        assert [damage.file for damage in found(folder)] == [manifest.NAME]
    (folder / manifest.NAME).unlink()
    assert str(found(folder)[0]) == "manifest.json is missing"
    manifest.write(folder)
    assert json.loads((folder / manifest.NAME).read_text()) == json.loads(content)
