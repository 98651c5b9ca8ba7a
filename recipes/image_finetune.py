"""An image network fine-tuned on pictures of one's own, from the weights of timm, Hugging Face or the zoo."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from recipes.pnasnet import PNASNetRecipe
from recipes.recipe import State
from recipes.resnet import ResNetRecipe
from zoo.errors import UserError
from zoo.models.pretrained import facts_of, sized_as
from zoo.models.resnet.convert import SIZES, config_from
from zoo.typed import typed

if TYPE_CHECKING:
    from zoo.config import RecipeConfig

KINDS: dict[str, type[ResNetRecipe]] = {"resnet": ResNetRecipe, "pnasnet": PNASNetRecipe}

PNASNET_SIZES = ("cells", "filters", "stem", "stem_width")
"""What follows from the weights of a PNASNet."""


class ImageFinetuneRecipe(ResNetRecipe):
    """Fine-tunes the network that `recipe.model.network` names; batches, state and metrics are those of `ResNetRecipe`.

    With a folder of Hugging Face or a run of the zoo as `init_from` the sizes are those of the weights there.
    """

    def __init__(self, config: RecipeConfig, data_dir: Path) -> None:
        """As of `ResNetRecipe`.

        Raises:
            UserError: an option is unknown or has a value that is not allowed.
        """
        network = config.model.get("network", "resnet")
        if network not in KINDS:
            raise UserError(f"recipe.model.network={network}; known are {', '.join(KINDS)}")
        family = facts_of(config.init_from).get("family", network)
        if family not in KINDS:
            raise UserError(f"init_from={config.init_from} is of family {family}; this recipe knows {', '.join(KINDS)}")
        if family != network:
            raise UserError(
                f"init_from={config.init_from} is of family {family}, and recipe.model.network={network}; set "
                f"recipe.model.network={family}"
            )
        kind = KINDS[network]
        self.family, self.config_class = kind.family, kind.config_class
        self.model_class, self.heads, self.statistics = kind.model_class, kind.heads, kind.statistics
        super().__init__(config, data_dir)

    def sized(self, config: RecipeConfig) -> Any:
        """The configuration of the model, with the sizes of the weights that it starts from where those say them."""
        # The section has the options of both kinds of network.
        fields = {
            kind.config_class: {one.name for one in dataclasses.fields(kind.config_class)} for kind in KINDS.values()
        }
        others = set().union(*fields.values()) - fields[self.config_class] | {"network"}
        options = {name: value for name, value in config.model.items() if name not in others}
        model = typed(self.config_class, options, "recipe.model")
        if self.family == "resnet":
            return sized_as(config.init_from, model, SIZES, config_from)
        return sized_as(config.init_from, model, PNASNET_SIZES)

    def summary(self) -> str:
        """The model in one line, with its number of parameters."""
        return KINDS[self.family].summary(self)

    def _variables(self, key: jax.Array) -> dict[str, Any]:
        return KINDS[self.family]._variables(self, key)

    def _draws(self, state: State) -> dict[str, jax.Array] | None:
        return KINDS[self.family]._draws(self, state)
