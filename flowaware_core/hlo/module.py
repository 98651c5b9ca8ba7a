"""The text of a compiled HLO module as computations of instructions, and how often each computation runs.

A line costs one regular expression and the rest is taken apart when asked for, so a text of 20 MB takes a few seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flowaware_core.hlo.scalars import trip_count

# Bits per element. `pred` is stored in a byte; `token` and `opaque` hold no data and are absent.
BITS = {"pred": 8, "c64": 64, "c128": 128}
BITS |= {f"{sign}{bits}": bits for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)}
BITS |= {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}

HEADER = re.compile(r"(ENTRY )?%?([^\s(]+) \(.*\{\s*$")
LINE = re.compile(r"\s+(ROOT )?%?([^\s=]+) = (.+?) ([a-z][a-z0-9\-]*)\(")
ARRAY = re.compile(r"([a-z]\w*)\[([^\]]*)\]")
NAME = re.compile(r"%([^\s,(){}]+)")
PAREN = re.compile(r"[()]")
OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
CALLED = re.compile(r"(calls|to_apply|condition|body|true_computation|false_computation)=%?([^\s,)}]+)")
BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")

# Which opcodes run the computations they name; others only apply them to elements.
CALLS = frozenset({"fusion", "call", "while", "conditional", "async-start", "custom-call"})


class Array(NamedTuple):
    """Element type and size of one array in a shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bits(self) -> int:
        """Bits of one element; the 8-bit floats have many names."""
        return BITS.get(self.dtype, 8 if self.dtype.startswith("f8") else 4 if self.dtype.startswith("f4") else 0)

    @property
    def bytes(self) -> int:
        return -(-self.elements * self.bits // 8)


def arrays(shape: str) -> tuple[Array, ...]:
    """The arrays of a shape's text, tuples flattened: "(f32[2,3]{1,0}, s32[])" has two."""
    found = []
    for dtype, sizes in ARRAY.findall(shape):
        found.append(Array(dtype, tuple(int(size.strip().removeprefix("<=")) for size in sizes.split(",") if size)))
    return tuple(found)


class Instruction(NamedTuple):
    """One line: `[ROOT] %name = shape opcode(rest`, where `rest` holds the operands and the attributes."""

    name: str
    shape: str
    opcode: str
    rest: str
    is_root: bool

    @property
    def inputs(self) -> str:
        """The text between the parentheses: operand names, or what a constant or a parameter holds there."""
        end = self.rest.index(")")
        if "(" in self.rest[:end]:  # the shape of a tuple stands before an operand
            depth = 1
            for mark in PAREN.finditer(self.rest):
                depth += 1 if mark.group() == "(" else -1
                if depth == 0:
                    end = mark.start()
                    break
        return self.rest[:end]

    @property
    def operands(self) -> tuple[str, ...]:
        return tuple(NAME.findall(self.inputs))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays of the result."""
        return arrays(self.shape)

    @property
    def elements(self) -> int:
        """Elements of the result, of all its arrays together."""
        return sum(array.elements for array in self.arrays)

    @property
    def op_name(self) -> str:
        """The name scopes and the primitive this came from, "" if lost."""
        found = OP_NAME.search(self.rest)
        return found.group(1) if found else ""

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """The integers of an attribute like `dimensions={0,1}` or `index=2`; () if absent."""
        attributes = self.rest[len(self.inputs) :]  # the shapes of operands hold marks like /*index=5*/
        found = re.search(rf"\b{attribute}=\{{?([\d,]*)", attributes)
        return tuple(int(number) for number in found.group(1).split(",") if number) if found else ()

    def called(self) -> list[tuple[str, str]]:
        """(role, computation) of every computation this instruction names; branches have the role "branch"."""
        found = CALLED.findall(self.rest)
        for names in BRANCHES.findall(self.rest):
            found += [("branch", name.strip().lstrip("%")) for name in names.split(",")]
        return [("branch" if role.endswith("_computation") else role, name) for role, name in found]


@dataclasses.dataclass(frozen=True)
class Computation:
    """A function of the module: its instructions in text order, the root among them."""

    name: str
    instructions: tuple[Instruction, ...]

    @functools.cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @functools.cached_property
    def root(self) -> Instruction:
        return next((i for i in reversed(self.instructions) if i.is_root), self.instructions[-1])

    @functools.cached_property
    def parameters(self) -> dict[int, Instruction]:
        """Position -> the instruction that stands for that argument."""
        return {int(i.inputs): i for i in self.instructions if i.opcode == "parameter"}

    @functools.cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Name -> the instructions that read it."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                found.setdefault(operand, []).append(instruction)
        return found

    def operand_arrays(self, instruction: Instruction) -> tuple[Array, ...]:
        """The arrays of all operands, in order (the newest text does not print them at the instruction)."""
        return tuple(array for name in instruction.operands for array in self.by_name[name].arrays)


@dataclasses.dataclass(frozen=True)
class Module:
    """All computations by name, callees before callers as XLA prints them, and the name of the entry."""

    computations: dict[str, Computation]
    entry: str

    @functools.cached_property
    def callers(self) -> dict[str, list[tuple[Computation, Instruction]]]:
        """Computation -> the instructions that run it, with the computation they stand in."""
        found: dict[str, list[tuple[Computation, Instruction]]] = {}
        for computation in self.computations.values():
            for instruction in computation.instructions:
                if instruction.opcode in CALLS:
                    for _, name in instruction.called():
                        found.setdefault(name, []).append((computation, instruction))
        return found

    @functools.cached_property
    def counts(self) -> dict[str, int | None]:
        """Computation -> how often it runs in one call of the program.

        None inside a loop with an unknown number of trips. Every branch of a conditional counts as taken. Computations
        that are only applied to elements (the addition of a reduction) have no entry.
        """
        counts: dict[str, int | None] = {self.entry: 1}
        for name in reversed(self.computations):
            total: int | None = counts.get(name, 0)
            for computation, caller in self.callers.get(name, []):
                times = counts.get(computation.name, 0)
                trips = trip_count(self, computation, caller) if caller.opcode == "while" else 1
                known = total is not None and times is not None and trips is not None
                total = total + times * trips if known else None  # type: ignore[operator]
            if total != 0:
                counts[name] = total
        return counts


def blocks(lines: Sequence[str]) -> Iterator[tuple[str, bool, list[Instruction]]]:
    """(name, is the entry, instructions) of each computation in the text."""
    name, is_entry = "", False
    body: list[Instruction] = []
    for line in lines:
        if name:
            if line.startswith("}"):
                yield name, is_entry, body
                name = ""
            elif found := LINE.match(line):
                root, label, shape, opcode = found.groups()
                body.append(Instruction(label, shape, opcode, line[found.end() :], root is not None))
        elif line.endswith("{") and not line[0].isspace() and (found := HEADER.match(line)):
            name, is_entry, body = found.group(2), found.group(1) is not None, []


def parse(text: str | Module) -> Module:
    """Reads the text of an HLO module, as `jax.stages.Compiled.as_text()` gives it; a Module is returned as it is.

    Raises:
        ValueError: the text holds no entry computation.
    """
    if isinstance(text, Module):
        return text
    computations, entry = {}, None
    for name, is_entry, body in blocks(text.splitlines()):
        computations[name] = Computation(name, tuple(body))
        entry = name if is_entry else entry
    if entry is None:
        start = text[:60].replace("\n", " ")
        raise ValueError(f"{start!r}... is not the text of an HLO module: pass compiled.as_text(), with an ENTRY in it")
    return Module(computations, entry)
