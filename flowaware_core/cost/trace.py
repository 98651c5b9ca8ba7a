"""A placed program played through without arrays: every collective it makes, and every buffer with the moments it is alive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from flowaware_core.cost import communication
from flowaware_core.graph.interpret import Body, interpret
from flowaware_core.graph.layout import Layout, Step, local_shape
from flowaware_core.graph.model import Communication, Constant, Graph, Operator
from flowaware_core.graph.placement import OperatorPlacement, Placement, Result
from flowaware_core.graph.rules import Border

# The same values in another order of dimensions, as the CPU's convolution and gather want them.
COPY = "layout copy"
# The same values as the CPU's exchange sends or receives them, a piece for each device.
PIECES = "pieces"
# What the CPU scatters into, where the target needs nothing.
ZEROS = "zeros"
REMAT = ("checkpoint", "remat", "remat2")
# A shard with the borders of its neighbours.
BORDERS = "borders"
# The counter-based generator makes two words for each number, which its readers combine.
RANDOM_BYTES = 8
REDUCED_AT_ONCE = 32


@dataclasses.dataclass(eq=False, slots=True)
class Buffer:
    """One value on one device.

    Attributes:
        bytes: its size.
        primitive: what made it: "input", a primitive's name, a collective's kind, or `COPY`.
        sources: the buffers it was made from.
        moment: when, counted in events.
        tensor: the tensor it holds.
        kept: whether it is the tensor in the layout it is kept in, not a copy in another one.
        written: its size where a compiler writes a reduce-scatter as an all-reduce that every reader takes its slice of.
        body: the moment at which the body of the innermost loop begins; 0 outside loops.
        apart: whether the CPU reads its operands from memory, where the target computes them on the way.
        since: the moment from which it takes memory; None: its own. What a loop stacks is there from the loop's first round on.
        operator: the operator that made it, or for which its operand was moved; -1: none.
    """

    bytes: int
    primitive: str
    sources: tuple[Buffer, ...]
    moment: int
    tensor: int
    kept: bool
    written: int
    body: int = 0
    apart: bool = False
    since: int | None = None
    operator: int = -1


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """What was recorded: collectives, buffers in the order they are made, and which of them go in and out."""

    communications: tuple[Communication, ...]
    buffers: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer | None, ...]


def trace(graph: Graph, placement: Placement, sizes: Sequence[int]) -> Trace:
    """Plays a placed graph through on a mesh of the given axis sizes."""
    recorder = _Recorder(graph, placement, sizes)
    inputs = [recorder.buffer(t, placement.tensors[t], "input", ()) for t in graph.inputs]
    outputs = interpret(graph, placement, recorder, inputs)
    kept = tuple(None if isinstance(output, Constant) else output for output in outputs)
    return Trace(tuple(recorder.communications), tuple(recorder.buffers), tuple(inputs), kept)


class _Recorder:
    """The backend whose values are buffers."""

    def __init__(self, graph: Graph, placement: Placement, sizes: Sequence[int]):
        self._tensors, self._layouts, self._sizes = graph.tensors, placement.tensors, sizes
        self.communications: list[Communication] = []
        self.buffers: list[Buffer] = []
        self._local_bytes: dict[tuple[tuple[int, ...], Layout], int] = {}  # elements
        self._copies: dict[int, Buffer] = {}
        # Borders: the shapes of widened buffers, what was exchanged, and what came of it, each for a buffer by its moment.
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._exchanged: set[tuple[int, str, int, int, tuple[int, ...]]] = set()
        self._wide: dict[tuple[int, Border, tuple[int, ...]], Buffer] = {}
        self._times, self._body = 1, 0

    def buffer(self, tensor: int, layout: Layout, primitive: str, sources: Sequence[Any]) -> Buffer:
        value = self._tensors[tensor]
        size = self._local_bytes.get((value.shape, layout))
        if size is None:
            size = self._local_bytes[value.shape, layout] = math.prod(local_shape(value.shape, layout, self._sizes))
        size *= value.itemsize
        real = tuple(source for source in sources if isinstance(source, Buffer))
        kept = layout == self._layouts[tensor]
        made = Buffer(size, primitive, real, len(self.buffers), tensor, kept, size, self._body)
        self.buffers.append(made)
        return made

    def _communicate(self, moves: Sequence[Communication], operator: Operator | None) -> None:
        number = operator.id if operator else -1
        self.communications += [dataclasses.replace(move, times=self._times, operator=number) for move in moves]

    def constant(self, tensor: int, value: Any) -> Buffer:
        del value
        return self.buffer(tensor, ((),) * len(self._tensors[tensor].shape), "constant", ())

    def move(self, value: Any, tensor: int, source: Layout, step: Step, operator: Operator | None) -> Buffer:
        shape, itemsize = self._tensors[tensor].shape, self._tensors[tensor].itemsize
        self._communicate(communication.reshard(shape, itemsize, source, step.layout, self._sizes), operator)
        if step.kind == "all-to-all":
            # The CPU's exchange works on pieces, one for each receiver, which are cut off before and joined after.
            pieces = self.buffer(tensor, source, PIECES, (value,))
            moved = self.buffer(tensor, step.layout, step.kind, (pieces,))
            moved.operator = operator.id if operator else -1
            return self.buffer(tensor, step.layout, PIECES, (moved,))
        moved = self.buffer(tensor, step.layout, step.kind, (value,))
        moved.operator = operator.id if operator else -1
        # Shards arrive one after the other, in order only if the outermost dimension was gathered.
        outermost = source[0] != step.layout[0]
        return moved if step.kind == "slice" or outermost else self.buffer(tensor, step.layout, COPY, (moved,))

    def bind(self, operator: Operator, values: Sequence[Any], placement: OperatorPlacement) -> list[Any]:
        reorder = _reordered(operator) if operator.primitive == "conv_general_dilated" else (False, False, False)
        values = self._widened(operator, values, placement) if placement.exchanges else values
        operands = [self._copy(value) if wanted else value for value, wanted in zip(values, reorder[:2], strict=False)]
        operands += values[len(operands) :]
        if operator.primitive == "select_and_scatter_add":  # which the CPU writes as a scatter into zeros
            tensor = operator.results[0]
            operands.append(self.buffer(tensor, placement.results[0].layout, ZEROS, ()))
        results = []
        for tensor, result in zip(operator.results, placement.results, strict=True):
            made = self.buffer(tensor, result.layout, operator.primitive, operands)
            made.operator = operator.id
            if operator.primitive.startswith("reduce_"):
                made.apart = self._in_steps(operator, placement)
            elif operator.primitive == "random_bits":
                made.bytes = made.written = made.bytes // self._tensors[tensor].itemsize * RANDOM_BYTES
            results.append(self.buffer(tensor, result.layout, COPY, (made,)) if reorder[2] else made)
        return results

    def _in_steps(self, operator: Operator, placement: OperatorPlacement) -> bool:
        """Whether the CPU reduces in several steps: along a dimension longer than `REDUCED_AT_ONCE`."""
        operand = operator.operands[0]
        if not isinstance(operand, int):
            return False
        shape = self._local(operand, placement.operands[0])
        return any(shape[dim] > REDUCED_AT_ONCE for dim in operator.equation.params.get("axes", ()))

    def _widened(self, operator: Operator, values: Sequence[Any], placement: OperatorPlacement) -> list[Any]:
        """Operands with the borders of the neighbouring shards; what was exchanged before is not exchanged again."""
        wide = list(values)
        for exchange in placement.exchanges:
            border = exchange.border
            value, tensor = wide[border.operand], operator.operands[border.operand]
            assert isinstance(tensor, int), "a literal is not cut"
            shape = self._shapes.setdefault(value.moment, self._local(tensor, placement.operands[border.operand]))
            for side, length in (("before", border.before), ("after", border.after)):
                key = (value.moment, side, border.dim, length, exchange.axes)
                alone = math.prod(self._sizes[axis] for axis in exchange.axes) == 1
                if length and not alone and key not in self._exchanged:
                    self._exchanged.add(key)
                    size = value.bytes // shape[border.dim] * length
                    self._communicate([Communication("collective-permute", size, exchange.axes)], operator)
            made = self._wide.get((value.moment, border, exchange.axes))
            if made is None and border.before + border.after:
                grown = (
                    *shape[: border.dim],
                    shape[border.dim] + border.before + border.after,
                    *shape[border.dim + 1 :],
                )
                size = value.bytes // shape[border.dim] * grown[border.dim]
                made = Buffer(size, BORDERS, (value,), len(self.buffers), value.tensor, False, size, self._body)
                self.buffers.append(made)
                self._shapes[made.moment] = grown
                self._wide[value.moment, border, exchange.axes] = made
            wide[border.operand] = made or value
        return wide

    def _local(self, tensor: int, layout: Layout | None) -> tuple[int, ...]:
        return local_shape(self._tensors[tensor].shape, layout or (), self._sizes)

    def _copy(self, value: Buffer) -> Buffer:
        """One reordered copy per buffer, however many read it."""
        if value.moment not in self._copies:
            made = Buffer(value.bytes, COPY, (value,), len(self.buffers), value.tensor, False, value.bytes, self._body)
            self.buffers.append(made)
            self._copies[value.moment] = made
        return self._copies[value.moment]

    def settle(self, value: Any, tensor: int, operator: Operator, result: Result, target: Layout) -> Any:
        if not result.partial and result.layout == target:
            return value
        shape, itemsize = self._tensors[tensor].shape, self._tensors[tensor].itemsize
        moves = communication.combine(shape, itemsize, result.layout, target, result.partial, self._sizes)
        self._communicate(moves, operator)
        made = self.buffer(tensor, target, moves[-1].kind if moves else "slice", (value,))
        if made.primitive == "reduce-scatter":
            made.written = moves[-1].bytes
        return made

    def structured(self, operator: Operator, values: Sequence[Any], bodies: Sequence[Body]) -> list[Any]:
        name, params = operator.primitive, operator.equation.params
        if name == "optimization_barrier":
            return self._same(values, operator.results)
        # What goes into a block that XLA may not join with others is kept for it, as values of their own.
        inlined = name in REMAT and not params["prevent_cse"]
        looped = params["num_consts"] if name == "scan" else len(values) if inlined else 0
        carried = params["num_carry"] if name == "scan" else 0
        begin = len(self.buffers)
        results: list[Any] = []
        for body, subgraph in zip(bodies, operator.subgraphs, strict=True):
            self._times *= subgraph.repeat
            outside, self._body = self._body, self._body if name in REMAT else len(self.buffers)
            inner = self._same(values[:looped], subgraph.inputs[:looped])
            for index, tensor in enumerate(subgraph.inputs[looped:]):
                first = values[looped + index : looped + index + 1] if index < carried or name in REMAT else ()
                inner.append(self.buffer(tensor, self._layouts[tensor], "argument", first))
            results = body(inner)
            self._times //= subgraph.repeat
            self._body = outside
        if name in REMAT:
            return self._same(results, operator.results)
        # What a loop starts from is no more once it has started.
        sources = [*values[:looped], *values[looped + carried :], *results]
        made = [self.buffer(t, self._layouts[t], name, sources) for t in operator.results]
        for stacked in made[carried:] if name == "scan" else ():
            stacked.since = begin
        return made

    def _same(self, values: Sequence[Any], tensors: Sequence[int]) -> list[Any]:
        """The values themselves where they are buffers: what goes into a block, or comes out of it, is not copied."""
        return [
            value if isinstance(value, Buffer) else self.buffer(tensor, self._layouts[tensor], "constant", ())
            for value, tensor in zip(values, tensors, strict=True)
        ]


def _reordered(operator: Operator) -> tuple[bool, bool, bool]:
    """Whether the CPU's convolution reorders its left operand, its kernel, and its result.

    It works on [batch, spatial, channels] and [spatial, in, out]; a convolution with a window of one element is a matrix product,
    which takes its operands in any order.
    """
    params = operator.equation.params
    numbers = params["dimension_numbers"]
    rank = len(numbers.lhs_spec)
    spatial = tuple(range(1, rank - 1))
    lhs = numbers.lhs_spec != (0, rank - 1, *spatial)
    rhs = numbers.rhs_spec != (rank - 1, rank - 2, *range(rank - 2))
    out = numbers.out_spec != (0, rank - 1, *spatial)
    window = [operator.equation.invars[1].aval.shape[dim] for dim in numbers.rhs_spec[2:]]
    plain = all(n == 1 for n in (*window, *params["window_strides"], *params["lhs_dilation"], *params["rhs_dilation"]))
    return (False, False, False) if plain else (lhs, rhs, out)
