"""Labelling of a sparse graph under a memory limit over time: `solve(Problem(...)) -> Solution`. Knows nothing of
JAX.
"""

from flowaware_core.search.labelling.problem import Problem, Solution
from flowaware_core.search.labelling.solve import solve

__all__ = ["Problem", "Solution", "solve"]
