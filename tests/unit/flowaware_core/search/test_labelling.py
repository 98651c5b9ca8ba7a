"""The labelling core against brute force on many small problems."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from flowaware_core.search.labelling import Problem, excess, solve


def random_problem(seed: int, *, nodes: int = 6, memory: bool = True) -> Problem:
    """A small problem with forbidden choices, parallel edges, edges of a node with itself, isolated nodes and memory
    rows.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, rng.integers(1, nodes + 1))
    costs = [rng.integers(0, 20, size).astype(float) for size in sizes]
    for cost in costs:
        cost[rng.random(len(cost)) < 0.1] = np.inf
    edges, matrices, usage = [], [], []
    for _ in range(rng.integers(0, 2 * len(sizes))):
        i, j = (int(node) for node in rng.integers(0, len(sizes), 2))
        matrix = rng.integers(0, 20, (sizes[i], sizes[j])).astype(float)
        matrix[rng.random(matrix.shape) < rng.choice([0, 0.2, 0.6])] = np.inf
        edges.append((i, j))
        matrices.append(matrix)
    for _ in range(rng.integers(0, 2 * len(sizes))):
        node = int(rng.integers(len(sizes)))
        start, stop = (int(moment) for moment in np.sort(rng.integers(0, 8, 2)))
        usage.append((node, start, stop, rng.integers(0, 10, sizes[node]).astype(float)))
    limit = float(rng.integers(5, 40)) if memory else None
    return Problem(tuple(costs), tuple(edges), tuple(matrices), tuple(usage), limit)


def brute_force(problem: Problem) -> float:
    """Least cost of all labellings that fit; inf where there is none."""
    choices = (range(len(costs)) for costs in problem.node_costs)
    every = (np.array(labels) for labels in itertools.product(*choices))
    return min((problem.cost(labels) for labels in every if problem.fits(problem.peak(labels))), default=np.inf)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("start", range(0, 100, 25))
def test_finds_the_optimum_of_small_problems_and_a_valid_bound(start: int, memory: bool) -> None:
    for seed in range(start, start + 25):
        problem = random_problem(seed, memory=memory)
        best = brute_force(problem)
        solution = solve(problem, iterations=30)
        assert solution.feasible == np.isfinite(best), seed
        assert solution.lower_bound <= best + 1e-6, seed
        if solution.feasible:
            assert solution.cost == pytest.approx(best), seed
            assert problem.cost(solution.labels) == pytest.approx(solution.cost)
            assert problem.fits(problem.peak(solution.labels))


def test_the_same_problem_gives_the_same_solution() -> None:
    problem = random_problem(7, nodes=12)
    first, second = solve(problem), solve(problem)
    assert np.array_equal(first.labels, second.labels)
    assert first.lower_bound == second.lower_bound


def test_a_problem_that_cannot_fit_is_not_called_feasible_and_has_the_least_peak() -> None:
    problem = Problem(
        (np.zeros(2), np.zeros(3)),
        usage=((0, 0, 2, np.array([9.0, 5.0])), (1, 1, 3, np.array([8.0, 4.0, 6.0]))),
        limit=3,
    )
    solution = solve(problem)
    assert not solution.feasible
    assert solution.peak == 9.0


def test_wrong_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r"edge \(0, 1\)"):
        Problem((np.zeros(2), np.zeros(3)), ((0, 1),), (np.zeros((3, 2)),))
    with pytest.raises(ValueError, match="seed 0"):
        solve(Problem((np.zeros(2),)), seeds=[np.array([2])])


@pytest.mark.parametrize("memory", [False, True])
def test_a_cutoff_hides_nothing_below_it_and_a_gap_is_kept(memory: bool) -> None:
    for seed in range(40):
        problem = random_problem(seed, memory=memory)
        best = brute_force(problem)
        for cutoff in (best - 1.0, best + 1.0):
            solution = solve(problem, iterations=30, cutoff=cutoff)
            assert solution.lower_bound <= best + 1e-6, seed
            if best < cutoff < np.inf:
                assert solution.cost == pytest.approx(best), seed
        near = solve(problem, iterations=30, gap=0.1)
        assert not near.feasible or near.lower_bound <= best <= near.cost <= best / 0.9 + 1e-9, seed


def grid(side: int, labels: int) -> Problem:
    """A grid whose neighbours like to agree; too wide to be eliminated node by node."""
    rng = np.random.default_rng(side)
    costs = tuple(rng.random(labels) for _ in range(side * side))
    differ = 1.0 - np.eye(labels)
    across = [(node, node + 1) for node in range(side * side) if (node + 1) % side]
    down = [(node, node + side) for node in range(side * (side - 1))]
    edges = (*across, *down)
    return Problem(costs, edges, tuple(rng.random() * 0.3 * differ for _ in edges))


def test_a_wide_grid_is_solved_and_proven() -> None:
    problem = grid(12, 6)
    solution = solve(problem)
    assert problem.cost(solution.labels) == pytest.approx(solution.cost)
    assert solution.lower_bound <= solution.cost and solution.gap < 1e-6


def test_the_order_of_the_nodes_is_no_part_of_the_problem() -> None:
    problem = grid(10, 6)
    shuffled = np.random.default_rng(0).permutation(100)
    place = np.argsort(shuffled)
    edges = tuple((int(place[i]), int(place[j])) for i, j in problem.edges)
    other = Problem(tuple(problem.node_costs[node] for node in shuffled), edges, problem.edge_costs)
    assert solve(other).cost == pytest.approx(solve(problem).cost)


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_what_a_label_costs_at_least_is_no_more_than_what_it_costs(start: int) -> None:
    """Every labelling of small problems, against the bound and the excess of each of its labels."""
    left_out = 0
    for seed in range(start, start + 20):
        problem = random_problem(seed, memory=False)
        every = [
            (problem.cost(np.array(labels)), labels)
            for labels in itertools.product(*(range(len(costs)) for costs in problem.node_costs))
        ]
        best = min(cost for cost, _ in every)
        most = best + 0.2 * abs(best) + 1.0
        bound, least = excess(problem, most)
        assert bound <= best + 1e-9
        for node, values in enumerate(least):
            for label, value in enumerate(values):
                true = min(cost for cost, labels in every if labels[node] == label)
                assert min(bound + value, most) <= true + 1e-9 or true == np.inf
                left_out += bool(bound + value >= most)
    assert left_out > 20
