"""JAX function -> graph, through its jaxpr.

Calls are flattened (jit, custom derivatives, linear solves), and shardings that the function asks for itself are left out: the
plan decides. scan, while, cond and remat keep their bodies as sub-graphs. Variables are keyed by call instance: JAX shares one
jaxpr object between equal calls, so the same variable object means another value there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from flowaware_core import versions
from flowaware_core.graph.expansion import expanded
from flowaware_core.graph.model import Constant, Graph, Operand, Operator, Role, Subgraph, Tensor, needed
from flowaware_core.graph.rules import Rule, rule
from flowaware_core.task import Task

# Primitives that only call a function -> the parameter that holds it.
INLINE = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "call": "call_jaxpr",
}
INLINE |= {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr", "custom_vjp_call_jaxpr": "fun_jaxpr"}
INLINE |= {"custom_vmap_call": "call", "composite": "jaxpr", "linear_call": "callee"}
_REMAT = ("checkpoint", "remat", "remat2")


def capture(task: Task) -> Graph:
    """Traces the task's function with its abstract arguments; no array is made."""
    versions.use_partitionable_random_numbers()
    closed, results = jax.make_jaxpr(task.step, return_shape=True)(*task.args)
    closed = versions.without_references(closed)
    leaves = [jax.tree_util.tree_flatten_with_path(argument)[0] for argument in task.args]
    starts = [int(start) for start in np.cumsum([0, *map(len, leaves)])]
    carried = _carried_leaves(task, starts, results)
    batch = tuple(int(starts[position] + index) for position in task.batch for index in range(len(leaves[position])))
    names = tuple(
        f"{position}{jax.tree_util.keystr(path)}" for position, argument in enumerate(leaves) for path, _ in argument
    )
    tracer = _Tracer()
    inputs = []
    for index, variable in enumerate(closed.jaxpr.invars):
        inputs.append(tracer.tensor(variable.aval, "state" if index in carried else "input"))
    environment: dict[Any, Operand] = dict(zip(closed.jaxpr.invars, inputs, strict=True))
    constants = tracer.constants(closed, environment)
    operators = tracer.equations(closed.jaxpr, environment)
    outputs = tuple(tracer.read(environment, variable) for variable in closed.jaxpr.outvars)
    return Graph(
        tensors=tuple(tracer.tensors),
        operators=_numbered(needed(operators, outputs), itertools.count()),
        inputs=tuple(inputs),
        outputs=outputs,
        constants=constants,
        carried=carried,
        batch=batch,
        input_names=names,
        in_tree=jax.tree.structure(task.args),
        out_tree=jax.tree.structure(results),
    )


def _carried_leaves(task: Task, starts: Sequence[int], returned: Any) -> dict[int, int]:
    """Input leaf -> output leaf for the carried arguments; both trees must have the same leaves."""
    results = returned if isinstance(returned, tuple) else (returned,)
    counts = np.cumsum([0, *(len(jax.tree.leaves(result)) for result in results)])
    pairs: dict[int, int] = {}
    for position, result in task.carried.items():
        if not 0 <= result < len(results):
            raise ValueError(f"carried={{{position}: {result}}}, but the step returns {len(results)} results")
        before, after = jax.tree.leaves(task.args[position]), jax.tree.leaves(results[result])
        shapes = [(leaf.shape, leaf.dtype) for leaf in before], [(leaf.shape, leaf.dtype) for leaf in after]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"argument {position} is carried to result {result}, so both must have equal leaves; "
                f"got {len(before)} and {len(after)} leaves that differ in number, shape or dtype"
            )
        pairs |= {int(starts[position] + index): int(counts[result] + index) for index in range(len(before))}
    return pairs


def _numbered(operators: Sequence[Operator], numbers: Iterator[int]) -> tuple[Operator, ...]:
    """The operators with ids in the order of `Graph.walk`."""
    found = []
    for operator in operators:
        number = next(numbers)
        bodies = tuple(
            dataclasses.replace(body, operators=_numbered(body.operators, numbers)) for body in operator.subgraphs
        )
        found.append(dataclasses.replace(operator, id=number, subgraphs=bodies))
    return tuple(found)


def closed_of(jaxpr: Any) -> versions.ClosedJaxpr:
    """A jaxpr as one with the constants that it closes over."""
    return jaxpr if isinstance(jaxpr, versions.ClosedJaxpr) else versions.ClosedJaxpr(jaxpr, ())


def _key_bytes(dtype: Any) -> int:
    """Bytes of one random key, which depend on the generator."""
    words = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), dtype))
    return words.size * words.dtype.itemsize


def _solver(params: dict[str, Any], operands: tuple[Operand, ...]) -> tuple[Any, tuple[Operand, ...]]:
    """The part of a linear solve that computes it, the other parts being for derivatives; and the operands it takes."""
    lengths = params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    right_sides = operands[sum(lengths) :]
    return params["jaxprs"].solve, (*operands[start : start + lengths.solve], *right_sides)


def _rule_name(equation: Any) -> str:
    """Collectives combine flags but no bits: "and" and "or" of whole numbers follow the rule of "xor", which none combines."""
    name = str(equation.primitive.name)
    if name in ("reduce_and", "reduce_or") and equation.invars[0].aval.dtype != np.bool_:
        return "reduce_xor"
    return name


def _is_placement(equation: Any) -> bool:
    """Whether an equation says where a value shall be and nothing else."""
    if equation.primitive.name == "device_put":
        return all(device is None for device in equation.params["devices"])
    return equation.primitive.name in ("sharding_constraint", "reshard", "layout_constraint")


class _Tracer:
    """Numbers tensors while jaxprs are walked."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.calls: tuple[Any, ...] = ()

    def tensor(self, aval: Any, role: Role) -> int:
        key = jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)
        dtype = "key" if key else np.dtype(aval.dtype).name
        itemsize = _key_bytes(aval.dtype) if key else np.dtype(aval.dtype).itemsize
        self.tensors.append(Tensor(len(self.tensors), tuple(aval.shape), dtype, itemsize, role))
        return len(self.tensors) - 1

    def constants(self, closed: Any, environment: dict[Any, Operand]) -> tuple[tuple[int, Any], ...]:
        pairs: list[tuple[int, Any]] = []
        for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            constant = self.tensor(variable.aval, "constant")
            environment[variable] = constant
            pairs.append((constant, value))
        return tuple(pairs)

    def read(self, environment: dict[Any, Operand], atom: Any) -> Operand:
        return Constant(atom.val) if isinstance(atom, versions.Literal) else environment[atom]

    def equations(self, jaxpr: Any, environment: dict[Any, Operand]) -> tuple[Operator, ...]:
        found: list[Operator] = []
        for equation in jaxpr.eqns:
            operands = tuple(self.read(environment, atom) for atom in equation.invars)
            name = equation.primitive.name
            if name in INLINE:
                found.extend(self._inline(equation, equation.params[INLINE[name]], operands, environment))
                continue
            if name == "custom_linear_solve":
                solver, needed = _solver(equation.params, operands)
                found.extend(self._inline(equation, solver, needed, environment))
                continue
            if parts := expanded(equation):
                found.extend(self._inline(equation, parts, operands, environment))
                continue
            if _is_placement(equation):
                environment.update(zip(equation.outvars, operands, strict=True))
                continue
            results = tuple(self.tensor(variable.aval, "activation") for variable in equation.outvars)
            environment.update(zip(equation.outvars, results, strict=True))
            found.append(self._operator(equation, operands, results))
        return tuple(found)

    def _inline(
        self, equation: Any, inner: Any, operands: tuple[Operand, ...], environment: dict[Any, Operand]
    ) -> tuple[Operator, ...]:
        closed = closed_of(inner)
        scope: dict[Any, Operand] = dict(zip(closed.jaxpr.invars, operands, strict=True))
        bound = tuple(
            (variable, Constant(value)) for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True)
        )
        scope.update(bound)
        with self.inside(equation):
            operators = self.equations(closed.jaxpr, scope)
        for variable, atom in zip(equation.outvars, closed.jaxpr.outvars, strict=True):
            environment[variable] = self.read(scope, atom)
        return operators

    def _operator(self, equation: Any, operands: tuple[Operand, ...], results: tuple[int, ...]) -> Operator:
        """One operator, still without a number."""
        name = equation.primitive.name
        build = _STRUCTURED.get(name) or (_remat if name in _REMAT else None)
        shapes = (
            [tuple(atom.aval.shape) for atom in equation.invars],
            [self.tensors[result].shape for result in results],
        )
        if build is not None:
            with self.inside(equation):
                subgraphs, ties = build(self, equation.params, operands, results)
            nothing = Rule((), tuple(((),) * len(s) for s in shapes[0]), tuple(((),) * len(s) for s in shapes[1]))
            return Operator(-1, name, operands, results, nothing, 0.0, equation, subgraphs, tuple(ties), self.calls)
        found = rule(_rule_name(equation), shapes[0], shapes[1], equation.params)
        flops = _flops(name, found, shapes, equation.params)
        return Operator(-1, name, operands, results, found, flops, equation, calls=self.calls)

    @contextlib.contextmanager
    def inside(self, call: Any) -> Iterator[None]:
        """While it lasts, operators stand inside this equation."""
        outer = self.calls
        self.calls = (call, *outer)
        yield
        self.calls = outer

    def body(self, kind: str, inner: Any, repeat: int = 1) -> Subgraph:
        closed = closed_of(inner)
        inputs = tuple(self.tensor(variable.aval, "activation") for variable in closed.jaxpr.invars)
        environment: dict[Any, Operand] = dict(zip(closed.jaxpr.invars, inputs, strict=True))
        constants = self.constants(closed, environment)
        operators = self.equations(closed.jaxpr, environment)
        outputs = tuple(self.read(environment, atom) for atom in closed.jaxpr.outvars)
        return Subgraph(kind, operators, inputs, outputs, constants, repeat)


Ties = list[tuple[int, int, int]]
Structured = tuple[tuple[Subgraph, ...], Ties]


def _tie(pairs: Sequence[tuple[Operand, Operand]], skip: int = 0) -> Ties:
    return [(outer, inner, skip) for outer, inner in pairs if isinstance(outer, int) and isinstance(inner, int)]


def _scan(
    tracer: _Tracer, params: dict[str, Any], operands: tuple[Operand, ...], results: tuple[int, ...]
) -> Structured:
    body = tracer.body("body", params["jaxpr"], repeat=max(1, int(params["length"])))
    consts, carry = params["num_consts"], params["num_carry"]
    whole = consts + carry
    ties = _tie(list(zip(operands[:whole], body.inputs[:whole], strict=True)))
    ties += _tie(list(zip(operands[whole:], body.inputs[whole:], strict=True)), skip=1)
    ties += _tie(list(zip(body.inputs[consts:whole], body.outputs[:carry], strict=True)))
    ties += _tie(list(zip(results[:carry], body.outputs[:carry], strict=True)))
    ties += _tie(list(zip(results[:carry], body.inputs[consts:whole], strict=True)))
    ties += _tie(list(zip(results[carry:], body.outputs[carry:], strict=True)), skip=1)
    return (body,), ties


def _while(
    tracer: _Tracer, params: dict[str, Any], operands: tuple[Operand, ...], results: tuple[int, ...]
) -> Structured:
    condition = tracer.body("condition", params["cond_jaxpr"])
    body = tracer.body("body", params["body_jaxpr"])
    first, second = params["cond_nconsts"], params["body_nconsts"]
    ties = _tie(list(zip(operands[:first], condition.inputs[:first], strict=True)))
    ties += _tie(list(zip(operands[first : first + second], body.inputs[:second], strict=True)))
    carry = operands[first + second :]
    for inner in (condition.inputs[first:], body.inputs[second:], body.outputs, results):
        ties += _tie(list(zip(carry, inner, strict=True)))
    ties += _tie(list(zip(results, body.inputs[second:], strict=True)))
    ties += _tie(list(zip(results, body.outputs, strict=True)))
    return (condition, body), ties


def _cond(
    tracer: _Tracer, params: dict[str, Any], operands: tuple[Operand, ...], results: tuple[int, ...]
) -> Structured:
    branches = tuple(tracer.body("branch", branch) for branch in params["branches"])
    ties: Ties = []
    for branch in branches:
        ties += _tie(list(zip(operands[1:], branch.inputs, strict=True)))
        ties += _tie(list(zip(results, branch.outputs, strict=True)))
    return branches, ties


def _remat(
    tracer: _Tracer, params: dict[str, Any], operands: tuple[Operand, ...], results: tuple[int, ...]
) -> Structured:
    body = tracer.body("body", params["jaxpr"])
    return (body,), _tie(list(zip(operands, body.inputs, strict=True))) + _tie(
        list(zip(results, body.outputs, strict=True))
    )


def _barrier(
    tracer: _Tracer, params: dict[str, Any], operands: tuple[Operand, ...], results: tuple[int, ...]
) -> Structured:
    """Every result is its operand; the operands have nothing else to do with each other."""
    del params, tracer
    body = Subgraph("body", (), (), (), ())
    return (body,), _tie(list(zip(operands, results, strict=True)))


_STRUCTURED: dict[str, Callable[..., Structured]] = {"scan": _scan, "while": _while, "cond": _cond}
_STRUCTURED |= {"optimization_barrier": _barrier}


def _flops(name: str, found: Rule, shapes: tuple[list[Any], list[Any]], params: dict[str, Any]) -> float:
    """Multiply and add count as two; an elementwise operation or a reduction counts one per element."""
    if name == "dot_general":
        return 2.0 * math.prod(factor.size for factor in found.factors)
    if name == "conv_general_dilated":
        numbers = params["dimension_numbers"]
        kernel = shapes[0][1]
        window = math.prod(kernel[dim] for dim in numbers.rhs_spec[2:])
        # Holes of a dilated left operand are never multiplied.
        holes = math.prod(params["lhs_dilation"])
        return 2.0 * math.prod(shapes[1][0]) * kernel[numbers.rhs_spec[1]] * window / holes
    largest = max((math.prod(shape) for side in shapes for shape in side), default=0)
    return float(largest)
