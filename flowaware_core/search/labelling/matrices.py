"""Interned cost matrices: equal matrices are one object, so that equal work on repeated blocks is done once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

Key = int
LARGEST_COMPARED = 4096  # entries
Fact = TypeVar("Fact")


class Pool:
    """Matrices and vectors by number; every derived one is computed once.

    A matrix and its transpose are two numbers that know each other. Derived values are remembered by
    (operation, operands), so memory is bounded by the number of different matrices, not of edges.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._numbers: dict[Hashable, Key] = {}
        self._identities: dict[int, tuple[np.ndarray, Key]] = {}
        self._transposes: dict[Key, Key] = {}
        self._derived: dict[Hashable, Any] = {}

    def add(self, array: np.ndarray) -> Key:
        """The number of an array: its content decides, unless it is so large that looking takes longer than it saves."""
        array = np.ascontiguousarray(array)
        if array.size > LARGEST_COMPARED:
            self.arrays.append(array)
            return len(self.arrays) - 1
        content = array.tobytes()
        if len(content) > 64:
            content = hashlib.blake2b(content, digest_size=20).digest()
        signature = (array.shape, array.dtype.char, content)
        key = self._numbers.get(signature)
        if key is None:
            key = len(self.arrays)
            self._numbers[signature] = key
            self.arrays.append(array)
        return key

    def add_shared(self, array: np.ndarray) -> Key:
        """As `add`, without looking at the content of an object seen before."""
        seen = self._identities.get(id(array))
        if seen is None:
            seen = (array, self.add(np.asarray(array, dtype=np.float64)))
            self._identities[id(array)] = seen
        return seen[1]

    def transpose(self, key: Key) -> Key:
        result = self._transposes.get(key)
        if result is None:
            # Equal matrices have one number, so their transposes need not be looked for.
            result = len(self.arrays)
            self.arrays.append(np.ascontiguousarray(self.arrays[key].T))
            self._transposes[key] = result
            self._transposes[result] = key
        return result

    def derive(self, name: str, compute: Callable[..., np.ndarray], *operands: Key) -> Key:
        """The number of `compute(*arrays of the operands)`; `name` stands for the function."""
        signature = (name, *operands)
        result = self._derived.get(signature)
        if result is None:
            result = self.add(compute(*(self.arrays[key] for key in operands)))
            self._derived[signature] = result
        return result

    def fact(self, name: str, compute: Callable[..., Fact], *operands: Key) -> Fact:
        """As `derive`, for a result that is not an array of the pool."""
        signature = (name, *operands)
        if signature not in self._derived:
            self._derived[signature] = compute(*(self.arrays[key] for key in operands))
        found: Fact = self._derived[signature]
        return found
