"""Every model of the zoo by name: a literal table, resolved on demand."""

from __future__ import annotations

import importlib
from typing import Any

from zoo.errors import UserError
from zoo.typed import nearest

# name -> "module:attribute"; the name is the folder below zoo/models.
MODELS = {
    "alphafold2": "zoo.models.alphafold2.model:AlphaFold2",
    "bert": "zoo.models.bert.model:Bert",
    "deepmd": "zoo.models.deepmd.model:outputs",
    "pnasnet": "zoo.models.pnasnet.model:PNASNet",
    "resnet": "zoo.models.resnet.model:ResNet",
    "t5": "zoo.models.t5.model:T5",
}


def names() -> tuple[str, ...]:
    """The names of all models, sorted."""
    return tuple(sorted(MODELS))


def resolve(name: str) -> Any:
    """Imports a model by its name.

    Raises:
        UserError: there is no model of that name; the text lists the names and the nearest one.
    """
    if name not in MODELS:
        raise UserError(f"model={name!r} is not known{nearest(name, MODELS)}; known are {', '.join(names())}")
    module, attribute = MODELS[name].split(":")
    return getattr(importlib.import_module(module), attribute)
