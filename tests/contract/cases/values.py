"""Small arguments: lengths that eight devices divide, values that do not repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Case = tuple[Callable[..., Any], tuple[Any, ...]]


def real(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def unit(*shape: int, seed: int = 0) -> np.ndarray:
    """Between 0.1 and 0.9, where every elementary function is defined."""
    return np.random.default_rng(seed + sum(shape)).uniform(0.1, 0.9, shape)


def single(*shape: int, seed: int = 0) -> np.ndarray:
    return real(*shape, seed=seed).astype(np.float32)


def whole(*shape: int, high: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).integers(0, high, shape).astype(np.int32)


def flags(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).random(shape) < 0.5


def waves(*shape: int, seed: int = 0) -> np.ndarray:
    """Complex numbers."""
    return real(*shape, seed=seed) + 1j * real(*shape, seed=seed + 1)


def positive_definite(*shape: int, seed: int = 0) -> np.ndarray:
    """Symmetric matrices whose eigenvalues are far from zero and from each other."""
    square = real(*shape, seed=seed)
    product = square @ np.swapaxes(square, -1, -2)
    return product + np.eye(shape[-1]) * np.arange(1, shape[-1] + 1) * shape[-1]
