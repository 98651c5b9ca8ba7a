"""The collectives of a compiled program: what each device puts in, with whom, how often."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from flowaware_core.hlo.groups import Groups, pairs, replica_groups
from flowaware_core.hlo.module import Array, Computation, Instruction, Module, parse
from flowaware_core.hlo.scalars import ELIDED, Scope, running

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")

# Opcodes that hand on every element as it is.
MOVES = frozenset({"bitcast", "copy", "reshape", "transpose"})

Use = tuple[Scope, Instruction, Instruction]


@dataclasses.dataclass(frozen=True)
class Collective:
    """One tensor moved by one collective instruction.

    XLA joins several reductions in one instruction with a tuple as result: they are one `Collective` each.

    Attributes:
        kind: one of `KINDS`.
        bytes: what one device puts in, at the width before the CPU compiler's promotion of 16 to 32 bits: its shard
            for an all-gather, the whole operand for the others.
        group_size: how many devices take part together; 2 for a permute.
        groups: the devices of each group in the order of the collective, (source, target) pairs for a permute; None
            if the text names none. A device is its place in `mesh.devices.flat`, not its id.
        count: how often it runs in one call of the program; None inside a loop with an unknown number of trips.
            Every branch of a conditional counts as taken.
        op_name: the name scopes and the primitive it came from.
        computation: where the instruction stands.
        name: the instruction.
        dtype: the element type before promotion.
        promoted: the CPU compiler widened the elements from 16 to 32 bits.
        rewritten: written as an all-reduce of which every device keeps its own slice, which GPU and TPU compilers
            turn into the reduce-scatter it is counted as.
    """

    kind: str
    bytes: int
    group_size: int
    groups: Groups | None
    count: int | None
    op_name: str
    computation: str
    name: str = ""
    dtype: str = ""
    promoted: bool = False
    rewritten: bool = False


def collectives(text: str | Module, num_devices: int) -> tuple[Collective, ...]:
    """The collectives of a compiled module in the order of its text, leaving out groups of one device.

    Args:
        text: what `jax.stages.Compiled.as_text()` gives, or `parse` of it.
        num_devices: how many devices the program runs on.
    """
    module = parse(text)
    found: list[Collective] = []
    for computation in module.computations.values():
        if computation.name not in module.counts:
            continue
        for instruction in computation.instructions:
            if instruction.opcode.removesuffix("-start") in KINDS:
                found += moved(module, computation, instruction, num_devices)
    return tuple(found)


def moved(module: Module, computation: Computation, instruction: Instruction, num_devices: int) -> Iterator[Collective]:
    """The tensors that one collective instruction moves."""
    kind = instruction.opcode.removesuffix("-start")
    groups = pairs(instruction.rest) if kind == "collective-permute" else replica_groups(instruction.rest, num_devices)
    group_size = 2 if kind == "collective-permute" else len(groups[0]) if groups else num_devices
    if group_size == 1:
        return
    scope = running(module, computation.name, num_devices)
    parts = [Part(scope, instruction, index) for index in range(len(instruction.operands))]
    common: dict[str, Any] = {
        "group_size": group_size,
        "groups": groups,
        "count": module.counts[computation.name],
        "computation": computation.name,
        "name": instruction.name,
    }
    if kind == "all-to-all":  # the operands are the pieces of one tensor, one for each receiver
        total = sum(part.array.bytes for part in parts)
        dtype, promoted = parts[0].array.dtype, parts[0].promoted
        yield Collective(kind, total, **common, op_name=instruction.op_name, dtype=dtype, promoted=promoted)
        return
    for part in parts:
        rewritten = kind == "all-reduce" and groups is not None and part.is_scattered(groups)
        yield Collective(
            "reduce-scatter" if rewritten else kind,
            part.array.bytes,
            **common,
            op_name=part.op_name,
            dtype=part.array.dtype,
            promoted=part.promoted,
            rewritten=rewritten,
        )


@dataclasses.dataclass(frozen=True)
class Part:
    """Operand number `index` of a collective instruction and what becomes of it."""

    scope: Scope
    instruction: Instruction
    index: int

    @functools.cached_property
    def array(self) -> Array:
        """The operand, at the width before promotion."""
        operand = self.scope.computation.by_name[self.instruction.operands[self.index]].arrays[0]
        return operand._replace(dtype="bf16") if self.promoted else operand

    @functools.cached_property
    def promoted(self) -> bool:
        """Whether this was widened from bfloat16, which the CPU's collectives cannot move.

        Then every use begins by narrowing it again, with a conversion that no one wrote: it has the name of the
        collective, or none. The computation of a reduction is marked too, but one may serve several joined reductions.
        """
        if self.scope.computation.by_name[self.instruction.operands[self.index]].arrays[0].dtype != "f32":
            return False
        uses = list(self.uses(MOVES))
        return bool(uses) and all(
            reader.opcode == "convert"
            and reader.shape.startswith("bf16")
            and not reader.op_name.endswith("convert_element_type")
            for _, _, reader in uses
        )

    @functools.cached_property
    def results(self) -> list[Instruction]:
        """The instructions that stand for the result of this part."""
        users = self.scope.computation.users
        done = self.instruction
        if done.opcode.endswith("-start"):
            done = next((user for user in users.get(done.name, []) if user.opcode.endswith("-done")), done)
        if not done.shape.startswith("("):
            return [done]
        return [
            user
            for user in users.get(done.name, [])
            if user.opcode == "get-tuple-element" and user.numbers("index") == (self.index,)
        ]

    @property
    def op_name(self) -> str:
        """The part's own name, kept at its result; the joined instruction has a list of all."""
        names = [result.op_name for result in self.results if result.op_name]
        return names[0] if names else self.instruction.op_name

    def uses(self, through: frozenset[str]) -> Iterator[Use]:
        """Who reads the result, seen through the given opcodes."""
        for result in self.results:
            yield from uses(self.scope, result, through)

    def is_scattered(self, groups: Groups) -> bool:
        """Whether every use is the same slice along one dimension: the j-th piece for the j-th device of a group."""
        first: tuple[int, int] | None = None
        for use in self.uses(MOVES | {"convert"}):
            found = cut(*use, groups)
            if found is None or found != (first or found):
                return False
            first = found
        return first is not None


def uses(scope: Scope, source: Instruction, through: frozenset[str]) -> Iterator[Use]:
    """Where a value ends up: (scope, what is read, reader), through the given opcodes, in and out of fusions and calls.

    A value that leaves the program or the body of a loop is its own reader.
    """
    if source.is_root:
        if scope.outer is None or scope.caller is None:
            yield scope, source, source
        else:
            yield from uses(scope.outer, scope.caller, through)
    for reader in scope.computation.users.get(source.name, []):
        if reader.opcode in through:
            yield from uses(scope, reader, through)
        elif reader.opcode in ("fusion", "call"):
            inside = scope.inside(reader)
            for position, operand in enumerate(reader.operands):
                if operand == source.name:
                    yield from uses(inside, inside.computation.parameters[position], through)
        else:
            yield scope, source, reader


def cut(scope: Scope, source: Instruction, reader: Instruction, groups: Groups) -> tuple[int, int] | None:
    """(dimension, size) of a slice that gives the j-th device of each group the j-th piece; None for any other use.

    Compilers make a reduce-scatter only of a slice along one dimension, in as many pieces as a group has members.
    """
    if reader.opcode != "dynamic-slice" or source.name in reader.operands[1:]:
        return None
    before, after = source.arrays[0].shape, reader.arrays[0].shape
    dimensions = [dimension for dimension, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    members = len(groups[0])
    if len(dimensions) != 1 or after[dimensions[0]] * members != before[dimensions[0]]:
        return None
    dimension, size = dimensions[0], after[dimensions[0]]
    offsets = scope.value(reader.operands[1 + dimension])
    if offsets is None:
        return None
    wanted = np.arange(members) * size
    if offsets is ELIDED or all(np.array_equal(offsets[list(group)], wanted) for group in groups):
        return dimension, size
    return None
