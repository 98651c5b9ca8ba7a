"""Where the reference implementations are, and exactness."""

from __future__ import annotations

import os
from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(scope="session")
def python() -> str:
    """The Python of an environment with torch, transformers and timm; skips the test where none is named."""
    found = os.environ.get("ZOO_PARITY_PYTHON")
    if not found:
        pytest.skip("ZOO_PARITY_PYTHON names no environment with torch, transformers and timm")
    return found


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit types for one test."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)
