"""Image networks on pictures of one's own: sizes of the weights, frozen parts, and what a run says of a picture."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from recipes.image_finetune import ImageFinetuneRecipe
from recipes.pnasnet import PNASNetRecipe
from recipes.resnet import ResNetRecipe
from zoo.errors import UserError
from zoo.models import weight_files
from zoo.models.pnasnet.model import abstract_variables
from zoo.models.resnet.convert import to_torch
from zoo.models.resnet.model import abstract_variables as resnet_variables


def made(kind: Any = ImageFinetuneRecipe, init_from: Path | None = None, **sections: dict[str, Any]) -> Any:
    whole = {
        "model": {"blocks": [1, 1], "width": 4, "stem": "cifar", "num_classes": 3} | sections.get("model", {}),
        "data": {"name": "digits", "image_size": 8, "global_batch": 4},
        "optimizer": {"learning_rate": 0.1},
        "training": {"steps": 10} | sections.get("training", {}),
    }
    if "model!" in sections:
        whole["model"] = sections["model!"]
    return kind(SimpleNamespace(name="tiny", init_from=init_from, **whole), Path("nowhere"))


def test_the_state_of_a_pnasnet_is_a_pnasnet_s() -> None:
    options = {"cells": [1], "filters": 4, "stem": "cifar", "stem_width": 4, "num_classes": 3}
    for kind, network in ((PNASNetRecipe, {}), (ImageFinetuneRecipe, {"network": "pnasnet"})):
        recipe = made(kind, **{"model!": options | network})
        state = jax.eval_shape(recipe.initial_state, jax.random.key(0))
        wanted = abstract_variables(recipe.model_config)
        shapes = lambda tree: jax.tree.map(lambda leaf: leaf.shape, dict(tree))
        assert shapes(state["params"]) == shapes(wanted["params"])
        assert shapes(state["batch_stats"]) == shapes(wanted["batch_stats"])
        assert recipe.heads == ("last_linear",) and "PNASNet-5" in recipe.summary()


def test_frozen_parts_have_no_momentum() -> None:
    recipe = made(training={"frozen": ["conv1", "bn1", "layer1_.*"], "best": "accuracy", "patience": 3})
    state = jax.eval_shape(recipe.initial_state, jax.random.key(0))
    sizes = {name: sum(leaf.size for leaf in jax.tree.leaves(part)) for name, part in state["params"].items()}
    momentum = sum(leaf.size for leaf in jax.tree.leaves(state["opt_state"]) if leaf.ndim)
    assert momentum == sizes["layer2_0"] + sizes["fc"] and recipe.training.best == "accuracy"
    with pytest.raises(UserError, match="recipe.training.lora is for texts"):
        made(training={"lora": {"rank": 2, "targets": ["fc"]}})


def test_sizes_are_those_of_the_description(tmp_path: Path) -> None:
    described = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [32, 64], "depths": [2, 1]}
    (tmp_path / "config.json").write_text(json.dumps(described))
    recipe = made(init_from=tmp_path)
    assert (recipe.model_config.blocks, recipe.model_config.width, recipe.model_config.num_classes) == ((2, 1), 8, 3)
    assert recipe.model_config.stem == "imagenet"
    (tmp_path / "config.json").write_text(json.dumps(described | {"downsample_in_bottleneck": True}))
    with pytest.raises(UserError, match="downsample_in_bottleneck=True, and this model has False"):
        made(init_from=tmp_path)
    with pytest.raises(UserError, match="recipe.model.network=vgg; known are resnet, pnasnet"):
        made(model={"network": "vgg"})


def test_pictures_are_classified(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    recipe = made(ResNetRecipe)
    rng = np.random.default_rng(0)
    variables = jax.tree.map(
        lambda leaf: np.abs(rng.normal(size=leaf.shape)).astype(leaf.dtype), resnet_variables(recipe.model_config)
    )
    weight_files.write(tmp_path / "w.safetensors", to_torch(variables))
    image.fromarray(rng.integers(0, 255, (9, 12, 3), np.uint8)).save(tmp_path / "a.png")
    predict = recipe.predictor(tmp_path / "w.safetensors", None, 2, jax.random.key(0))
    found = predict([{"image": str(tmp_path / "a.png")}])[0]
    assert found["label"] in ("0", "1", "2") and sum(found["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    with pytest.raises(UserError, match=r"none.png does not exist$"):
        predict([{"image": str(tmp_path / "none.png")}])


def test_processors_get_products_where_the_configuration_names_no_form() -> None:
    recipe = made()
    assert recipe.model.config.convolution is None
    recipe.for_processor()
    assert recipe.model.config.convolution == recipe.model_config.convolution == "products"
    named = made(model={"convolution": "lax"})
    named.for_processor()
    assert named.model.config.convolution == "lax"


def test_a_file_of_weights_is_read_with_the_statistics_of_the_recipe_s_data_set() -> None:
    recipe = made(ResNetRecipe)
    assert recipe._of_data_set(3) == {}  # of other classes than the digits, so of another data set
    assert recipe._of_data_set(10)["mean"] == (0.305, 0.305, 0.305)
    assert recipe._of_data_set(10)["labels"] == [str(number) for number in range(10)]


def test_the_section_has_the_options_of_both_networks() -> None:
    options = {
        "network": "pnasnet",
        "blocks": [1, 1],
        "width": 4,
        "cells": [1],
        "filters": 4,
        "stem": "cifar",
        "stem_width": 4,
    }
    assert made(**{"model!": options}).model_config.cells == (1,)
    with pytest.raises(UserError, match="bloks"):
        made(**{"model!": options | {"bloks": [1]}})


def test_photographs_are_normalised_as_the_published_weights_want_them() -> None:
    options = {"network": "pnasnet", "cells": [1], "filters": 4, "stem": "cifar", "stem_width": 4, "num_classes": 3}
    assert made(**{"model!": options}).statistics == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert made().statistics[0] == (0.485, 0.456, 0.406)
