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
from zoo.models.alphafold2.convert import Shapes, check, draw, load


@dataclasses.dataclass(frozen=True)
class Network:
    config: ConfigDict
    predictor: Predictor
    shapes: Shapes


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    config: ConfigDict
    predictor: Predictor
    params: Any


def configured(name: str, options: PredictOptions, changes: dict[str, Any]) -> ConfigDict:
    return changed(preset(name), {**changes, **options.changes()})


def checked(configs: dict[str, ConfigDict], options: PredictOptions, say: Callable[[str], None]) -> dict[str, Network]:
    """The networks by the names of their models; those of the same architecture share one predictor and its programs.

    Raises:
        UserError: the file of parameters of one of them is missing, or another's.
    """
    made: dict[str, Network] = {}
    networks = {}
    for name, config in configs.items():
        architecture = config.model.to_json()
        if architecture not in made:
            predictor = Predictor(config, say)
            made[architecture] = Network(config, predictor, predictor.model.parameter_shapes())
        networks[name] = dataclasses.replace(made[architecture], config=config)
        if not options.random:
            check(Path(str(options.params)), networks[name].shapes, name)
    return networks


def loaded(networks: dict[str, Network], options: PredictOptions, say: Callable[[str], None]) -> list[Model]:
    """The models with their parameters."""
    models = []
    for name, network in networks.items():
        if options.random:
            params, words = draw(network.shapes, 0), MARK
        else:
            params, keys = load(Path(str(options.params)), network.shapes, name)
            words = str(keys)
        say(f"{name}: {words}")
        models.append(Model(name, network.config, network.predictor, params))
    return models
