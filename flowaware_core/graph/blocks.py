"""Blocks that a program repeats one after the other, what passes between them, and operators that meet a dimension twice."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.structure import Structure, tensors_of

# Operators that must agree in a row before a distance between them is looked at.
LOOK = 6
# Distances that are tried.
PERIODS = 64


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Equal blocks in a row.

    Attributes:
        first: the first operator.
        length: operators in a block.
        count: how many blocks there are.
        passed: tensors that the second block takes from the first, largest first: the trunk.
    """

    first: Operator
    length: int
    count: int
    passed: tuple[int, ...]


def repeated(graph: Graph) -> tuple[Blocks, ...]:
    """The repeated blocks outside loops, in program order; what covers most operators is found first, and nothing overlaps."""
    operators = graph.operators
    return tuple(
        Blocks(operators[start], period, count, _passed(graph, start, period))
        for start, period, count in spans(_signs(graph))
    )


def spans(signs: np.ndarray) -> tuple[tuple[int, int, int], ...]:
    """(start, length, count) of the blocks that a sequence of numbers repeats, in order."""
    found: list[tuple[int, int, int]] = []
    for period in _periods(signs):
        for start, end in _runs(signs[:-period] == signs[period:], period):
            found.append(((end + period - start) // period, period, start))
    taken = np.zeros(len(signs), dtype=bool)
    chosen = []
    for count, period, start in sorted(found, key=lambda one: (-one[0] * one[1], one[1], one[2])):
        span = slice(start, start + count * period)
        if not taken[span].any() and len(set(signs[start : start + period].tolist())) > 2:
            taken[span] = True
            chosen.append((start, period, count))
    return tuple(sorted(chosen))


def conflicts(structure: Structure) -> tuple[tuple[Operator, int], ...]:
    """Operators of which two factors belong to one class, such as the positions of queries and keys; with that class."""
    found = []
    for operator in structure.free:
        classes: dict[int, int] = {}
        for tensor, dims in tensors_of(operator):
            for dim, factors in enumerate(dims):
                logical = structure.dims_of[tensor][dim]
                if factors and logical >= 0 and operator.rule.factors[factors[0]].shardable:
                    classes[factors[0]] = structure.classes[structure.group_of[tensor]][logical]
        counts = collections.Counter(classes.values())
        found += [(operator, number) for number, count in counts.items() if count > 1]
    return tuple(found)


def _signs(graph: Graph) -> np.ndarray:
    """A number per operator, equal for operators of one primitive on tensors of equal shapes and types."""
    found = []
    for operator in graph.operators:
        tensors = [graph.tensors[tensor] for tensor in (*operator.inputs, *operator.results)]
        found.append((operator.primitive, tuple((tensor.shape, tensor.dtype) for tensor in tensors)))
    return numbered(found)


def numbered(signs: Sequence[Hashable]) -> np.ndarray:
    """Equal numbers for equal signs."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(sign, len(numbers)) for sign in signs], dtype=np.int64)


def _periods(signs: np.ndarray) -> list[int]:
    """Distances at which the same few operators come again, the most frequent first."""
    last: dict[bytes, int] = {}
    counts: collections.Counter[int] = collections.Counter()
    for position in range(len(signs) - LOOK + 1):
        window = signs[position : position + LOOK].tobytes()
        if window in last:
            counts[position - last[window]] += 1
        last[window] = position
    return [period for period, _ in counts.most_common(PERIODS) if period > 2]


def _runs(equal: np.ndarray, least: int) -> list[tuple[int, int]]:
    """Spans of at least so many true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], equal.astype(np.int8), [0]])))
    return [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True) if end - start >= least]


def _passed(graph: Graph, start: int, period: int) -> tuple[int, ...]:
    made = {tensor for operator in graph.operators[start : start + period] for tensor in operator.results}
    later: Sequence[Operator] = graph.operators[start + period : start + 2 * period]
    read = {tensor for operator in later for tensor in operator.inputs}
    return tuple(sorted(made & read, key=lambda tensor: (-graph.tensors[tensor].bytes, tensor)))
