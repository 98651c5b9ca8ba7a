import dataclasses
from pathlib import Path

import pytest

from zoo.config import compose
from zoo.errors import UserError
from zoo.training.job import check_batch, check_strategy, load


def test_a_batch_that_processes_cannot_share_names_sizes_and_counts_that_work():
    check_batch(8, 4, "recipe.data.global_batch")
    with pytest.raises(UserError) as caught:
        check_batch(10, 4, "recipe.data.global_batch")
    assert str(caught.value) == (
        "recipe.data.global_batch=10 is not divisible by processes=4; 10 is divisible by 1, 2, 5, "
        "and 4 processes can share 8 or 12 examples"
    )
    with pytest.raises(UserError, match="3 processes can share 3 examples"):
        check_batch(2, 3, "recipe.data.global_batch")


def test_a_misspelt_strategy_gets_the_nearest_name():
    with pytest.raises(UserError, match="did you mean fsdp"):
        check_strategy("fsp")


@pytest.mark.parametrize("target", ["resnet", "recipes.nothing.Recipe", "recipes.resnet.Nothing", "nothing.Recipe"])
def test_a_recipe_that_is_not_there(target):
    config = dataclasses.replace(compose(["recipe=resnet50", "cluster=emulated"]).recipe, target=target)
    with pytest.raises(UserError, match="give the dotted name of a class"):
        load(config, Path("data"))
