"""Every test sees 8 virtual CPU devices; the variables must stand before any test imports JAX."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """The folder of real data sets; skips the test where the environment names none."""
    folder = os.environ.get("ZOO_REFERENCE_DATA")
    if not folder:
        pytest.skip("ZOO_REFERENCE_DATA names no folder of reference data")
    return Path(folder)
