"""What a rule is made of: factors, and where they sit in the tensors of an operator."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any, Literal

Kind = Literal["map", "reduce", "halo", "fixed"]
Shape = tuple[int, ...]
Dims = tuple[tuple[int, ...], ...]


class Cut(enum.IntEnum):
    """How a dimension may be cut: not at all, into equal shards, or also into shards of which the last are padded."""

    WHOLE = 0
    EVEN = 1
    UNEVEN = 2


@dataclasses.dataclass(frozen=True)
class Border:
    """What a shard needs of its neighbours along dimension `dim` of an operand: `before` elements of the one before it, `after` of
    the one behind it. Beyond the ends lies what the operator pads with."""

    operand: int
    dim: int
    before: int
    after: int


@dataclasses.dataclass(frozen=True)
class Factor:
    """One loop dimension.

    Attributes:
        size: its length; the number of shards divides it. Where a window slides, the lengths of operand and result differ: then
            it is the largest number that divides both and leaves no shard shorter than its borders.
        kind: see the package.
        combine: for `reduce`, how partial results are combined ("sum", "max", "min", ...).
        borders: what shards exchange before they run; an entry without elements marks a window that needs none.
        paddable: whether its shards may be unequal: it is the only factor of every dimension that it is part of, and the
            operator is left to the partitioner, which pads shards and masks what it sums over.
    """

    size: int
    kind: Kind
    combine: str = ""
    borders: tuple[Border, ...] = ()
    paddable: bool = False

    @property
    def shardable(self) -> bool:
        return self.size > 1 and self.kind in ("map", "reduce", "halo")

    @property
    def cut(self) -> Cut:
        return Cut.WHOLE if not self.shardable else Cut.UNEVEN if self.paddable else Cut.EVEN


@dataclasses.dataclass(frozen=True)
class Rule:
    """The factors of one operator and where they sit.

    Attributes:
        factors: all factors.
        operands, results: per tensor, per dimension, the factors it is made of (none for a dimension that no factor describes).
        known: False for the fallback of a primitive that has no rule: everything fixed.
        local: every device runs the operator on its own shards, because the compiler's partitioner would move more than the
            factors need; it then sees local sizes.
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    known: bool = True
    local: bool = False


RuleFunction = Callable[[Sequence[Shape], Sequence[Shape], dict[str, Any]], Rule]


class Building:
    """A rule under construction."""

    def __init__(self, operands: Sequence[Shape], results: Sequence[Shape]):
        self.factors: list[Factor] = []
        self.shapes = (*operands, *results)
        self.operands: list[list[tuple[int, ...]]] = [[()] * len(shape) for shape in operands]
        self.results: list[list[tuple[int, ...]]] = [[()] * len(shape) for shape in results]

    def add(
        self,
        size: int,
        kind: Kind,
        operands: dict[int, int],
        results: dict[int, int],
        combine: str = "",
        borders: tuple[Border, ...] = (),
    ) -> int:
        """Adds a factor; `operands` and `results` map a tensor's position to the dimension that is this factor."""
        index = len(self.factors)
        self.factors.append(Factor(int(size), kind, combine, borders))
        for tensor, dim in operands.items():
            self.operands[tensor][dim] += (index,)
        for tensor, dim in results.items():
            self.results[tensor][dim] += (index,)
        return index

    def fill(self, operands: Sequence[Shape], results: Sequence[Shape], kind: Kind = "fixed") -> Building:
        """Gives every dimension that has no factor yet one of its own that may not be cut."""
        for position, shape in enumerate(operands):
            for dim, size in enumerate(shape):
                if not self.operands[position][dim]:
                    self.add(size, kind, {position: dim}, {})
        for position, shape in enumerate(results):
            for dim, size in enumerate(shape):
                if not self.results[position][dim]:
                    self.add(size, kind, {}, {position: dim})
        return self

    def build(self, known: bool = True, local: bool = False) -> Rule:
        return Rule(
            tuple(self.factors) if local else self._padded(),
            tuple(tuple(dims) for dims in self.operands),
            tuple(tuple(dims) for dims in self.results),
            known,
            local,
        )

    def _padded(self) -> tuple[Factor, ...]:
        """The factors with those marked whose shards may be unequal."""
        even = {index for index, factor in enumerate(self.factors) if factor.borders}
        for shape, dims in zip(self.shapes, (*self.operands, *self.results), strict=True):
            for size, made_of in zip(shape, dims, strict=True):
                even.update(index for index in made_of if len(made_of) > 1 or self.factors[index].size != size)
        return tuple(
            factor if index in even else Factor(factor.size, factor.kind, factor.combine, (), True)
            for index, factor in enumerate(self.factors)
        )


def fixed(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Every dimension stays whole."""
    del params
    return Building(operands, results).fill(operands, results).build()


def elementwise(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Every dimension is mapped; scalars (literals, the bounds of clamp, the predicate of select_n) take no part."""
    building = Building(operands, results)
    shape = results[0]
    if any(other != shape for other in results):
        return fixed(operands, results, params)
    for dim, size in enumerate(shape):
        inputs = {p: dim for p, other in enumerate(operands) if len(other) == len(shape) and other[dim] == size}
        building.add(size, "map", inputs, dict.fromkeys(range(len(results)), dim))
    return building.build()


def leading(count: int, local: bool = False) -> RuleFunction:
    """Maps over all but the last `count` dimensions of the first operand, which all tensors begin with."""

    def rule(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
        first = (*operands, *results)[0]
        batch = first[: max(0, len(first) - count)]
        if any(shape[: len(batch)] != batch for shape in (*operands, *results)):
            return fixed(operands, results, params)
        building = Building(operands, results)
        for dim, size in enumerate(batch):
            building.add(size, "map", dict.fromkeys(range(len(operands)), dim), dict.fromkeys(range(len(results)), dim))
        return building.fill(operands, results).build(local=local)

    return rule


def along(name: str, local: bool = False) -> RuleFunction:
    """Primitives that work along the dimensions in parameter `name` and map over the others; all tensors have one rank."""

    def rule(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
        dims = params[name]
        return mapped_except(operands, results, dims if isinstance(dims, tuple | list) else (dims,), local)

    return rule


def mapped_except(
    operands: Sequence[Shape], results: Sequence[Shape], dims: Sequence[int], local: bool = False
) -> Rule:
    """Maps over every dimension but `dims`; tensors of another rank (scalars) stay whole."""
    rank = len(results[0])
    worked = {int(dim) % rank for dim in dims} if rank else set()
    building = Building(operands, results)
    inputs = [position for position, shape in enumerate(operands) if len(shape) == rank]
    outputs = [position for position, shape in enumerate(results) if len(shape) == rank]
    for dim, size in enumerate(results[0]):
        if dim not in worked:
            building.add(size, "map", dict.fromkeys(inputs, dim), dict.fromkeys(outputs, dim))
    return building.fill(operands, results).build(local=local)
