"""Labelling of a sparse graph under a memory limit over time: `solve(Problem(...)) -> Solution`. Knows nothing of
JAX.
"""

from flowaware_core.search.labelling.problem import Problem, Solution
from flowaware_core.search.labelling.search import EQUAL
from flowaware_core.search.labelling.solve import ITERATIONS, excess, solve

__all__ = ["EQUAL", "ITERATIONS", "Problem", "Solution", "excess", "solve"]
