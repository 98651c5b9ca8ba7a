"""Values of integer scalars in a module: offsets that depend on the partition, and trip counts of loops."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from flowaware_core.hlo.module import Computation, Instruction, Module

    # One number per partition, or None where it cannot be told.
    Value = np.ndarray | None

TRIP_COUNT = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
DIRECTION = re.compile(r"direction=([A-Z]{2})")

UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **dict.fromkeys(("convert", "copy", "bitcast", "reshape", "broadcast", "transpose"), lambda x: x),
    "negate": np.negative,
    "abs": np.abs,
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": lambda a, b: np.trunc(a / np.where(b == 0, 1, b)).astype(np.int64),
    "remainder": lambda a, b: np.fmod(a, np.where(b == 0, 1, b)),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift-right-logical": np.right_shift,
    "shift-left": np.left_shift,
}
COMPARE: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "EQ": np.equal,
    "NE": np.not_equal,
}


# The value of an entry, chosen by partition, of a list too long to be printed: it depends on the partition, no more is
# known.
ELIDED = np.empty(0, np.int64)


@dataclasses.dataclass(frozen=True)
class Scope:
    """A computation, and where the values of its arguments come from.

    Attributes:
        module: holds the computations it calls.
        computation: where names are looked up.
        num_partitions: length of every value.
        outer: the scope of the instruction that runs this computation, None for the entry.
        caller: that instruction.
        state: in the body of a loop, index -> value of an element of the state; asked before the caller.
    """

    module: Module
    computation: Computation
    num_partitions: int
    outer: Scope | None = None
    caller: Instruction | None = None
    state: Callable[[int], Value] = lambda index: None

    def inside(self, instruction: Instruction) -> Scope:
        """The scope of the computation that `instruction` (a fusion or a call) runs."""
        called = self.module.computations[instruction.called()[0][1]]
        return Scope(self.module, called, self.num_partitions, self, instruction)

    def origin(self, name: str) -> tuple[Scope, Instruction]:
        """The instruction a name stands for, parameters followed out to what the caller gave."""
        instruction = self.computation.by_name[name]
        if instruction.opcode == "parameter" and self.outer is not None and self.caller is not None:
            return self.outer.origin(self.caller.operands[int(instruction.inputs)])
        return self, instruction

    def value(self, name: str) -> Value:
        """A result on each partition, None if it is no integer scalar or cannot be told."""
        scope, instruction = self.origin(name)
        match instruction.opcode:
            case "partition-id":
                return np.arange(self.num_partitions)
            case "constant":
                text = instruction.inputs.strip("{} ")
                number = {"true": "1", "false": "0"}.get(text, text)
                return np.full(self.num_partitions, int(number)) if re.fullmatch(r"-?\d+", number) else None
            case "get-tuple-element":
                source_scope, source = scope.origin(instruction.operands[0])
                return source_scope.element(source, instruction.numbers("index")[0])
            case "fusion" | "call":
                inside = scope.inside(instruction)
                return inside.value(inside.computation.root.name)
            case "dynamic-slice":
                return scope.entry_of_table(instruction)
        return scope.arithmetic(instruction)

    def element(self, source: Instruction, index: int) -> Value:
        """The value of an element of a tuple that stands in this computation."""
        if source.opcode == "tuple":
            return self.value(source.operands[index])
        return self.state(index) if source.opcode == "parameter" else None

    def integer(self, name: str) -> int | None:
        """The value of a scalar that is the same on every partition."""
        value = self.value(name)
        return int(value[0]) if value is not None and value.size and (value == value[0]).all() else None

    def arithmetic(self, instruction: Instruction) -> Value:
        """The value of an operation on scalars."""
        opcode = instruction.opcode
        known = opcode in UNARY or opcode in BINARY or opcode in ("compare", "select", "clamp")
        if not known or any(array.elements != 1 for array in instruction.arrays):
            return None
        values = []
        for operand in instruction.operands:
            value = self.value(operand)
            if value is None:
                return None
            values.append(value)
        if any(value is ELIDED for value in values):
            return ELIDED
        if opcode == "compare":
            direction = DIRECTION.search(instruction.rest)
            return COMPARE[direction.group(1)](*values).astype(np.int64) if direction else None
        if opcode == "select":
            return np.where(values[0] != 0, values[1], values[2])
        if opcode == "clamp":
            return np.minimum(np.maximum(values[1], values[0]), values[2])
        return UNARY[opcode](values[0]) if opcode in UNARY else BINARY[opcode](*values)

    def entry_of_table(self, instruction: Instruction) -> Value:
        """One entry of a constant list, as the partitioner looks up offsets by partition."""
        _, table = self.origin(instruction.operands[0])
        if len(instruction.operands) != 2 or table.opcode not in ("constant", "iota"):
            return None
        index = self.value(instruction.operands[1])
        if index is None or index is ELIDED:
            return index
        entries = np.arange(table.arrays[0].elements)
        if table.opcode == "constant":
            if not re.fullmatch(r"\{[-\d, ]*\}", table.inputs):  # more than ten are printed as {...}
                return ELIDED
            entries = np.array([int(entry) for entry in table.inputs.strip("{}").split(",")])
        return entries[np.clip(index, 0, len(entries) - 1)]


def running(module: Module, name: str, num_partitions: int) -> Scope:
    """The scope of a computation as the program runs it, with its caller where there is only one."""
    computation = module.computations[name]
    callers = module.callers.get(name, [])
    if len(callers) != 1:
        return Scope(module, computation, num_partitions)
    where, caller = callers[0]
    outer = running(module, where.name, num_partitions)
    if caller.opcode in ("fusion", "call"):
        return Scope(module, computation, num_partitions, outer, caller)
    if caller.opcode != "while" or computation.root.opcode != "tuple":
        return Scope(module, computation, num_partitions)
    start_scope, start = outer.origin(caller.operands[0])

    def state(index: int) -> Value:
        return start_scope.element(start, index) if carried_unchanged(computation, index) else None

    return Scope(module, computation, num_partitions, state=state)


def trip_count(module: Module, computation: Computation, loop: Instruction) -> int | None:
    """How often the body of a while loop runs, None if it depends on data.

    XLA mostly writes the number beside the loop. Otherwise it follows from the start, the step and the limit of
    the counter, where all three are constants.
    """
    if found := TRIP_COUNT.search(loop.rest):
        return int(found.group(1))
    called = dict(loop.called())
    condition, body = module.computations[called["condition"]], module.computations[called["body"]]
    scope, start = running(module, computation.name, 1).origin(loop.operands[0])
    if start.opcode != "tuple" or body.root.opcode != "tuple":
        return None

    def when(counter: int, value: int, where: Computation) -> Scope:
        """The body or the condition when the counter has the given value; the rest as the loop began."""

        def state(index: int) -> Value:
            if index == counter:
                return np.array([value])
            return scope.element(start, index) if carried_unchanged(body, index) else None

        return Scope(module, where, 1, state=state)

    for counter, name in enumerate(start.operands):
        begin = scope.integer(name)
        if begin is None or carried_unchanged(body, counter):
            continue
        second = when(counter, begin, body).integer(body.root.operands[counter])
        if second is None:
            continue

        def goes_on(value: int, counter: int = counter) -> int | None:
            return when(counter, value, condition).integer(condition.root.name)

        return trips(goes_on, begin, second - begin)
    return None


def carried_unchanged(body: Computation, index: int) -> bool:
    """Whether the loop hands element `index` of its state on as it came."""
    result = body.by_name[body.root.operands[index]]
    while result.opcode == "copy":
        result = body.by_name[result.operands[0]]
    if result.opcode != "get-tuple-element" or result.numbers("index") != (index,):
        return False
    return body.by_name[result.operands[0]].opcode == "parameter"


def trips(goes_on: Callable[[int], int | None], begin: int, step: int, most: int = 2**40) -> int | None:
    """The number of steps from `begin` for which `goes_on` holds, assuming that once false it stays false."""
    if step == 0:
        return None
    low, high = 0, 1  # it goes on for all counts below `low`
    while True:
        answer = goes_on(begin + step * (high - 1))
        if answer is None or high > most:
            return None
        if not answer:
            break
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        answer = goes_on(begin + step * (middle - 1))
        if answer is None:
            return None
        low, high = (middle, high) if answer else (low, middle)
    return low
