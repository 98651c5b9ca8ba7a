"""A small core as an integer program: one binary per label, one continuous column per allowed pair of labels.

Memory is one row per moment, of which few bind: a moment gets its row when a solution is found that is over it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import highspy
import numpy as np

from flowaware_core.search.labelling.core import Core

NEW_ROWS = 8  # moments added at a time
APART = 2  # moments between two of them
ROUNDS = 30


@dataclasses.dataclass(frozen=True)
class Optimum:
    """What the solver found: labels (None = nothing), and a lower bound with the offset of the core."""

    labels: np.ndarray | None
    bound: float


def optimum(core: Core, nodes: int, seconds: float | None = None) -> Optimum:
    """The cheapest labelling of a core that fits, by branch and bound.

    Args:
        nodes: of the search tree, at most.
        seconds: wall-clock limit; None = none, and the same result every time.
    """
    return _Program(core, nodes, seconds).solve()


class _Program:
    def __init__(self, core: Core, nodes: int, seconds: float | None) -> None:
        self.core = core
        self.first = np.concatenate([[0], np.cumsum(core.sizes)])
        self.scale = 1.0
        self.rows: set[int] = set()
        # The constructor of highspy.Highs itself prints a banner, which no option turns off.
        self.solver: Any = highspy.Highs.__mro__[1]()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", 1e-7),
            ("mip_feasibility_tolerance", 1e-9),
            ("primal_feasibility_tolerance", 1e-9),
            ("mip_max_nodes", nodes),
        ):
            self.solver.setOptionValue(option, value)
        if seconds is not None:
            self.solver.setOptionValue("time_limit", seconds)
        self._build()

    def solve(self) -> Optimum:
        bound = -np.inf
        for _ in range(ROUNDS):  # the relaxation finds most of the rows
            self.solver.run()
            if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                break
            bound = self.solver.getInfo().objective_function_value
            if not self._add_rows(self._values()):
                break
        count = int(self.first[-1])
        integer = np.full(count, highspy.HighsVarType.kInteger)
        self.solver.changeColsIntegrality(count, np.arange(count, dtype=np.int32), integer)
        labels = None
        for _ in range(ROUNDS):
            self.solver.run()
            status = self.solver.getModelStatus()
            if status == highspy.HighsModelStatus.kInfeasible:
                return Optimum(None, np.inf)
            info = self.solver.getInfo()
            bound = max(bound, info.mip_dual_bound)
            if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
                break
            values = self._values()
            labels = np.array([int(np.argmax(part)) for part in np.split(values, self.first[1:-1])])
            if not self._add_rows(values) or status != highspy.HighsModelStatus.kOptimal:
                break
        return Optimum(labels, self.core.offset + (bound - 1e-7 * abs(bound)) / self.scale)

    def _build(self) -> None:
        """The rows: each node takes one label, and an edge's pairs add up to the labels at both ends."""
        core, first = self.core, self.first
        columns = int(first[-1])
        costs = [np.concatenate(core.costs)]
        row_of = [np.repeat(np.arange(len(core.costs)), core.sizes)]
        column_of, value_of = [np.arange(columns)], [np.ones(columns)]
        rows = len(core.costs)
        for (i, j), matrix in zip(core.edges, core.matrices, strict=True):
            here, there = np.nonzero(np.isfinite(matrix))
            pairs = columns + np.arange(len(here))
            height, width = matrix.shape
            row_of += [rows + here, rows + np.arange(height), rows + height + there, rows + height + np.arange(width)]
            column_of += [pairs, first[i] + np.arange(height), pairs, first[j] + np.arange(width)]
            value_of += [np.ones(len(here)), -np.ones(height), np.ones(len(here)), -np.ones(width)]
            costs.append(matrix[here, there])
            rows += height + width
            columns += len(here)
        cost = np.concatenate(costs)
        span = np.abs(cost).max(initial=0.0)
        self.scale = 1e4 / span if span > 0 else 1.0
        row, column, value = np.concatenate(row_of), np.concatenate(column_of), np.concatenate(value_of)
        order = np.lexsort((column, row))
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = columns, rows
        program.col_cost_ = cost * self.scale
        program.col_lower_, program.col_upper_ = np.zeros(columns), np.ones(columns)
        ends = np.zeros(rows)
        ends[: len(core.costs)] = 1.0
        program.row_lower_ = program.row_upper_ = ends
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))]).astype(np.int32)
        program.a_matrix_.index_ = column[order].astype(np.int32)
        program.a_matrix_.value_ = value[order]
        self.solver.passModel(program)

    def _values(self) -> np.ndarray:
        return np.array(self.solver.getSolution().col_value)[: self.first[-1]]

    def _add_rows(self, values: np.ndarray) -> bool:
        """Adds the moments at which a solution is most over the capacity; whether there were any."""
        usage = self.core.usage
        if usage is None:
            return False
        change = np.zeros(len(usage.capacity) + 1)
        for group in usage.groups:
            columns = self.first[group.node][:, None] + np.arange(group.amounts.shape[1])
            amount = (group.amounts * values[columns]).sum(axis=1)
            change += np.bincount(group.start, amount, len(change)) - np.bincount(group.stop, amount, len(change))
        excess = np.cumsum(change)[:-1] - usage.capacity
        new: list[int] = []
        for moment in np.argsort(-excess, kind="stable").tolist():
            if excess[moment] <= max(1e-9 * usage.capacity[moment], usage.tolerance) or len(new) == NEW_ROWS:
                break
            if moment not in self.rows and all(abs(moment - other) > APART for other in new):
                new.append(moment)
        for moment in new:
            self._add_row(moment)
        return bool(new)

    def _add_row(self, moment: int) -> None:
        usage = self.core.usage
        assert usage is not None
        columns, amounts = [], []
        for group in usage.groups:
            alive = (group.start <= moment) & (moment < group.stop)
            here, label = np.nonzero(group.amounts[alive])
            columns.append(self.first[group.node[alive][here]] + label)
            amounts.append(group.amounts[alive][here, label])
        column, amount = np.concatenate(columns), np.concatenate(amounts)
        room = usage.capacity[moment] + usage.tolerance
        unit = max(room, amount.max(initial=0.0))
        self.solver.addRow(-highspy.kHighsInf, room / unit, len(column), column.astype(np.int32), amount / unit)
        self.rows.add(moment)
