"""Runs a placed graph over any kind of value: arrays (the executor) or descriptions of them (the cost model).

Both must take the same decisions, such as gathering a tensor once for several readers; so the decisions live here, and what is
done to a value is left to a backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from flowaware_core.graph.layout import Layout, Step, steps
from flowaware_core.graph.model import Constant, Graph, Operand, Operator, Subgraph
from flowaware_core.graph.placement import OperatorPlacement, Placement, Result

Body = Callable[[Sequence[Any]], list[Any]]


class Backend(Protocol):
    """What an interpretation does to values of its own kind."""

    def constant(self, tensor: int, value: Any) -> Any:
        """A value the program closes over."""

    def move(self, value: Any, tensor: int, source: Layout, step: Step, operator: Operator | None) -> Any:
        """The same tensor one elementary step further."""

    def bind(self, operator: Operator, values: Sequence[Any], placement: OperatorPlacement) -> list[Any]:
        """Runs an operator on operands in the layouts of its placement; literals arrive as `Constant`."""

    def settle(self, value: Any, tensor: int, operator: Operator, result: Result, target: Layout) -> Any:
        """Combines partial results and brings a result to the layout it is kept in."""

    def structured(self, operator: Operator, values: Sequence[Any], bodies: Sequence[Body]) -> list[Any]:
        """Runs scan, while, cond or remat."""


def interpret(graph: Graph, placement: Placement, backend: Backend, inputs: Sequence[Any]) -> list[Any]:
    """Runs the whole program on one value per flattened input; returns one per output (`Constant` for literals)."""
    scope = _Scope(placement, backend, {})
    scope.values.update(zip(graph.inputs, inputs, strict=True))
    scope.values.update({tensor: backend.constant(tensor, value) for tensor, value in graph.constants})
    scope.run(graph.operators)
    outputs = [scope.read(output) for output in graph.outputs]
    for index, output in graph.carried.items():
        result = graph.outputs[output]
        if isinstance(result, int):
            # A carried value goes back into the layout it came in, even where the two could not be tied.
            outputs[output] = scope.fetch(result, placement.tensors[graph.inputs[index]], None)
    return outputs


class _Scope:
    """The values of one body: each tensor in the layout it is kept in, and copies in other layouts."""

    def __init__(self, placement: Placement, backend: Backend, values: dict[int, Any]):
        self.placement, self.backend, self.values = placement, backend, values
        self.copies: dict[tuple[int, Layout], Any] = {}

    def read(self, operand: Operand) -> Any:
        return operand if isinstance(operand, Constant) else self.values[operand]

    def fetch(self, tensor: int, wanted: Layout, operator: Operator | None, view: Layout | None = None) -> Any:
        """The tensor in the layout wanted, by way of its view if it has one; every layout on the way is made once."""
        start = self.placement.tensors[tensor]
        if wanted == start:
            return self.values[tensor]
        if (tensor, wanted) in self.copies:
            return self.copies[tensor, wanted]
        value = self.values[tensor]
        if view is not None and view != wanted:
            value, start = self.fetch(tensor, view, operator), view
        for step in steps(start, wanted):
            known = self.copies.get((tensor, step.layout))
            value = self.backend.move(value, tensor, start, step, operator) if known is None else known
            self.copies[tensor, step.layout] = value
            start = step.layout
        return value

    def run(self, operators: Sequence[Operator]) -> None:
        for operator in operators:
            if operator.subgraphs:
                self._structured(operator)
                continue
            chosen = self.placement.operators[operator.id]
            values = [
                operand
                if isinstance(operand, Constant) or layout is None
                else self.fetch(operand, layout, operator, self.placement.views.get(operand) if chosen.free else None)
                for operand, layout in zip(operator.operands, chosen.operands, strict=True)
            ]
            results = self.backend.bind(operator, values, chosen)
            for tensor, value, result in zip(operator.results, results, chosen.results, strict=True):
                target = self.placement.tensors[tensor]
                self.values[tensor] = self.backend.settle(value, tensor, operator, result, target)

    def _structured(self, operator: Operator) -> None:
        values = [self.read(operand) for operand in operator.operands]
        bodies = [self._body(subgraph) for subgraph in operator.subgraphs]
        results = self.backend.structured(operator, values, bodies)
        self.values.update(zip(operator.results, results, strict=True))

    def _body(self, subgraph: Subgraph) -> Body:
        def body(values: Sequence[Any]) -> list[Any]:
            scope = _Scope(self.placement, self.backend, dict(zip(subgraph.inputs, values, strict=True)))
            scope.values.update({t: self.backend.constant(t, value) for t, value in subgraph.constants})
            scope.run(subgraph.operators)
            return [scope.read(output) for output in subgraph.outputs]

        return body
