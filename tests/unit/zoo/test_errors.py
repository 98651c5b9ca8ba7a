"""Exit codes and the one line that comes with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.errors import PartlyFailed, Stopped, UserError, exit_code


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("steps=-1; give 1 or more"), 2, "error: steps=-1; give 1 or more\n"),
        (PartlyFailed("2 of 5 files failed"), 4, "error: 2 of 5 files failed\n"),
        (Stopped("saved at step 7"), 75, "stopped: saved at step 7\n"),
        (KeyboardInterrupt(), 130, "stopped: interrupted before there was anything to save\n"),
    ],
)
def test_the_user_reads_one_line(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @exit_code
    def main(argv: list[str]) -> int:
        raise error

    assert main([]) == code
    assert capsys.readouterr() == ("", line)


def test_a_path_below_a_file_is_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")

    @exit_code
    def main(argv: list[str]) -> int:
        (tmp_path / "file" / "run").mkdir(parents=True)
        return 0

    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(tmp_path / "file" / "run") in said and "name a directory" in said


def test_our_bugs_keep_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    @exit_code
    def main(argv: list[str]) -> int:
        raise KeyError("a bug")

    assert main([]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_command_that_ends_well_keeps_its_code() -> None:
    assert exit_code(lambda argv: len(argv))(["a", "b"]) == 2
