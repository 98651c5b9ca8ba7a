"""The table of models agrees with the folders, and an unknown name is answered with the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from zoo.errors import UserError
from zoo.models import registry


def test_every_row_resolves_and_every_folder_has_a_row(root: Path) -> None:
    folders = {file.parent.name for file in (root / "zoo/models").glob("*/model.py")}
    assert set(registry.names()) == folders
    for name in registry.names():
        assert callable(registry.resolve(name))


def test_unknown_name_lists_the_known_and_the_nearest() -> None:
    with pytest.raises(UserError, match=r"model='resnot' is not known \(did you mean resnet\?\); known are .*resnet"):
        registry.resolve("resnot")
