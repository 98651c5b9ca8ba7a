"""Labelling of a sparse graph under a memory limit over time: `solve(Problem(...)) -> Solution`. Knows nothing of
JAX.
"""

from flowaware_core.search.labelling.problem import Problem, Solution
from flowaware_core.search.labelling.solve import ITERATIONS, solve

__all__ = ["ITERATIONS", "Problem", "Solution", "solve"]
