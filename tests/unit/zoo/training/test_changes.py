"""A changed recipe is shown value by value with its full path, and refused unless told."""

from __future__ import annotations

import json

import pytest

from zoo.errors import UserError
from zoo.training.changes import differences, refuse

BEFORE = {"model": {"stages": (3, 4), "width": 64, "norm": None}, "optimizer": {"rate": 0.1, "nesterov": True}}


def test_what_json_does_to_a_configuration_is_no_change():
    assert differences(json.loads(json.dumps(BEFORE)), BEFORE) == []
    assert differences({"x": float("nan")}, {"x": float("nan")}) == []
    assert differences({"x": 1}, {"x": 1.0}) == []


def test_each_changed_value_has_its_full_path():
    after = {"model": {"stages": [3, 6], "width": 64, "stem": "cifar"}, "optimizer": {"rate": 0.2, "nesterov": 1}}
    assert differences(BEFORE, after) == [
        "recipe.model.norm: None -> (absent)",
        "recipe.model.stages[1]: 4 -> 6",
        "recipe.model.stem: (absent) -> 'cifar'",
        "recipe.optimizer.nesterov: True -> 1",
        "recipe.optimizer.rate: 0.1 -> 0.2",
    ]


def test_other_lengths_and_kinds_are_shown_whole():
    assert differences({"a": [1, 2], "b": {"c": 1}}, {"a": [1], "b": 3}) == [
        "recipe.a: [1, 2] -> [1]",
        "recipe.b: {'c': 1} -> 3",
    ]


def test_a_change_is_refused_unless_told():
    after = {**BEFORE, "optimizer": {"rate": 0.2, "nesterov": True}}
    with pytest.raises(UserError, match=r"recipe.optimizer.rate: 0.1 -> 0.2.*allow_changed_recipe=true"):
        refuse(BEFORE, after, allowed=False)
    assert refuse(BEFORE, after, allowed=True) == ["recipe.optimizer.rate: 0.1 -> 0.2"]
    assert refuse(BEFORE, BEFORE, allowed=False) == []
