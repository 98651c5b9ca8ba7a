"""Where the data that travels with the code is: the configuration and the data cards.

In a checkout both are folders beside `zoo`; a wheel carries them inside it. Either way they are found from the place of
this file, so the working directory does not matter.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def conf_dir() -> Path:
    """The folder of config.yaml, recipe/ and cluster/."""
    return shipped("conf", "conf")


def cards_dir() -> Path:
    """The folder that holds `<dataset>/card.yaml`."""
    return shipped("dataset_cards", "datasets")


def shipped(installed: str, checkout: str) -> Path:
    inside = PACKAGE / installed
    return inside if inside.is_dir() else PACKAGE.parent / checkout
