"""Floating-point operations of a compiled program on one device, loops multiplied out.

Counted as XLA's own analysis does: two per multiply-add of a dot product or convolution (the padding of a convolution
left out), one per element of an elementwise operation or an addition of a reduction, none for transcendental functions
and movement. That analysis counts the body of a loop once; here it counts as often as it runs.
"""

from __future__ import annotations

import functools
import math
import re

import numpy as np

from flowaware_core.hlo.module import Computation, Instruction, Module, parse
from flowaware_core.hlo.scalars import trip_count

ELEMENTWISE = frozenset({
    "abs", "add", "and", "ceil", "clamp", "clz", "compare", "complex", "convert", "divide", "floor", "imag",
    "is-finite", "maximum", "minimum", "multiply", "negate", "not", "or", "popcnt", "real", "reduce-precision",
    "remainder", "round-nearest-afz", "round-nearest-even", "select", "shift-left", "shift-right-arithmetic",
    "shift-right-logical", "sign", "subtract", "xor",
})  # fmt: skip
WINDOW = re.compile(r"window=\{([^}]*)\}")
LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")


def flops(text: str | Module) -> float | None:
    """Operations of one call of the program on one device; None where a loop runs an unknown number of times.

    Args:
        text: what `jax.stages.Compiled.as_text()` gives, or `parse` of it.
    """
    module = parse(text)
    totals: dict[str, float | None] = {}
    for computation in module.computations.values():
        totals[computation.name] = total(module, computation, totals)
    return totals[module.entry]


def total(module: Module, computation: Computation, totals: dict[str, float | None]) -> float | None:
    """Operations of one run of a computation, given those of the computations printed before it."""
    count = 0.0
    for instruction in computation.instructions:
        if instruction.opcode in ELEMENTWISE:  # the most frequent, and quick to tell
            count += instruction.elements
            continue
        found = operations(module, computation, instruction, totals)
        if found is None:
            return None
        count += found
    return count


def operations(
    module: Module, computation: Computation, instruction: Instruction, totals: dict[str, float | None]
) -> float | None:
    """Operations of one instruction that is not elementwise."""
    match instruction.opcode:
        case "dot":
            return dot(computation, instruction)
        case "convolution":
            return convolution(computation, instruction)
        case "fusion" | "call" | "async-start":
            return called(instruction, totals)[0]
        case "while":
            counts = called(instruction, totals)
            trips = trip_count(module, computation, instruction)
            if any(count is None for count in counts):
                return None
            once = sum(count or 0.0 for count in counts)
            return 0.0 if once == 0 else None if trips is None else once * trips
        case "conditional":
            counts = called(instruction, totals)
            return None if any(count is None for count in counts) else max(count or 0.0 for count in counts)
        case (
            "reduce"
            | "reduce-window"
            | "select-and-scatter"
            | "scatter"
            | "map"
            | "sort"
            | "all-reduce"
            | "reduce-scatter"
        ):
            return applied(computation, instruction, called(instruction, totals))
        case "fft":
            lengths = instruction.numbers("fft_length")
            return 8.0 * instruction.elements * sum(math.floor(math.log2(length)) for length in lengths)
    return 0.0


def called(instruction: Instruction, totals: dict[str, float | None]) -> list[float | None]:
    """Operations of one run of each computation an instruction names."""
    return [totals.get(name, 0.0) for _, name in instruction.called()] or [0.0]


def applied(computation: Computation, instruction: Instruction, once: list[float | None]) -> float:
    """Operations of an instruction that applies a computation to elements."""
    each = sum(count or 0.0 for count in once)
    operands = computation.operand_arrays(instruction)
    size = operands[0].elements
    match instruction.opcode:
        case "reduce":
            return each * (size - instruction.arrays[0].elements)
        case "reduce-window":
            return each * instruction.arrays[0].elements * (window_size(instruction) - 1)
        case "select-and-scatter":
            return each * operands[1].elements * (window_size(instruction) - 1)
        case "scatter":
            return each * operands[-1].elements
        case "sort":
            return size * math.ceil(math.log2(max(size, 2)))  # one per comparison, whatever it compares
        case "map":
            return each * instruction.elements
    return float(sum(array.elements for array in operands))  # all-reduce, reduce-scatter


def dot(computation: Computation, instruction: Instruction) -> float:
    """Two per multiply-add: every element of the result is a sum over the contracted dimensions."""
    left = computation.operand_arrays(instruction)[0]
    contracted = math.prod(left.shape[dimension] for dimension in instruction.numbers("lhs_contracting_dims"))
    return 2.0 * instruction.elements * contracted


def window_field(instruction: Instruction, field: str, rank: int, default: str) -> list[str]:
    """One "x"-separated field of an instruction's window, per dimension."""
    window = WINDOW.search(instruction.rest)
    found = re.search(rf"\b{field}=([-\w]+)", window.group(1)) if window else None
    return found.group(1).split("x") if found else [default] * rank


def window_size(instruction: Instruction) -> int:
    """Elements of a window."""
    return math.prod(int(size) for size in window_field(instruction, "size", 0, "1"))


def convolution(computation: Computation, instruction: Instruction) -> float:
    """Two per multiply-add that meets no padding."""
    operands = computation.operand_arrays(instruction)
    left, kernel, result = operands[0].shape, operands[1].shape, instruction.arrays[0].shape
    labels = LABELS.search(instruction.rest)
    assert labels is not None, f"a convolution without dim_labels: {instruction.rest[:200]}"
    inputs, weights, outputs = labels.groups()
    spatial = sorted(label for label in inputs if label.isdigit())
    fields = [
        window_field(instruction, field, len(spatial), default)
        for field, default in (("stride", "1"), ("pad", "0_0"), ("lhs_dilate", "1"), ("rhs_dilate", "1"))
    ]
    count = 2.0 * kernel[weights.index("i")] * result[outputs.index("f")] * result[outputs.index("b")]
    for place, label in enumerate(spatial):
        stride, pad, lhs_dilate, rhs_dilate = (field[place] for field in fields)
        count *= meetings(
            left[inputs.index(label)],
            kernel[weights.index(label)],
            result[outputs.index(label)],
            int(stride),
            int(pad.split("_")[0]),
            int(lhs_dilate),
            int(rhs_dilate),
        )
    return count


@functools.lru_cache(maxsize=4096)
def meetings(size: int, kernel: int, result: int, stride: int, pad: int, lhs_dilate: int, rhs_dilate: int) -> int:
    """How many (output, kernel) positions along one dimension meet an element of the input."""
    place = np.arange(result)[:, None] * stride + np.arange(kernel)[None, :] * rhs_dilate - pad
    return int(np.count_nonzero((place >= 0) & (place <= (size - 1) * lhs_dilate) & (place % lhs_dilate == 0)))
