"""Who holds a folder is alone in it, and leaves no trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from zoo.locks import locked

HOLDER = """
import sys
from pathlib import Path
from zoo.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_holder_is_told_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    place = tmp_path / "new/folder"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with locked(place, wait=False) as free:
        assert not free
    assert place.is_dir()
    holder.kill()
    holder.communicate()
    with locked(place, wait=False) as free:
        assert free
    assert not (place / ".lock").exists()


def test_an_empty_folder_goes_with_its_lock(tmp_path: Path) -> None:
    with locked(tmp_path / "new/folder") as free:
        assert free
    assert list(tmp_path.iterdir()) == []
