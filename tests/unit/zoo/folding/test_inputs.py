"""The work list: names, duplicates, and all that is wrong at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.errors import UserError
from zoo.folding.inputs import passed_over, read_items


def test_good_bad_and_duplicate_records_each_have_an_item(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">a\nACDE\n>a\nACDE\n>a\nACDF\n>bad\nAC-\n>a/b\nMK\n>A\nWW\n")
    items = {item.name: item for item in read_items(tmp_path, None)}
    assert set(items) == {"a", "a_2", "a_3", "bad", "a_b", "A_4"}
    assert items["a_2"].duplicate_of == "a" and not items["a_3"].duplicate_of
    assert items["bad"].failed and "line 8, column 3" in items["bad"].reason
    assert not items["a"].failed


def test_no_protein_is_called_as_a_file_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">summary.csv\nACD\n>Index.html\nACDE\n>x/y\nACDF\n")
    items = read_items(tmp_path, None)
    assert [item.name for item in items] == ["summary.csv_2", "Index.html_2", "x_y"]
    assert "called x_y: the name of its folder" in str(items[2].problems[0])


def test_folders_and_links_to_nothing_are_named(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    with pytest.raises(UserError, match="its folders are not looked into"):
        read_items(tmp_path, None)
    (tmp_path / "gone.fasta").symlink_to(tmp_path / "nothing")
    (tmp_path / "a.fasta").write_text(">a\nACD\n")
    notes = [str(problem) for problem in passed_over(tmp_path)]
    assert len(notes) == 2 and "a link to nothing" in notes[0] and "a folder, not looked into" in notes[1]


def test_long_names_are_cut_and_stay_different(tmp_path: Path) -> None:
    (tmp_path / "a.fa").write_text(f">{'x' * 300}1\nACD\n>{'x' * 300}2\nACE\n")
    names = [item.name for item in read_items(tmp_path, None)]
    assert len(set(names)) == 2 and all(len(name) <= 100 for name in names)


def test_an_empty_folder_and_a_missing_one_say_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no protein; expected files that end in .fasta"):
        read_items(tmp_path, None)
    with pytest.raises(UserError, match="no such file or folder"):
        read_items(tmp_path / "none", None)


def test_a_row_that_is_left_out_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "c.a3m").write_text(">q\nACD\n>short\nAC\n")
    (item,) = read_items(tmp_path, None)
    assert not item.failed and [problem.record for problem in item.problems] == ["short"]
