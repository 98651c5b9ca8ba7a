"""How atoms and neighbours lie in arrays: sorted by type, so that every type is a stretch that is known at compile time.

A frame with fewer atoms of a type than its stretch has is filled up with atoms that are not there; a net of one type
then runs over its own atoms and no others.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Layout:
    """Sizes of the stretches.

    Attributes:
        counts: atoms of each type.
        slots: neighbours of each type that an atom can have in the arrays; how many it has in the sums is `sel`.
        vacant: the type that slots without a neighbour count as, in models where that matters
            (`zoo.models.deepmd.config.vacancies_matter`); None: a type without embedding.
    """

    counts: tuple[int, ...]
    slots: tuple[int, ...]
    vacant: int | None = None

    @property
    def num_atoms(self) -> int:
        return sum(self.counts)

    @property
    def num_slots(self) -> int:
        return sum(self.slots)

    @property
    def types(self) -> np.ndarray:
        """The type of each atom, int32 [N]."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int32), self.counts)

    @property
    def slot_types(self) -> np.ndarray:
        """The type of each neighbour slot, int32 [S]."""
        return np.repeat(np.arange(len(self.slots), dtype=np.int32), self.slots)

    @property
    def atom_sections(self) -> list[slice]:
        return sections(self.counts)

    @property
    def slot_sections(self) -> list[slice]:
        return sections(self.slots)


def sections(lengths: tuple[int, ...]) -> list[slice]:
    ends = list(itertools.accumulate(lengths))
    return [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]


def excluded(pairs: Sequence[tuple[int, int]], layout: Layout) -> np.ndarray:
    """Which slots [N, S] are of a type that the atom does not see."""
    count = len(layout.counts)
    hidden_TT = np.zeros((count, count), bool)
    for a, b in pairs:
        hidden_TT[a, b] = hidden_TT[b, a] = True
    return hidden_TT[layout.types][:, layout.slot_types]
