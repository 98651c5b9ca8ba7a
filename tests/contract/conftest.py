"""Programs and clusters that every strategy is held to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import flowaware_core as fa
from recipes.resnet import ResNetRecipe
from zoo.config import RecipeConfig, Rehearsal

# Slow devices on fast links: splitting pays even for the small programs of a test, so "auto" does something.
SLOW = fa.Device("cpu", fa.GIB, {"float32": 1e9, "float64": 5e8}, 1e9)


@pytest.fixture
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(scope="session")
def flat() -> fa.Cluster:
    """Eight devices side by side."""
    return fa.Cluster("flat", SLOW, (fa.Level("device", 8, 1e10, 1e-6),))


@pytest.fixture(scope="session")
def nested() -> fa.Cluster:
    """Two nodes of four cards, the network slower than the node."""
    levels = (fa.Level("node", 2, 1e9, 5e-6, shared=True), fa.Level("card", 4, 1e10, 1e-6))
    return fa.Cluster("nested", SLOW, levels)


def recipe(dtype: str = "float32", global_batch: int = 16, width: int = 8) -> ResNetRecipe:
    """A ResNet of two bottleneck blocks, small enough to compile in seconds."""
    model = {"blocks": [1, 1], "stem": "cifar", "width": width, "num_classes": 10, "dtype": dtype}
    data = {"name": "digits", "image_size": 16, "global_batch": global_batch, "augment": False}
    optimizer = {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9, "schedule": "constant"}
    config = RecipeConfig("tiny", "recipes.resnet.ResNetRecipe", model, data, optimizer, {"steps": 10}, Rehearsal(3, 1))
    return ResNetRecipe(config, Path("."))
