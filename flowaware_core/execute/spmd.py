"""Plan + function -> one partitioned program.

The captured program is evaluated again with a sharding constraint on every value, so that the partitioner has nothing left to
guess: each elementary change of layout becomes the one collective that was planned. Operators keep their number in the name
stack (`op123`), by which an audit finds them in the compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from flowaware_core import versions
from flowaware_core.execute import local
from flowaware_core.graph.interpret import Body, interpret
from flowaware_core.graph.layout import Layout, Step, steps
from flowaware_core.graph.model import Constant, Graph, Operand, Operator, Subgraph
from flowaware_core.graph.placement import OperatorPlacement, Placement, Result


def sharding(layout: Layout, mesh: jax.sharding.Mesh) -> NamedSharding:
    """A layout as JAX writes it."""
    names = mesh.axis_names
    return NamedSharding(mesh, PartitionSpec(*(tuple(names[axis] for axis in axes) or None for axes in layout)))


def replay(graph: Graph, placement: Placement, mesh: jax.sharding.Mesh) -> Callable[..., list[Any]]:
    """The program as a function of flattened inputs, every value constrained to its planned layout."""
    backend = _Constrain(graph, placement, mesh)

    def run(*leaves: Any) -> list[Any]:
        outputs = interpret(graph, placement, backend, leaves)
        return [output.value if isinstance(output, Constant) else output for output in outputs]

    return run


def program(graph: Graph, placement: Placement, mesh: jax.sharding.Mesh) -> Any:
    """The program under `jax.jit`: a leaf per input -> a list of the outputs; what is carried gives its memory away."""
    run = replay(graph, placement, mesh)
    inputs = [sharding(placement.tensors[tensor], mesh) for tensor in graph.inputs]
    outputs = [sharding(placement.tensors[output] if isinstance(output, int) else (), mesh) for output in graph.outputs]
    for leaf, output in graph.carried.items():
        outputs[output] = inputs[leaf]
    return jax.jit(run, in_shardings=tuple(inputs), out_shardings=outputs, donate_argnums=tuple(sorted(graph.carried)))


# Has a mesh of its own, and cannot run inside another.
_OWN_MESH = ("shard_map",)


class _Constrain:
    """The backend whose values are JAX tracers."""

    def __init__(self, graph: Graph, placement: Placement, mesh: jax.sharding.Mesh):
        self._tensors, self._kept = graph.tensors, placement.tensors
        self._mesh = mesh
        self._shardings: dict[Layout, NamedSharding] = {}

    def _constrain(self, value: Any, tensor: int, layout: Layout) -> Any:
        if self._mesh.size == 1:
            return value
        if self._tensors[tensor].dtype == "key":
            # Keys themselves cannot carry a constraint on every supported version, the numbers they consist of can.
            words = jax.lax.with_sharding_constraint(jax.random.key_data(value), self._sharding((*layout, ())))
            return jax.random.wrap_key_data(words, impl=jax.random.key_impl(value))
        return jax.lax.with_sharding_constraint(value, self._sharding(layout))

    def _sharding(self, layout: Layout) -> NamedSharding:
        if layout not in self._shardings:
            self._shardings[layout] = sharding(layout, self._mesh)
        return self._shardings[layout]

    def constant(self, tensor: int, value: Any) -> Any:
        del tensor
        return value

    def move(self, value: Any, tensor: int, source: Layout, step: Step, operator: Operator | None) -> Any:
        del source
        with jax.named_scope(f"op{operator.id}.operand" if operator else "carried"):
            return self._constrain(value, tensor, step.layout)

    def bind(self, operator: Operator, values: Sequence[Any], placement: OperatorPlacement) -> list[Any]:
        plain = [value.value if isinstance(value, Constant) else value for value in values]
        with jax.named_scope(f"op{operator.id}"):
            if placement.exchanges or (operator.rule.local and placement.cut) or self._unruled(operator):
                return local.bind(operator, plain, placement, self._mesh, lambda layout: self._sharding(layout).spec)
            return versions.bind(operator.equation, plain)

    def _unruled(self, operator: Operator) -> bool:
        """Whether every device runs the whole operator by itself: what has no rule may come with a partitioner of its own, which
        has nothing to say here. What has effects is left where it has them once.
        """
        alone = self._mesh.size > 1 and not operator.rule.known
        return alone and not operator.equation.effects and operator.primitive not in _OWN_MESH

    def settle(self, value: Any, tensor: int, operator: Operator, result: Result, target: Layout) -> Any:
        with jax.named_scope(f"op{operator.id}"):
            value = self._constrain(value, tensor, result.layout)
            for step in steps(result.layout, target):
                value = self._constrain(value, tensor, step.layout)
        return value

    def structured(self, operator: Operator, values: Sequence[Any], bodies: Sequence[Body]) -> list[Any]:
        plain = [value.value if isinstance(value, Constant) else value for value in values]
        bound = [self._body(*pair) for pair in zip(bodies, operator.subgraphs, strict=True)]
        with jax.named_scope(f"op{operator.id}"):
            results = _STRUCTURED[operator.primitive](operator, plain, bound)
            return [self._keep(value, tensor) for value, tensor in zip(results, operator.results, strict=True)]

    def _keep(self, value: Any, operand: Operand) -> Any:
        """A value in the layout it is kept in; literals as they are."""
        if isinstance(operand, Constant):
            return operand.value
        return self._constrain(value, operand, self._kept[operand])

    def _body(self, body: Body, subgraph: Subgraph) -> Callable[[Sequence[Any]], list[Any]]:
        """A body that keeps what comes in and goes out in its layout: nothing is left to the partitioner at its borders."""

        def run(values: Sequence[Any]) -> list[Any]:
            outputs = body(list(map(self._keep, values, subgraph.inputs)))
            return list(map(self._keep, outputs, subgraph.outputs))

        return run


def _typed(values: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Literal results become arrays of the type that the loop carries."""
    return [
        jax.lax.convert_element_type(v, a.dtype) if not hasattr(v, "aval") else v
        for v, a in zip(values, like, strict=True)
    ]


def _scan(operator: Operator, values: Sequence[Any], bodies: Sequence[Any]) -> list[Any]:
    params = operator.equation.params
    consts, carry = params["num_consts"], params["num_carry"]
    avals = [variable.aval for variable in operator.equation.outvars]

    def body(state: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = bodies[0]([*values[:consts], *state, *slices])
        return _typed(outputs[:carry], avals[:carry]), outputs[carry:]

    initial = _typed(values[consts : consts + carry], avals[:carry])
    options = {"length": params["length"], "reverse": params["reverse"], "unroll": params["unroll"]}
    final, stacked = jax.lax.scan(body, initial, list(values[consts + carry :]), **options)
    return [*final, *stacked]


def _while(operator: Operator, values: Sequence[Any], bodies: Sequence[Any]) -> list[Any]:
    params = operator.equation.params
    first, second = params["cond_nconsts"], params["body_nconsts"]
    avals = [variable.aval for variable in operator.equation.outvars]
    carry = _typed(values[first + second :], avals)
    return jax.lax.while_loop(
        lambda state: bodies[0]([*values[:first], *state])[0],
        lambda state: _typed(bodies[1]([*values[first : first + second], *state]), avals),
        carry,
    )


def _cond(operator: Operator, values: Sequence[Any], bodies: Sequence[Any]) -> list[Any]:
    avals = [variable.aval for variable in operator.equation.outvars]
    branches = [lambda *args, b=body: _typed(b(args), avals) for body in bodies]
    return jax.lax.switch(values[0], branches, *values[1:])


def _remat(operator: Operator, values: Sequence[Any], bodies: Sequence[Any]) -> list[Any]:
    """Binds the same primitive with the constrained body, so that the compiler still keeps the recomputation apart."""
    closed = jax.make_jaxpr(lambda *args: bodies[0](args))(*values)
    return versions.bind_remat(operator.equation, closed, values)


def _barrier(operator: Operator, values: Sequence[Any], bodies: Sequence[Any]) -> list[Any]:
    del bodies
    return versions.bind(operator.equation, values)


_STRUCTURED: dict[str, Callable[..., list[Any]]] = {"scan": _scan, "while": _while, "cond": _cond}
_STRUCTURED |= {"optimization_barrier": _barrier}
_STRUCTURED |= dict.fromkeys(("checkpoint", "remat", "remat2"), _remat)
