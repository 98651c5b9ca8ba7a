"""What a forward pass keeps for the backward pass, where the two are programs of their own.

The backward pass computes again what is a loop over things at hand, as a compiler would in one program; the rest is kept, and of a
chain of loops the smallest value that it can be computed from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowaware_core.graph.fusion import CONSUMING, COSTLY, FUSIBLE
from flowaware_core.graph.model import Graph, Operator, needed


def residuals(graph: Graph, forward: Sequence[int], backward: Sequence[int]) -> tuple[int, ...]:
    """Tensors that the forward pass makes and the backward pass reads, ascending.

    Args:
        graph: both passes as one program.
        forward, backward: output positions of each.
    """
    outputs = [graph.outputs[position] for position in (*forward, *backward)]
    before = needed(graph.operators, outputs[: len(forward)])
    makers = {tensor: operator for operator in before for tensor in operator.results}
    inside = {operator.id for operator in before}
    behind = [op for op in needed(graph.operators, outputs[len(forward) :]) if op.id not in inside]
    read = [(tensor, operator) for operator in behind for tensor in operator.inputs if tensor in makers]
    returned = {output for output in outputs[len(forward) :] if isinstance(output, int) and output in makers}
    kept = {tensor for tensor, operator in read if operator.primitive not in CONSUMING} | returned
    cost = _costs(graph, before, kept)
    for tensor, _ in read:
        kept.update(_chosen(graph, makers, cost, tensor))
    return tuple(sorted(kept))


def _loop(operator: Operator) -> bool:
    return operator.primitive in FUSIBLE and operator.primitive not in COSTLY


def _costs(graph: Graph, operators: Iterable[Operator], kept: set[int]) -> dict[int, int]:
    """Bytes to keep so that a tensor is at hand, beside what is kept anyway."""
    cost: dict[int, int] = {}
    for operator in operators:
        again = sum(cost.get(tensor, 0) for tensor in operator.inputs) if _loop(operator) else None
        for tensor in operator.results:
            own = graph.tensors[tensor].bytes
            cost[tensor] = 0 if tensor in kept else own if again is None else min(own, again)
    return cost


def _chosen(graph: Graph, makers: dict[int, Operator], cost: dict[int, int], tensor: int) -> set[int]:
    """The tensors to keep for one that is read."""
    found, waiting = set(), [tensor]
    while waiting:
        one = waiting.pop()
        if one not in makers or not cost[one]:
            continue
        if cost[one] == graph.tensors[one].bytes:
            found.add(one)
        else:
            waiting.extend(makers[one].inputs)
    return found
