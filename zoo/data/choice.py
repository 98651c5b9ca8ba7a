"""From the name of a data set in the configuration to the data set, open for reading."""

from __future__ import annotations

from pathlib import Path

from zoo.data.digits import open_digits
from zoo.data.images import DataConfig, ImageDataset
from zoo.errors import UserError


def open_dataset(config: DataConfig, data_dir: Path, num_classes: int, rehearsal: bool) -> ImageDataset:
    """Opens the data set that `config.name` names."""
    if config.name == "digits" or rehearsal:
        return open_digits(num_classes, rehearsal, "data: scikit-learn's handwritten digits, enlarged.")
    raise UserError(f"recipe.data.name={config.name}: no such data set in {data_dir}")
