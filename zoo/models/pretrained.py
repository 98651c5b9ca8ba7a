"""The sizes of a model that a training starts from, read from what `init_from` names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from zoo.errors import UserError

Model = TypeVar("Model")


def sized_as(
    place: Path | None, config: Model, sizes: tuple[str, ...], config_from: Callable[[Mapping[str, Any]], Model]
) -> Model:
    """The configuration with the sizes of the model in `place`; unchanged where nothing there tells them.

    Args:
        place: a folder with Hugging Face's config.json (or a file in it), or a run of the zoo with its config.yaml.
        config: ours.
        sizes: fields that follow from the weights.
        config_from: makes a configuration of a config.json.

    Raises:
        UserError: the description cannot be read.
    """
    if place is None:
        return config
    folders = [place if place.is_dir() else place.parent]
    folders += (
        [folders[0].parent, folders[0].parent.parent]
        if folders[0].name.isdigit() or folders[0].name == "checkpoints"
        else []
    )
    for folder in folders:
        if (folder / "config.json").is_file():
            try:
                found = config_from(json.loads((folder / "config.json").read_text()))
            except (ValueError, KeyError) as error:
                raise UserError(f"{folder / 'config.json'} does not describe such a model: {error}") from None
            return dataclasses.replace(config, **{name: getattr(found, name) for name in sizes})  # type: ignore[type-var]
        if (folder / "config.yaml").is_file():
            model = (yaml.safe_load((folder / "config.yaml").read_text()) or {}).get("recipe", {}).get("model", {})
            return dataclasses.replace(config, **{name: model[name] for name in sizes if name in model})  # type: ignore[type-var]
    return config
