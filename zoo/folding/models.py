"""The networks of one run with their parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from zoo.folding.options import MARK, PredictOptions
from zoo.folding.predictor import Predictor
from zoo.models.alphafold2.config import changed, preset
from zoo.models.alphafold2.convert import draw, load


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    config: ConfigDict
    predictor: Predictor
    params: Any


def configured(name: str, options: PredictOptions, changes: dict[str, Any]) -> ConfigDict:
    return changed(preset(name), {**changes, **options.changes()})


def loaded(configs: dict[str, ConfigDict], options: PredictOptions, say: Callable[[str], None]) -> list[Model]:
    """The models with their parameters; models of the same architecture share one predictor and its programs."""
    predictors: dict[str, Predictor] = {}
    models = []
    for name, config in configs.items():
        predictor = predictors.setdefault(config.model.to_json(), Predictor(config))
        shapes = predictor.model.parameter_shapes()
        if options.random:
            params, words = draw(shapes, 0), MARK
        else:
            params, keys = load(Path(str(options.params)), shapes, name)
            words = str(keys)
        say(f"{name}: {words}")
        models.append(Model(name, config, predictor, params))
    return models
