"""Blocks that are computed again in the backward pass, found in a function that knows nothing of it.

The function is traced; blocks that it repeats one after the other, and loops, are found in its equations; each block is wrapped
in `jax.checkpoint`, which keeps what goes into it and, of what is inside, only what its kind is told to keep.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax

from flowaware_core import versions
from flowaware_core.graph.blocks import numbered, spans
from flowaware_core.graph.capture import INLINE, closed_of

PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
# What of a block is kept for the backward pass, from what costs most memory to what costs most time.
POLICIES = ("products", "inputs", "few inputs")
# The most rounds of a loop that are computed again from one input where few are kept: more would hold more weights and gradients
# at once. Blocks that are no loop keep all their inputs.
FEW = 6
# A kind with fewer equations than this holds little, and computing it again costs a boundary all the same.
LEAST = 4


@dataclasses.dataclass(frozen=True)
class Kind:
    """Equal blocks in a row, or a loop.

    Attributes:
        name: "loop 0", "blocks 1", ... in program order.
        first: the first equation of the first block.
        length: equations in a block; 1 for a loop.
        count: how many blocks there are.
        source: where the first equation comes from.
    """

    name: str
    first: int
    length: int
    count: int
    source: str


def kinds(function: Callable[..., Any], *args: Any) -> tuple[Kind, ...]:
    """The kinds of blocks of a function of abstract arguments; makes no array."""
    return _kinds(flat(function, args)[0])


def applied(function: Callable[..., Any], policies: Mapping[str, str]) -> Callable[..., Any]:
    """The same function, of which the named kinds of blocks keep only so much for its derivative.

    Args:
        policies: name of a kind -> one of `POLICIES`.

    Raises:
        ValueError: no such kind or policy (when the function is called).
    """

    def run(*args: Any) -> Any:
        closed, shapes = flat(function, args)
        known = {kind.name: kind for kind in _kinds(closed)}
        for name, policy in policies.items():
            if name not in known or policy not in POLICIES:
                raise ValueError(
                    f"recompute {name!r}: {policy!r}; this program has the kinds {', '.join(known) or 'none'} "
                    f"and {', '.join(POLICIES)} can be kept"
                )
        chosen = {known[name]: policy for name, policy in policies.items()}
        return jax.tree.unflatten(jax.tree.structure(shapes), _run(closed, chosen, jax.tree.leaves(args)))

    return run


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose own lines run once for all arguments of the same shapes: later, its equations do."""

    def run(*args: Any) -> Any:
        closed, shapes = _traced(function, args)
        environment = _environment(closed, jax.tree.leaves(args))
        for call in closed.jaxpr.eqns:
            program = versions.jaxpr_as_fun(closed_of(call.params[INLINE[call.primitive.name]]))
            results = program(*[_read(environment, atom) for atom in call.invars])
            environment.update(zip(call.outvars, results, strict=True))
        return jax.tree.unflatten(
            jax.tree.structure(shapes), [_read(environment, atom) for atom in closed.jaxpr.outvars]
        )

    return run


def flat(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Any]:
    """The function's equations with inner calls opened, and the shapes of its results."""
    versions.use_partitionable_random_numbers()
    closed, shapes = _traced(function, args)
    leaves = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(args)]
    return jax.make_jaxpr(lambda *values: _opened(closed, values))(*leaves), shapes


def _traced(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Any]:
    """The function's equations, inside a call, and the shapes of its results."""
    # What jit has traced it remembers; without it the function's own lines would run for every schedule that is looked at.
    return jax.make_jaxpr(jax.jit(function), return_shape=True)(*args)


def _opened(closed: Any, values: Sequence[Any]) -> list[Any]:
    """Runs a program; what it calls is run in its place, save calls with a derivative of their own."""
    environment = _environment(closed, values)
    for equation in closed.jaxpr.eqns:
        given = [_read(environment, atom) for atom in equation.invars]
        name = equation.primitive.name
        if name in INLINE and not name.startswith("custom"):
            results = _opened(closed_of(equation.params[INLINE[name]]), given)
        else:
            results = _again(closed.jaxpr, equation, given)
        environment.update(zip(equation.outvars, results, strict=True))
    return [_read(environment, atom) for atom in closed.jaxpr.outvars]


def _again(jaxpr: Any, equation: Any, values: Sequence[Any]) -> list[Any]:
    """One equation of a program, which remembers the line that it comes from."""
    inputs = list(dict.fromkeys(versions.variables(equation.invars)))
    given = {
        atom: value
        for atom, value in zip(equation.invars, values, strict=True)
        if not isinstance(atom, versions.Literal)
    }
    outputs = [variable for variable in equation.outvars if not isinstance(variable, versions.DropVar)]
    program = versions.jaxpr_as_fun(versions.excerpt(jaxpr, inputs, outputs, [equation]))
    results = dict(zip(outputs, program(*[given[atom] for atom in inputs]), strict=True))
    return [results.get(variable) for variable in equation.outvars]


def _environment(closed: Any, values: Sequence[Any]) -> dict[Any, Any]:
    """What the variables of a program are before its first equation."""
    before = dict(zip(closed.jaxpr.invars, values, strict=True))
    return before | dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))


def _read(environment: Mapping[Any, Any], atom: Any) -> Any:
    return atom.val if isinstance(atom, versions.Literal) else environment[atom]


def _kinds(closed: Any) -> tuple[Kind, ...]:
    equations = closed.jaxpr.eqns
    crossing = _crossing(closed.jaxpr)
    found = []
    for start, length, count in spans(numbered([_sign(equation) for equation in equations])):
        # A run of equal equations may be cut anywhere: where least passes from one block to the next.
        slack = range(length) if count > 2 else range(1)
        first = start + min(slack, key=lambda offset: (crossing[start + offset], offset))
        if length >= LEAST:
            found.append((first, length, count - (first > start)))
    inside = {index for first, length, count in found for index in range(first, first + length * count)}
    for index, equation in enumerate(equations):
        if equation.primitive.name == "scan" and index not in inside and equation.params["length"] > 1:
            found.append((index, 1, 1))
    return tuple(
        Kind(
            f"{'loop' if length == 1 else 'blocks'} {number}",
            first,
            length,
            count,
            versions.source(equations[first]),
        )
        for number, (first, length, count) in enumerate(sorted(found))
    )


def _sign(equation: Any) -> Hashable:
    avals = [atom.aval for atom in (*equation.invars, *equation.outvars)]
    return equation.primitive.name, tuple((aval.shape, str(aval.dtype)) for aval in avals)


def _crossing(jaxpr: Any) -> list[int]:
    """Per equation the bytes that are made before it and read at it or later."""
    last = {}
    for index, equation in enumerate(jaxpr.eqns):
        last.update(dict.fromkeys(versions.variables(equation.invars), index))
    last.update({atom: len(jaxpr.eqns) for atom in versions.variables(jaxpr.outvars)})
    change = [0] * (len(jaxpr.eqns) + 2)
    for index, equation in enumerate(jaxpr.eqns):
        for variable in equation.outvars:
            size = math.prod(variable.aval.shape)
            change[index + 1] += size
            change[max(last.get(variable, 0), index) + 1] -= size
    return list(itertools.accumulate(change))[: len(jaxpr.eqns)]


def _run(closed: Any, chosen: Mapping[Kind, str], values: Sequence[Any]) -> list[Any]:
    """Runs a program, the chosen blocks as pieces of their own."""
    jaxpr = closed.jaxpr
    environment = _environment(closed, values)
    pieces = {
        kind.first + number * kind.length: (kind, policy)
        for kind, policy in chosen.items()
        for number in range(kind.count)
    }
    position = 0
    while position < len(jaxpr.eqns):
        kind, policy = pieces.get(position, (None, ""))
        after = position + (kind.length if kind else 1)
        equations = jaxpr.eqns[position:after]
        if kind is None:
            results = _again(jaxpr, equations[0], [_read(environment, atom) for atom in equations[0].invars])
            environment.update(zip(equations[0].outvars, results, strict=True))
        elif equations[0].primitive.name == "scan":
            results = _loop(equations[0], [_read(environment, atom) for atom in equations[0].invars], policy)
            environment.update(zip(equations[0].outvars, results, strict=True))
        else:
            piece = _piece(jaxpr, position, after)
            block = jax.checkpoint(versions.jaxpr_as_fun(piece), policy=_POLICIES[policy])
            results = block(*[environment[variable] for variable in piece.jaxpr.invars])
            environment.update(zip(piece.jaxpr.outvars, results, strict=True))
        position = after
    return [_read(environment, atom) for atom in jaxpr.outvars]


def _piece(jaxpr: Any, begin: int, end: int) -> Any:
    """Some equations as a program: what they read from outside comes in, what is read behind them goes out."""
    equations = jaxpr.eqns[begin:end]
    made = {variable for equation in equations for variable in equation.outvars}
    reads = [atom for equation in equations for atom in versions.variables(equation.invars)]
    later = {atom for equation in jaxpr.eqns[end:] for atom in versions.variables(equation.invars)} | set(
        versions.variables(jaxpr.outvars)
    )
    inputs = list(dict.fromkeys(atom for atom in reads if atom not in made))
    outputs = [variable for equation in equations for variable in equation.outvars if variable in later]
    return versions.excerpt(jaxpr, inputs, outputs, equations)


def _loop(equation: Any, values: Sequence[Any], policy: str) -> list[Any]:
    """A scan whose body is computed again; what its rounds carry is what goes into them."""
    params = equation.params
    consts, carry = params["num_consts"], params["num_carry"]
    inner = versions.jaxpr_as_fun(params["jaxpr"])
    again = jax.checkpoint(inner, policy=_POLICIES[policy], prevent_cse=False)
    length, options = params["length"], {"reverse": params["reverse"]}

    def body(carried: Any, given: Any) -> tuple[Any, Any]:
        results = again(*values[:consts], *carried, *given)
        return results[:carry], results[carry:]

    first, rest = list(values[consts : consts + carry]), list(values[consts + carry :])
    typed = [
        jax.numpy.asarray(value, variable.aval.dtype) for value, variable in zip(first, equation.outvars, strict=False)
    ]
    most = min(FEW, length // 2) if policy == "few inputs" else 1
    rounds = max(count for count in range(1, most + 1) if length % count == 0)
    if rounds == 1:
        final, stacked = jax.lax.scan(body, typed, rest, length=length, unroll=params["unroll"], **options)
        return [*final, *stacked]
    group = jax.checkpoint(lambda carried, given: jax.lax.scan(body, carried, given, length=rounds, **options))
    grouped = [value.reshape(length // rounds, rounds, *value.shape[1:]) for value in rest]
    final, stacked = jax.lax.scan(group, typed, grouped, length=length // rounds, **options)
    return [*final, *(value.reshape(length, *value.shape[2:]) for value in stacked)]


def _is_product(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name in PRODUCTS


_POLICIES: dict[str, Any] = {"products": _is_product, "inputs": None, "few inputs": None}
