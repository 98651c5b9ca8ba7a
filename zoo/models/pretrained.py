"""What a training starts from says of itself: the sizes of its model, and what else was remembered with the weights."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from zoo.errors import UserError
from zoo.models import weight_files
from zoo.training import manifest, step_folders
from zoo.training.checkpoints import CHECKPOINTS, locate

Model = TypeVar("Model")
# What Hugging Face's configuration calls the kinds of labels.
PROBLEMS = {
    "classes": "single_label_classification",
    "several": "multi_label_classification",
    "regression": "regression",
}


def facts_of(place: Path | None) -> dict[str, Any]:
    """What the recipe of a run remembered with its checkpoints; or "labels", their "kind" and "max_positions" of a config.json.

    Empty for anything else.
    """
    if place is None:
        return {}
    described = (place if place.is_dir() else place.parent) / "config.json"
    if described.is_file():
        return _labels_of(described)
    if place.is_file():
        return {}
    try:
        checkpoints, step = locate(place)
    except UserError:
        return {}  # whoever wants the weights says that there are none
    return checkpoints.meta(step)


def _labels_of(described: Path) -> dict[str, Any]:
    """ "labels" in the order of their numbers, "kind" and "max_positions", of a config.json that has them."""
    try:
        said = json.loads(described.read_text())
        names = {int(number): str(name) for number, name in said.get("id2label", {}).items()}
        kinds = [kind for kind, name in PROBLEMS.items() if name == said.get("problem_type")]
    except (ValueError, AttributeError, TypeError):
        return {}  # whoever needs the sizes says what is wrong with it
    if sorted(names) != list(range(len(names))):
        return {}
    found: dict[str, Any] = {"labels": [names[number] for number in sorted(names)]} if names else {}
    if isinstance(said.get("max_position_embeddings"), int):
        found["max_positions"] = said["max_position_embeddings"]
    return found | ({"kind": kinds[0]} if kinds else {"kind": "regression"} if len(names) == 1 else {})


def folder_of(place: Path) -> Path:
    """Where the vocabulary and the like of some weights lie: beside a file, in a folder, in the run of a checkpoint."""
    folder = place if place.is_dir() else place.parent
    if step_folders.is_complete(folder):
        folder = folder.parent
    return folder.parent if folder.name == CHECKPOINTS and not (folder / "config.json").exists() else folder


def fingerprint(place: Path) -> str:
    """A digest of the weights in `place`, a run or checkpoint of the zoo, a file or a folder of files.

    Raises:
        UserError: there are none.
    """
    if place.is_file():
        files = [place]
    else:
        files = sorted(path for path in place.glob("*") if path.suffix in weight_files.SUFFIXES)
    if not files:
        checkpoints, step = locate(place, "init_from")
        files = [checkpoints.directory / str(step) / manifest.NAME]  # it has the digests of all others
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def remembered(config: Any) -> dict[str, Any]:
    """A model's configuration as it is kept with its weights: where they are used, the form of products is that machine's own."""
    return {**dataclasses.asdict(config), "products": "batched"}


def read_description(file: Path, config_from: Callable[[Mapping[str, Any]], Model]) -> Model:
    """The configuration that a config.json describes.

    Raises:
        UserError: it describes no such model.
    """
    try:
        return config_from(json.loads(file.read_text()))
    except UserError as error:
        raise UserError(f"{file.parent}: {error}; take a recipe for that model, or other weights") from None
    except KeyError as error:
        raise UserError(f"{file} does not describe such a model: it has no {error.args[0]}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{file} does not describe such a model: {error}") from None


def sized_as(
    place: Path | None,
    config: Model,
    sizes: tuple[str, ...],
    config_from: Callable[[Mapping[str, Any]], Model] | None = None,
) -> Model:
    """The configuration with the sizes of the model in `place`; unchanged where nothing there tells them.

    Args:
        place: a folder with Hugging Face's config.json (or a file beside it), or a run of the zoo.
        config: ours.
        sizes: fields that follow from the weights.
        config_from: makes a configuration of a config.json; None where such a model has none.

    Raises:
        UserError: the description cannot be read.
    """
    if place is None:
        return config
    described = (place if place.is_dir() else place.parent) / "config.json"
    if config_from is not None and described.is_file():
        found = read_description(described, config_from)
        known = {name: getattr(found, name) for name in sizes}
    else:
        model = facts_of(place).get("model", {})
        known = {name: model[name] for name in sizes if name in model}
    return dataclasses.replace(config, **known)  # type: ignore[type-var]
