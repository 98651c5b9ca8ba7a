"""Words of the prediction command that belong to a recipe's section."""

from __future__ import annotations

import pytest

from zoo.config import compose
from zoo.predict import sectioned


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("models=model_1_ptm,model_3_ptm", "model_1_ptm,model_3_ptm"),
        ("models=[model_1_ptm,model_3_ptm]", "model_1_ptm,model_3_ptm"),
        ("models=multimer", "multimer"),
        ("templates=/a b/c,d=e", "/a b/c,d=e"),
        ("params=null", None),
    ],
)
def test_values_reach_the_recipe_as_they_were_typed(word: str, value: str | None) -> None:
    config = compose(sectioned(["recipe=alphafold2", "cluster=local", word]))
    assert config.recipe.predict[word.partition("=")[0]] == value
