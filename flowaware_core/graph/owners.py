"""An update of parameters split among the stages that own them.

An optimizer is one function of all parameters. What it does to arrays stays within one parameter, so each equation belongs to the
stage that owns the arrays it meets; numbers, such as the norm of the whole gradient, may go from one stage to another. Where an
update mixes arrays of several stages it cannot be split.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowaware_core import versions
from flowaware_core.graph.recompute import flat

# Owner of what every stage can compute for itself.
ALL = -1


class Inseparable(ValueError):
    """A training step cannot be cut into stages, or not with profit."""


@dataclasses.dataclass(frozen=True, eq=False)
class Share:
    """What one stage computes of an update.

    Attributes:
        program: (leaves, then imports) -> (results, then exports).
        leaves: positions of the update's argument leaves that it reads.
        imports: numbers that come from other stages.
        results: positions of the update's result leaves that it makes.
        exports: numbers that other stages need, and per export the round in which it is known.
    """

    program: versions.ClosedJaxpr
    leaves: tuple[int, ...]
    imports: tuple[Any, ...]
    results: tuple[int, ...]
    exports: tuple[Any, ...]
    rounds: tuple[int, ...]
    constants: tuple[Any, ...]

    def __call__(self, leaves: Sequence[Any], imports: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """The results, and the exports."""
        found = versions.jaxpr_as_fun(self.program)(*leaves, *imports, *self.constants)
        return list(found[: len(self.results)]), list(found[len(self.results) :])


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """An update split among stages.

    Attributes:
        owners: per argument leaf its stage, or ALL.
        shares: per stage.
    """

    owners: tuple[int, ...]
    shares: tuple[Share, ...]


def split(
    update: Callable[..., Any], args: Sequence[Any], owned: Mapping[int, int], carried: Mapping[int, int], stages: int
) -> Split:
    """Splits an update.

    Args:
        update: the function.
        args: its abstract arguments.
        owned: argument leaf -> its stage, for parameters, gradients and what else is known; the others follow.
        carried: argument leaf -> result leaf that replaces it.
        stages: how many.

    Raises:
        Inseparable: arrays of several stages meet.
    """
    closed, _ = flat(update, args)
    return _Splitter(closed, dict(owned), carried, stages).split()


class _Splitter:
    def __init__(self, closed: Any, owned: dict[int, int], carried: Mapping[int, int], stages: int):
        self.jaxpr, self.stages, self.carried = closed.jaxpr, stages, carried
        self.constants = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
        self.maker = {v: i for i, equation in enumerate(self.jaxpr.eqns) for v in equation.outvars}
        self.owned = owned
        self.owner: dict[Any, int] = {}

    def split(self) -> Split:
        groups = self._arrays()
        while True:
            self._flow(groups)
            late = [
                (leaf, result)
                for leaf, result in self.carried.items()
                if self._owner(self.jaxpr.outvars[result]) not in (ALL, self.owner[self.jaxpr.invars[leaf]])
            ]
            if not late:
                break
            # What is carried lives where its next value is made.
            self.owned.update({leaf: self._owner(self.jaxpr.outvars[result]) for leaf, result in late})
        makers = [self._owner(atom) for atom in self.jaxpr.outvars]
        for leaf, result in self.carried.items():
            if makers[result] == ALL and self.owner[self.jaxpr.invars[leaf]] != ALL:
                makers[result] = self.owner[self.jaxpr.invars[leaf]]
        makers = [self.stages - 1 if owner == ALL else owner for owner in makers]
        return Split(tuple(self.owner[variable] for variable in self.jaxpr.invars), self._shares(makers))

    def _arrays(self) -> dict[Any, int]:
        """Array variable -> the stage of all the arrays that it meets."""
        parent: dict[Any, Any] = {}

        def root(variable: Any) -> Any:
            while parent.setdefault(variable, variable) is not variable:
                parent[variable] = parent[parent[variable]]
                variable = parent[variable]
            return variable

        for equation in self.jaxpr.eqns:
            arrays = [v for v in versions.variables([*equation.invars, *equation.outvars]) if v.aval.shape]
            for variable in arrays[1:]:
                parent[root(variable)] = root(arrays[0])
        stage_of: dict[Any, int] = {}
        for leaf, stage in self.owned.items():
            variable = self.jaxpr.invars[leaf]
            if variable.aval.shape and stage_of.setdefault(root(variable), stage) != stage:
                raise Inseparable(
                    f"the update mixes arrays of stages {stage_of[root(variable)]} and {stage}, so parameters cannot be "
                    "put on different devices; an optimizer that treats each parameter by itself can be split"
                )
        everything = {*self.jaxpr.invars, *self.maker}
        return {v: stage_of[root(v)] for v in everything if v.aval.shape and root(v) in stage_of}

    def _flow(self, arrays: Mapping[Any, int]) -> None:
        """The owner of every variable, numbers included, in program order."""
        self.owner = {
            variable: self.owned.get(leaf, arrays.get(variable, ALL)) for leaf, variable in enumerate(self.jaxpr.invars)
        }
        self.owner.update(dict.fromkeys(self.constants, ALL))
        for equation in self.jaxpr.eqns:
            owners = {self.owner[v] for v in versions.variables(equation.invars)} - {ALL}
            mine = {arrays[v] for v in versions.variables([*equation.invars, *equation.outvars]) if v in arrays}
            chosen = mine or owners
            self.owner.update(dict.fromkeys(equation.outvars, chosen.pop() if len(chosen) == 1 else ALL))

    def _owner(self, atom: Any) -> int:
        return ALL if isinstance(atom, versions.Literal) else self.owner[atom]

    def _shares(self, makers: Sequence[int]) -> tuple[Share, ...]:
        results = [[r for r, owner in enumerate(makers) if owner == stage] for stage in range(self.stages)]
        exports: list[list[Any]] = [[] for _ in range(self.stages)]
        # What a stage exports may itself need imports: until nothing is added.
        while True:
            imports = [
                self._slice(stage, [*(self.jaxpr.outvars[r] for r in results[stage]), *exports[stage]])[2]
                for stage in range(self.stages)
            ]
            wanted = {variable for needed in imports for variable in needed}
            now = [
                sorted((v for v in wanted if self.owner[v] == stage), key=self._order) for stage in range(self.stages)
            ]
            if now == exports:
                break
            exports = now
        rounds = self._rounds(exports)
        shares = []
        for stage in range(self.stages):
            atoms = [*(self.jaxpr.outvars[r] for r in results[stage]), *exports[stage]]
            equations, leaves, imported, closed = self._slice(stage, atoms)
            inputs = [*(self.jaxpr.invars[leaf] for leaf in leaves), *imported, *closed]
            shares.append(
                Share(
                    versions.excerpt(self.jaxpr, inputs, atoms, equations),
                    leaves,
                    imported,
                    tuple(results[stage]),
                    tuple(exports[stage]),
                    tuple(rounds[v] for v in exports[stage]),
                    tuple(self.constants[v] for v in closed),
                )
            )
        return tuple(shares)

    def _order(self, variable: Any) -> tuple[int, int]:
        if variable in self.maker:
            index = self.maker[variable]
            return index, list(self.jaxpr.eqns[index].outvars).index(variable)
        return -1, list(self.jaxpr.invars).index(variable)

    def _slice(self, stage: int, atoms: Sequence[Any]) -> tuple[list[Any], tuple[int, ...], tuple[Any, ...], list[Any]]:
        """The equations that a stage runs for some variables; leaves, imports and constants that it reads."""
        foreign = {v for v in self.owner if self.owner[v] not in (ALL, stage)}
        wanted = set(versions.variables(atoms))
        chosen, imported = [], wanted & foreign
        wanted -= imported
        for equation in reversed(self.jaxpr.eqns):
            if wanted.isdisjoint(equation.outvars):
                continue
            chosen.append(equation)
            wanted.difference_update(equation.outvars)
            needed = set(versions.variables(equation.invars))
            imported |= needed & foreign
            wanted |= needed - foreign
        arguments = {variable: leaf for leaf, variable in enumerate(self.jaxpr.invars)}
        leaves = tuple(sorted(arguments[v] for v in wanted if v in arguments))
        closed = [v for v in self.constants if v in wanted]
        return chosen[::-1], leaves, tuple(sorted(imported, key=self._order)), closed

    def _rounds(self, exports: Sequence[Sequence[Any]]) -> dict[Any, int]:
        """Per export the round in which it is known: one more than the latest of what it needs."""
        found: dict[Any, int] = {}
        pending = {v: stage for stage, variables in enumerate(exports) for v in variables}
        for variable in sorted(pending, key=self._order):
            needed = self._slice(pending[variable], [variable])[2]
            found[variable] = max((found[v] + 1 for v in needed), default=0)
        return found
