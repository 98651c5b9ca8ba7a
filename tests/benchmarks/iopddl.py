"""The industrial sharding problems of the IOPDDL contest, through the labelling core.

    python -m tests.benchmarks.iopddl FILE... [--seconds N] [--iterations N] [--json]

FILE is a problem of github.com/google/iopddl, plain or gzipped. One line per file; with --json an object
{problem, cost, lower_bound, seconds, solution} with a label per node.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pathlib
import sys
import time
from collections.abc import Sequence

import numpy as np

from flowaware_core.search.labelling import Problem, Solution, solve

FORBIDDEN = 1e17  # costs from here on mean that a choice is not allowed


def load(path: pathlib.Path) -> tuple[str, Problem]:
    """The name and the problem of a contest file. Raises ValueError where the file is not one."""
    content = path.read_bytes()
    tree = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    if "problem" not in tree:
        raise ValueError(f"{path} has the keys {sorted(tree)}; a contest file has 'problem'")
    tree = tree["problem"]
    nodes, edges = tree["nodes"], tree["edges"]
    shared: dict[tuple, np.ndarray] = {}
    costs = [_costs(values, (len(values),), shared) for values in nodes["costs"]]
    pairs = [(int(i), int(j)) for i, j in edges["nodes"]]
    matrices = [
        _costs(values, (len(costs[i]), len(costs[j])), shared)
        for (i, j), values in zip(pairs, edges["costs"], strict=True)
    ]
    usage = [
        (node, start, stop, _costs(values, (len(values),), shared))
        for node, ((start, stop), values) in enumerate(zip(nodes["intervals"], nodes["usages"], strict=True))
        if stop > start
    ]
    problem = Problem(tuple(costs), tuple(pairs), tuple(matrices), tuple(usage), tree.get("usage_limit"))
    return tree.get("name", path.name), problem


def _costs(values: list, shape: tuple[int, ...], shared: dict[tuple, np.ndarray]) -> np.ndarray:
    """One array per different content, so that equal ones are one object."""
    signature = (shape, tuple(values))
    result = shared.get(signature)
    if result is None:
        result = np.array(values, dtype=np.float64).reshape(shape)
        result[result >= FORBIDDEN] = np.inf
        shared[signature] = result
    return result


def line(name: str, solution: Solution, seconds: float) -> str:
    """What a person reads about one file."""
    state = "fits" if solution.feasible else "DOES NOT FIT"
    bounds = f"cost {solution.cost:.6g}, bound {solution.lower_bound:.6g}, gap {solution.gap:.2%}"
    return f"{name}: {bounds}, {state}, {seconds:.1f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.iopddl", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=None, help="wall-clock limit per file, reading included")
    parser.add_argument(
        "--iterations", type=int, default=None, help="limit of the search instead of or besides --seconds"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per file")
    options = parser.parse_args(arguments)
    for path in options.files:
        began = time.perf_counter()
        name, problem = load(path)
        limits = {} if options.iterations is None else {"iterations": options.iterations}
        if options.seconds is not None:
            limits["seconds"] = max(options.seconds - (time.perf_counter() - began), 0.1)
        solution = solve(problem, **limits)
        seconds = time.perf_counter() - began
        if options.json:
            result = {
                "problem": name,
                "cost": solution.cost if solution.feasible else None,
                "lower_bound": solution.lower_bound,
                "seconds": seconds,
                "solution": solution.labels.tolist(),
            }
            print(json.dumps(result), flush=True)
        else:
            print(line(name, solution, seconds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
