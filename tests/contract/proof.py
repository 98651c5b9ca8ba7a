"""Proves rules: an operator in every placement its rule allows gives what the whole gives, and moves what is predicted.

Any function is a source of operators: it is captured, run eagerly on its own arguments, and each operator that runs is taken out
as a program of one operator with the values it met. Values that are not meant to be equal to the last bit (eigenvectors have no
sign) are compared after `Case.normalise`.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import hlo, versions
from flowaware_core.cost.trace import trace
from flowaware_core.execute import spmd
from flowaware_core.graph.capture import capture
from flowaware_core.graph.interpret import Body, interpret
from flowaware_core.graph.layout import Layout, whole
from flowaware_core.graph.model import Constant, Graph, Operator, Tensor
from flowaware_core.graph.placement import Assignment, OperatorPlacement, Placement, Result, operator_placement
from flowaware_core.search.space import operator_assignments
from flowaware_core.task import Task

# Bytes that may be moved without having been predicted: scalars, indices, the seed of a random number.
FLOOR = 256
# Relative differences that the order of sums explains, by the bytes of one real number.
TOLERANCES = {8: 1e-12, 4: 1e-6, 2: 1e-2}


@dataclasses.dataclass(frozen=True, eq=False)
class Instance:
    """A program of one operator, with a value for each of its operands, and what it gave undivided on one device."""

    graph: Graph
    values: tuple[Any, ...] = ()
    expected: tuple[Any, ...] = ()

    @property
    def operator(self) -> Operator:
        return self.graph.operators[0]

    @functools.cached_property
    def key(self) -> str:
        """Equal for operators of which one proof is enough."""
        shapes = [(self.graph.tensors[t].shape, self.graph.tensors[t].dtype) for t in self.graph.inputs]
        literals = [index for index, operand in enumerate(self.operator.operands) if isinstance(operand, Constant)]
        return repr(
            (self.operator.primitive, shapes, literals, sorted(map(str, self.operator.equation.params.items())))
        )


@contextlib.contextmanager
def doubles() -> Iterator[None]:
    """64-bit numbers while it lasts."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def instances(function: Callable[..., Any], args: Sequence[Any], seen: set[str] | None = None) -> list[Instance]:
    """The different operators that a call of `function` runs, those of loop bodies too, with the values they meet.

    Args:
        function, args: the call.
        seen: keys of operators that are known already; those found are added.
    """
    graph = capture(Task(function, tuple(args)))
    seen = set() if seen is None else seen
    wanted: dict[int, Instance] = {}
    for operator, _ in graph.walk():
        if not operator.subgraphs:
            instance = _alone(operator, graph.tensors)
            if instance.key not in seen:
                seen.add(instance.key)
                wanted[operator.id] = instance
    layouts = tuple(whole(len(tensor.shape)) for tensor in graph.tensors)
    operators = {
        operator.id: operator_placement(operator, None, layouts, False)
        for operator, _ in graph.walk()
        if not operator.subgraphs
    }

    def met(*leaves: Any) -> dict[int, Any]:
        recorder = _Recorder(frozenset(wanted))
        interpret(graph, Placement(layouts, {}, operators), recorder, leaves)
        return recorder.met

    if not wanted:
        return []
    found = jax.jit(met)(*jax.tree.leaves(args))
    return [
        dataclasses.replace(instance, values=tuple(found[number][0]), expected=tuple(found[number][1]))
        for number, instance in wanted.items()
    ]


class _Recorder:
    """Runs operators on whole values and keeps what the wanted ones get and give."""

    def __init__(self, wanted: frozenset[int]):
        self.wanted = wanted
        self.met: dict[int, tuple[list[Any], list[Any]]] = {}

    def constant(self, tensor: int, value: Any) -> Any:
        del tensor
        return jnp.asarray(value)

    def move(self, value: Any, tensor: int, source: Layout, step: Any, operator: Operator | None) -> Any:
        raise AssertionError("everything is whole")

    def bind(self, operator: Operator, values: Sequence[Any], placement: OperatorPlacement) -> list[Any]:
        del placement
        results = versions.bind(operator.equation, [plain(value) for value in values])
        if operator.id in self.wanted:
            self.met[operator.id] = [value for value in values if not isinstance(value, Constant)], results
        return results

    def settle(self, value: Any, tensor: int, operator: Operator, result: Result, target: Layout) -> Any:
        del tensor, operator, result, target
        return value

    def structured(self, operator: Operator, values: Sequence[Any], bodies: Sequence[Body]) -> list[Any]:
        """Each body runs once on the first values, for what it meets; the results come from the operator itself."""
        values = [plain(value) for value in values]
        params = operator.equation.params
        if operator.primitive == "scan":
            held = params["num_consts"] + params["num_carry"]
            bodies[0]([*values[:held], *(value[0] for value in values[held:])])
        elif operator.primitive == "while":
            first, second = params["cond_nconsts"], params["body_nconsts"]
            bodies[0]([*values[:first], *values[first + second :]])
            bodies[1](values[first:])
        elif operator.primitive != "optimization_barrier":
            for body in bodies:
                body(values[1:] if operator.primitive == "cond" else values)
        return versions.bind(operator.equation, values)


def plain(value: Any) -> Any:
    return value.value if isinstance(value, Constant) else value


def _alone(operator: Operator, tensors: Sequence[Tensor]) -> Instance:
    """The operator as a program of its own, still without values."""
    table: list[Tensor] = []
    operands: list[Any] = []
    for operand in operator.operands:
        if isinstance(operand, int):
            operands.append(len(table))
            table.append(dataclasses.replace(tensors[operand], id=len(table), role="input"))
        else:
            operands.append(operand)
    inputs = tuple(range(len(table)))
    for result in operator.results:
        table.append(dataclasses.replace(tensors[result], id=len(table), role="activation"))
    results = tuple(range(len(inputs), len(table)))
    one = dataclasses.replace(operator, id=0, operands=tuple(operands), results=results)
    return Instance(Graph(tuple(table), (one,), inputs, results, (), {}, (), ("",) * len(inputs), None, None))


def cuts(instance: Instance, sizes: Sequence[int], thorough: bool = False) -> list[Assignment]:
    """Every assignment that the operator's rule allows and that cuts something.

    Args:
        instance: what is cut.
        sizes: of the axes of the mesh.
        thorough: False leaves out those that another one stands for: a factor on the outer axis alone, a pair in reverse order.
    """
    found = [a for a in operator_assignments(instance.operator, sizes) if any(factor >= 0 for factor in a)]
    return found if thorough else [a for a in found if 0 <= a[0] <= a[-1] or all(factor < 0 for factor in a[:-1])]


def placed(instance: Instance, assignment: Assignment, sizes: Sequence[int]) -> Placement:
    """The program of one operator: operands arrive as an assignment wants them, results stay as it leaves them.

    Where shards would be unequal, which the border of a program does not allow, they arrive and leave whole.
    """
    operator = instance.operator
    layouts = [whole(len(tensor.shape)) for tensor in instance.graph.tensors]
    chosen = operator_placement(operator, assignment, layouts, True)

    def border(tensor: int, layout: Layout) -> Layout:
        shape = instance.graph.tensors[tensor].shape
        even = all(n % math.prod(sizes[a] for a in axes) == 0 for n, axes in zip(shape, layout, strict=True))
        return layout if even else whole(len(shape))

    for operand, layout in zip(operator.operands, chosen.operands, strict=True):
        if isinstance(operand, int) and layout is not None:
            layouts[operand] = border(operand, layout)
    for tensor, result in zip(operator.results, chosen.results, strict=True):
        layouts[tensor] = border(tensor, result.layout)
    return Placement(tuple(layouts), {}, {0: chosen})


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What placements did: the largest difference from the whole operator in tolerances, and bytes per kind of collective."""

    difference: float
    predicted: dict[str, int]
    compiled: dict[str, int]

    @property
    def stray(self) -> dict[str, int]:
        """Kind -> bytes compiled beyond those predicted (negative where fewer), where the difference is more than `FLOOR`."""
        kinds = {*self.predicted, *self.compiled}
        both = {kind: self.compiled.get(kind, 0) - self.predicted.get(kind, 0) for kind in sorted(kinds)}
        return {kind: extra for kind, extra in both.items() if abs(extra) > FLOOR}

    @property
    def ok(self) -> bool:
        return self.difference <= 1 and not self.stray


Pair = tuple[Instance, Assignment]


def prove(pairs: Sequence[Pair], sizes: Sequence[int]) -> Verdict:
    """Runs operators, each under an assignment, side by side in one program on virtual devices."""
    all_placed = [(instance.graph, placed(instance, assignment, sizes)) for instance, assignment in pairs]
    devices = np.array(jax.devices()[: math.prod(sizes)]).reshape(sizes)
    mesh = versions.mesh(devices, [f"axis{index}" for index in range(len(sizes))])
    inputs = [[spmd.sharding(one.tensors[tensor], mesh) for tensor in graph.inputs] for graph, one in all_placed]
    outputs = [[spmd.sharding(one.tensors[tensor], mesh) for tensor in graph.outputs] for graph, one in all_placed]
    predicted: collections.Counter[str] = collections.Counter()
    for graph, one in all_placed:
        for move in trace(graph, one, sizes).communications:
            predicted[move.kind] += move.times * move.bytes

    def run(arguments: Any) -> Any:
        both = zip(all_placed, arguments, strict=True)
        return [spmd.replay(graph, one, mesh)(*args) for (graph, one), args in both]

    jitted = jax.jit(run, in_shardings=(inputs,), out_shardings=outputs, keep_unused=True)
    values = [list(map(jax.device_put, one.values, where)) for (one, _), where in zip(pairs, inputs, strict=True)]
    compiled = jitted.lower(values).compile(compiler_options=versions.compiler_options("cpu", optimise=False))
    found: collections.Counter[str] = collections.Counter()
    for collective in hlo.collectives(compiled.as_text() or "", math.prod(sizes)):
        found[collective.kind] += (1 if collective.count is None else collective.count) * collective.bytes
    differences = [
        distance(got, want)
        for (instance, _), results in zip(pairs, compiled(values), strict=True)
        for got, want in zip(results, instance.expected, strict=True)
    ]
    return Verdict(max(differences, default=0.0), dict(predicted), dict(found))


def refuted(pairs: Sequence[Pair], sizes: Sequence[int]) -> list[str]:
    """What is wrong with these operators under these assignments, a sentence each; empty if all is proven."""
    try:
        verdict = prove(pairs, sizes)
        problem = "" if verdict.ok else f"differs by {verdict.difference:.2g} tolerances, moves {verdict.stray}"
    except Exception as error:  # the compiler's: which operator it stumbles over is found below
        problem = f"{type(error).__name__}: {str(error)[:300]}"
    if not problem:
        return []
    if len(pairs) == 1:
        instance, assignment = pairs[0]
        shapes = [tensor.shape for tensor in instance.graph.tensors]
        factors = [(factor.size, factor.kind) for factor in instance.operator.rule.factors]
        return [f"{instance.operator.primitive} of {shapes} with axes on {assignment} of {factors}: {problem}"]
    middle = len(pairs) // 2
    return [*refuted(pairs[:middle], sizes), *refuted(pairs[middle:], sizes)] or [f"only together: {problem}"]


def distance(got: Any, want: Any) -> float:
    """Largest difference relative to the largest magnitude, in tolerances; infinite where whole numbers or flags differ."""
    if jax.dtypes.issubdtype(got.dtype, jax.dtypes.prng_key):
        got, want = jax.random.key_data(got), jax.random.key_data(want)
    one, other = np.asarray(got), np.asarray(want)
    assert one.shape == other.shape and one.dtype == other.dtype, (one.shape, other.shape, one.dtype, other.dtype)
    if not jax.numpy.issubdtype(one.dtype, jax.numpy.inexact):
        return 0.0 if np.array_equal(one, other) else math.inf
    wide = np.complex128 if np.iscomplexobj(one) else np.float64
    tolerance = TOLERANCES[one.dtype.itemsize // (2 if np.iscomplexobj(one) else 1)]
    one, other = one.astype(wide), other.astype(wide)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return math.inf
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return math.inf
    if not finite.any():
        return 0.0
    scale = max(1.0, float(np.max(np.abs(other[finite])))) * tolerance
    return float(np.max(np.abs(one[finite] - other[finite]))) / scale
