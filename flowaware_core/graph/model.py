"""The unified representation of a program: tensors, operators, sub-graphs, and the communication a plan adds."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import jax

from flowaware_core import versions
from flowaware_core.graph.rules import Rule

Role = Literal["parameter", "state", "input", "constant", "activation", "output"]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One value of the program.

    Attributes:
        id: its position in `Graph.tensors`.
        shape: sizes of its dimensions.
        dtype: its numpy name; "key" stands for typed random keys.
        itemsize: bytes of one element.
        role: where it comes from: carried arguments are `state`, the others `input`.
    """

    id: int
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    role: Role

    @functools.cached_property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


@dataclasses.dataclass(frozen=True, eq=False)
class Constant:
    """A literal operand; `value` is what the primitive is bound with."""

    value: Any


Operand = int | Constant


@dataclasses.dataclass(frozen=True, eq=False)
class Subgraph:
    """The body of a structured operator (scan, while, cond, remat): its tensors live in the same table as the outer ones.

    Attributes:
        kind: "body", "condition" or "branch".
        operators: in execution order.
        inputs: tensor of each body argument.
        outputs: operand of each body result.
        constants: tensors bound to values that the body closes over.
        repeat: how often it runs for one run of its operator; 1 where nobody knows.
    """

    kind: str
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Operand, ...]
    constants: tuple[tuple[int, Any], ...]
    repeat: int = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Operator:
    """One equation, after calls were flattened.

    Attributes:
        id: its number in `Graph.walk` order; plans refer to it.
        primitive: its name.
        operands: a tensor id or a literal per operand.
        results: tensor ids.
        rule: its factors.
        flops: floating point operations of one run of the whole operator.
        equation: the jaxpr equation that replaying binds.
        subgraphs: bodies of a structured operator.
        ties: pairs ((outer tensor, first dimension), inner tensor) that must share a layout; a scan's slices skip dimension 0.
        calls: the equations inside which it stood, from the inside out: a function that a library compiled for itself does not know
            from where it was called.
    """

    id: int
    primitive: str
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    rule: Rule
    flops: float
    equation: Any
    subgraphs: tuple[Subgraph, ...] = ()
    ties: tuple[tuple[int, int, int], ...] = ()
    calls: tuple[Any, ...] = ()

    @property
    def source(self) -> str:
        """The line of the traced program that it comes from, as "file.py:12 (function)"."""
        found = map(versions.source, (self.equation, *self.calls))
        return next((line for line in found if line), "an unknown line")

    @functools.cached_property
    def inputs(self) -> tuple[int, ...]:
        """Tensor ids among the operands."""
        return tuple(operand for operand in self.operands if isinstance(operand, int))


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """A captured program.

    Attributes:
        tensors: all values, those of sub-graphs too.
        operators: top-level operators in execution order.
        inputs: tensor of each flattened argument leaf.
        outputs: operand of each flattened result leaf.
        constants: tensors bound to values that the function closes over.
        carried: position of an input leaf -> position of the output leaf that replaces it.
        batch: positions of input leaves with examples along dimension 0.
        input_names: a readable path per input leaf.
        in_tree, out_tree: how the leaves make up the arguments and the result.
        update: what runs after it in programs of their own: its time counts, its memory does not; see `update.py`.
        hosted: tensors of the update that come from the memory of the hosts and go back to it.
    """

    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Operand, ...]
    constants: tuple[tuple[int, Any], ...]
    carried: dict[int, int]
    batch: tuple[int, ...]
    input_names: tuple[str, ...]
    in_tree: Any
    out_tree: Any
    update: Graph | None = None
    hosted: tuple[int, ...] = ()

    def walk(self) -> Iterator[tuple[Operator, int]]:
        """All operators, those of sub-graphs after their owner, each with the number of times it runs; then the update's."""
        yield from _walk(self.operators, 1)
        if self.update is not None:
            yield from self.update.walk()

    @functools.cached_property
    def traffic(self) -> dict[int, int]:
        """Per operator id the bytes that one run of the whole operator reads and writes."""
        sizes = [tensor.bytes for tensor in self.tensors]
        return {
            operator.id: sum([sizes[tensor] for tensor in (*operator.inputs, *operator.results)])
            for operator, _ in self.walk()
        }

    def part(self, outputs: Sequence[int], kept: Sequence[int] = (), given: Sequence[int] = ()) -> Graph:
        """What is needed for some of the outputs, which are then a list; inputs, tensors and operators keep their numbers.

        Args:
            outputs: positions of outputs.
            kept: tensors that are outputs too, behind them.
            given: tensors that are inputs, behind the others, and not computed.
        """
        chosen = (*(self.outputs[position] for position in outputs), *kept)
        place = {position: index for index, position in enumerate(outputs)}
        return dataclasses.replace(
            self,
            operators=needed(self.operators, chosen, given),
            inputs=(*self.inputs, *given),
            outputs=chosen,
            carried={leaf: place[output] for leaf, output in self.carried.items() if output in place},
            out_tree=jax.tree.structure([0] * len(chosen)),
        )

    def reading(self) -> Graph:
        """The same with those inputs alone that an operator or an output reads."""
        read = {t for operator in self.operators for t in operator.inputs}
        read.update(output for output in self.outputs if isinstance(output, int))
        used = [leaf for leaf, tensor in enumerate(self.inputs) if tensor in read]
        place = {leaf: index for index, leaf in enumerate(used)}
        names = dict(enumerate(self.input_names))
        return dataclasses.replace(
            self,
            inputs=tuple(self.inputs[leaf] for leaf in used),
            carried={place[leaf]: output for leaf, output in self.carried.items() if leaf in place},
            batch=tuple(place[leaf] for leaf in self.batch if leaf in place),
            input_names=tuple(names.get(leaf, "given") for leaf in used),
            in_tree=jax.tree.structure([0] * len(used)),
        )

    @property
    def num_operators(self) -> int:
        return sum(1 for _ in self.walk())


def needed(
    operators: Sequence[Operator], outputs: Sequence[Operand], given: Sequence[int] = ()
) -> tuple[Operator, ...]:
    """The operators without those that no output depends on, which a compiler would drop too, and those that make what is given."""
    known = set(given)
    wanted = {output for output in outputs if isinstance(output, int)} - known
    kept: list[Operator] = []
    for operator in reversed(operators):
        if operator.equation.effects or not wanted.isdisjoint(operator.results):
            wanted.update([tensor for tensor in operator.inputs if tensor not in known])
            bodies = tuple(
                dataclasses.replace(body, operators=needed(body.operators, body.outputs)) for body in operator.subgraphs
            )
            kept.append(dataclasses.replace(operator, subgraphs=bodies) if bodies else operator)
    return tuple(reversed(kept))


def _walk(operators: tuple[Operator, ...], times: int) -> Iterator[tuple[Operator, int]]:
    for operator in operators:
        yield operator, times
        for subgraph in operator.subgraphs:
            yield from _walk(subgraph.operators, times * subgraph.repeat)


@dataclasses.dataclass(frozen=True)
class Communication:
    """One collective that a plan implies.

    Attributes:
        kind: "all-reduce", "all-gather", "reduce-scatter", "all-to-all" or "collective-permute".
        bytes: what one device puts in, for one run.
        axes: positions of the mesh axes it runs over.
        times: how often it runs in a step.
        operator: id of the operator it belongs to.
    """

    kind: str
    bytes: int
    axes: tuple[int, ...]
    times: int = 1
    operator: int = -1
