"""PNASNet-5 on images: as the recipe of ResNet, with another model; the numbers are in conf/recipe."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from recipes.recipe import State
from recipes.resnet import ResNetRecipe
from zoo.models.pnasnet.config import PNASNetConfig
from zoo.models.pnasnet.model import PNASNet, parameter_count


class PNASNetRecipe(ResNetRecipe):
    """Trains a PNASNet to classify images; batches, state and metrics are those of `ResNetRecipe`."""

    family = "pnasnet"
    config_class = PNASNetConfig
    model_class = PNASNet
    heads = ("last_linear",)
    statistics = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))  # as timm's configuration of pnasnet5large has it

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        model = self.model_config
        return (
            f"PNASNet-5: cells {list(model.cells)}, {model.filters} filters, {model.stem} stem, {model.num_classes} classes, "
            f"{parameter_count(model):,} parameters"
        )

    def _variables(self, key: jax.Array) -> dict[str, Any]:
        size = self.data_config.image_size
        return dict(PNASNet(self.model_config).init(key, jnp.zeros((1, size, size, 3)), train=False))

    def _draws(self, state: State) -> dict[str, jax.Array] | None:
        if not self.model_config.dropout:
            return None
        return {"dropout": jax.random.fold_in(state["rng"], state["step"])}
