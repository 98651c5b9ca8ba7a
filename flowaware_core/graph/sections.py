"""A loss cut into sections that run one after the other, each a program of its own.

The equations of the loss are cut at positions in program order. What one section makes and a later one reads passes through every
section between, so only neighbours exchange anything. What follows from the batch and the random key alone (masks, positions,
keys of layers) is cheap and does not pass: whoever needs it computes it.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any

import jax
import numpy as np

from flowaware_core import versions
from flowaware_core.graph.recompute import flat


@dataclasses.dataclass(frozen=True, eq=False)
class Section:
    """Some equations of a loss.

    Attributes:
        program: (leaves, then given) -> (passed, then results).
        leaves: positions of the loss's argument leaves that it reads.
        given, passed: shape and type of what comes from the section before, and of what goes to the next.
        results: positions of the loss's result leaves that it makes.
        constants: values that the program closes over, its last arguments.
    """

    program: versions.ClosedJaxpr
    leaves: tuple[int, ...]
    given: tuple[jax.ShapeDtypeStruct, ...]
    passed: tuple[jax.ShapeDtypeStruct, ...]
    results: tuple[int, ...]
    constants: tuple[Any, ...]

    def __call__(self, leaves: Sequence[Any], given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What is passed on, and the results."""
        found = versions.jaxpr_as_fun(self.program)(*leaves, *given, *self.constants)
        return list(found[: len(self.passed)]), list(found[len(self.passed) :])


class Trunk:
    """A function that can be cut.

    Args:
        function: what is cut.
        args: its abstract arguments.
        weights: positions of the arguments that hold weights: what does not depend on them is not worth passing on.

    Attributes:
        equations: of the function, with inner calls opened.
        shapes: of its results.
        crossing: [equations + 1] bytes that pass a cut before each equation.
        fresh: [equations] bytes of the differentiable weights that each is the first to read.
    """

    def __init__(self, function: Any, args: Sequence[Any], weights: Sequence[int]):
        closed, self.shapes = flat(function, args)
        self._jaxpr, self._constants = closed.jaxpr, dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        counts = [len(jax.tree.leaves(argument)) for argument in args]
        starts = list(itertools.accumulate(counts, initial=0))
        heavy = {self._jaxpr.invars[starts[i] + k] for i in weights for k in range(counts[i])}
        self._maker: dict[Any, int] = {}
        self._light: list[bool] = []
        for index, equation in enumerate(self._jaxpr.eqns):
            light = heavy.isdisjoint(versions.variables(equation.invars)) and not equation.effects
            self._light.append(light)
            self._maker.update(dict.fromkeys(equation.outvars, index))
            if not light:
                heavy.update(equation.outvars)
        self.crossing = self._crossing()
        unread = {v: _bytes(v.aval) for v in self._jaxpr.invars if v in heavy and differentiable(v.aval)}
        self.fresh = [
            sum(unread.pop(v, 0) for v in versions.variables(equation.invars)) for equation in self._jaxpr.eqns
        ]

    @property
    def equations(self) -> Sequence[Any]:
        return self._jaxpr.eqns

    def first(self, leaves: Collection[int]) -> int:
        """The first equation that reads one of these argument leaves; the number of all equations if none does."""
        wanted = {self._jaxpr.invars[leaf] for leaf in leaves}
        reads = (not wanted.isdisjoint(versions.variables(equation.invars)) for equation in self._jaxpr.eqns)
        return next((index for index, does in enumerate(reads) if does), len(self._jaxpr.eqns))

    def cut(self, positions: Sequence[int]) -> tuple[Section, ...]:
        """The sections between cuts before these equations, ascending."""
        edges = [0, *positions, len(self._jaxpr.eqns)]
        results = self._results(edges)
        sections: list[Section] = []
        passed: list[Any] = []
        for number in reversed(range(len(edges) - 1)):
            section, passed = self._section(edges[number], edges[number + 1], passed, results[number])
            sections.append(section)
        assert not passed, "nothing comes before the first section"
        return tuple(reversed(sections))

    def excerpt(self, index: int) -> versions.ClosedJaxpr:
        """One equation as a program."""
        equation = self._jaxpr.eqns[index]
        outputs = [variable for variable in equation.outvars if not isinstance(variable, versions.DropVar)]
        return versions.excerpt(
            self._jaxpr, list(dict.fromkeys(versions.variables(equation.invars))), outputs, [equation]
        )

    def _section(
        self, begin: int, end: int, passed: Sequence[Any], results: Sequence[int]
    ) -> tuple[Section, list[Any]]:
        atoms = [self._jaxpr.outvars[position] for position in results]
        wanted = set(versions.variables([*passed, *atoms]))
        chosen = []
        for index in reversed(range(end)):
            equation = self._jaxpr.eqns[index]
            if not wanted.isdisjoint(equation.outvars) and (self._light[index] or index >= begin):
                chosen.append(equation)
                wanted.difference_update(equation.outvars)
                wanted.update(versions.variables(equation.invars))
        arguments = {variable: index for index, variable in enumerate(self._jaxpr.invars)}
        leaves = sorted(arguments[variable] for variable in wanted if variable in arguments)
        closed = [variable for variable in self._constants if variable in wanted]
        given = sorted(
            (v for v in wanted if v in self._maker),
            key=lambda v: (self._maker[v], _place(self._jaxpr, self._maker[v], v)),
        )
        program = versions.excerpt(
            self._jaxpr,
            [*(self._jaxpr.invars[leaf] for leaf in leaves), *given, *closed],
            [*passed, *atoms],
            chosen[::-1],
        )
        constants = tuple(self._constants[variable] for variable in closed)
        section = Section(program, tuple(leaves), _shapes(given), _shapes(passed), tuple(results), constants)
        return section, given

    def _results(self, edges: Sequence[int]) -> list[list[int]]:
        """Per section the results that it makes; what follows from the batch alone is the last one's."""
        found: list[list[int]] = [[] for _ in edges[1:]]
        for position, atom in enumerate(self._jaxpr.outvars):
            index = -1 if isinstance(atom, versions.Literal) else self._maker.get(atom, -1)
            last = index < 0 or self._light[index]
            found[-1 if last else bisect.bisect_right(edges, index) - 1].append(position)
        return found

    def _crossing(self) -> np.ndarray:
        change = np.zeros(len(self._jaxpr.eqns) + 2)
        last: dict[Any, int] = {}
        for index, equation in enumerate(self._jaxpr.eqns):
            for variable in versions.variables(equation.invars):
                maker = self._maker.get(variable)
                if maker is not None and not self._light[maker]:
                    last[variable] = index
        for variable, index in last.items():
            change[self._maker[variable] + 1] += _bytes(variable.aval)
            change[index + 1] -= _bytes(variable.aval)
        return np.cumsum(change)[:-1]


def _place(jaxpr: Any, index: int, variable: Any) -> int:
    return list(jaxpr.eqns[index].outvars).index(variable)


def _shapes(variables: Sequence[Any]) -> tuple[jax.ShapeDtypeStruct, ...]:
    return tuple(jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype) for variable in variables)


def _bytes(aval: Any) -> int:
    itemsize = 8 if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key) else np.dtype(aval.dtype).itemsize
    return math.prod(aval.shape) * itemsize


def differentiable(shape: Any) -> bool:
    """Whether a gradient flows through a value of this type."""
    return bool(jax.numpy.issubdtype(shape.dtype, jax.numpy.inexact))
