"""The search against every plan there is, on programs small enough to try them all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowaware_core as fa
from flowaware_core.cluster.mesh import meshes
from flowaware_core.cost.resharding import Chains
from flowaware_core.program import Program
from flowaware_core.search.labelling import Problem
from flowaware_core.search.operators import cost, priced
from flowaware_core.search.problem import Outline, Space
from flowaware_core.search.strategies import Planner

DEVICE = fa.Device("card", fa.GIB, {"float32": 1e12}, 1e10)
FLAT = fa.Cluster("flat", DEVICE, (fa.Level("card", 2, 1e9, 1e-6),))
NESTED = fa.Cluster("nested", DEVICE, (fa.Level("node", 2, 1e8, 1e-5), fa.Level("card", 2, 1e9, 1e-6)))
MOST = 20_000_000  # plans that are tried
# The work on scalars, which no label changes, is in the estimate and not in what the search adds up.
SCALARS = 0.005


def dense(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def regression(w: Any, x: Any) -> Any:
    return w - jax.grad(lambda v: jnp.mean(jnp.square(x @ v)))(w), None


def recurrent(w: Any, x: Any) -> Any:
    """A loop whose weight is read forward and backward: its round finds it in a view."""

    def loss(v: Any) -> Any:
        return jnp.mean(jax.lax.scan(lambda h, _: (jnp.tanh(h @ v), None), x, None, length=16)[0])

    return w - jax.grad(loss)(w), None


def softmax(w: Any, x: Any) -> Any:
    return jax.nn.softmax(x + w[0], axis=-1)


def gram(w: Any, x: Any) -> Any:
    return (x.T @ x) + w.sum()


def table(w: Any, x: Any) -> Any:
    return w[jnp.argmax(x, axis=1)]


PROGRAMS: tuple[Callable[[Any, Any], Any], ...] = (dense, regression, softmax, gram, table)
SIZES = ((8, 4, 6), (64, 512, 256))
CASES = [(f, sizes, cluster) for f in PROGRAMS for sizes in SIZES for cluster in (FLAT, NESTED)]


def program(function: Callable[[Any, Any], Any], sizes: tuple[int, int, int]) -> Program:
    rows, inner, outer = sizes
    outer = inner if function is recurrent else outer
    shapes = (jax.ShapeDtypeStruct((inner, outer), "float32"), jax.ShapeDtypeStruct((rows, inner), "float32"))
    if function is softmax:
        shapes = (jax.ShapeDtypeStruct((outer, inner), "float32"), shapes[1])
    return Program.of(
        fa.Task(function, shapes, carried={0: 0} if function in (regression, recurrent) else {}, batch=(1,))
    )


def every_cost(problem: Problem, counts: list[int]) -> np.ndarray:
    """The cost of every labelling, one axis per node."""
    total = np.zeros(counts)
    for node, costs in enumerate(problem.node_costs):
        total += costs.reshape([-1 if axis == node else 1 for axis in range(len(counts))])
    for (i, j), matrix in zip(problem.edges, problem.edge_costs, strict=True):
        total += matrix.reshape([counts[axis] if axis in (i, j) else 1 for axis in range(len(counts))])
    return total


@pytest.mark.parametrize("function, sizes, cluster", CASES, ids=[f"{f.__name__}-{s[0]}-{c.name}" for f, s, c in CASES])
def test_no_plan_is_better(
    function: Callable[[Any, Any], Any], sizes: tuple[int, int, int], cluster: fa.Cluster
) -> None:
    captured = program(function, sizes)
    planner = Planner(captured.graph, captured.structure, cluster)
    found = planner.plan("auto")
    assert found.gap is not None and found.gap <= 1e-9
    roles = [0] * (len(captured.structure.groups) + len(captured.structure.free))
    whole = Outline.of(captured.graph, captured.structure, roles, collapse=False)
    space = Space.of(whole, planner.natural.mesh, DEVICE, Chains(len(planner.natural.mesh.axes)))
    counts = [len(labels) for labels in space.labels]
    assert np.prod(counts) <= MOST, counts
    problem = Problem(space.costs, space.edges, space.matrices)
    best = every_cost(problem, counts).min()
    assert found.best.cost == pytest.approx(best, rel=1e-9, abs=1e-15)
    assert found.best.estimate.step_s <= found.best.cost * (1 + SCALARS)


@pytest.mark.parametrize("function", [regression, recurrent])
def test_the_count_of_a_labelling_is_the_estimate(function: Callable[[Any, Any], Any]) -> None:
    """What the search adds up over terms, the cost model finds by playing the program through."""
    captured = program(function, (64, 512, 256))
    space = Planner(captured.graph, captured.structure, NESTED).natural
    random = np.random.default_rng(0)
    ratios = []
    for _ in range(20):
        labels = np.array([random.integers(len(options)) for options in space.labels])
        candidate = priced(space, "random", labels)
        # The estimate makes a copy once for all its readers, the labelling once for each.
        assert candidate.estimate.step_s <= candidate.cost * (1 + SCALARS)
        ratios.append(candidate.estimate.step_s / candidate.cost)
    assert np.mean(ratios) > 0.8  # random labels make many copies


def test_the_bound_holds_for_whatever_fits() -> None:
    """Under limits from what the fastest plan needs down to less than any does."""
    captured = program(recurrent, (64, 512, 512))
    planner = Planner(captured.graph, captured.structure, FLAT)
    random = np.random.default_rng(1)
    space = planner.natural
    draw = lambda: np.array([random.integers(len(options)) for options in space.labels])
    tried = [priced(space, "random", draw()) for _ in range(300)]
    fastest = planner.plan("auto").best
    tried += [fastest, *(planner.plan(name).best for name in fa.STRATEGIES)]
    least = min(candidate.estimate.usage.total for candidate in tried)
    for part in (0.75, 0.5, 0.25, 0.0, -0.5):
        limit = int(least + part * (fastest.estimate.usage.total - least))
        device = dataclasses.replace(DEVICE, memory_bytes=limit, usable_fraction=1.0)
        found = Planner(captured.graph, captured.structure, dataclasses.replace(FLAT, device=device)).plan("auto")
        assert found.limited
        fitting = [candidate.cost for candidate in tried if candidate.estimate.usage.total <= limit]
        assert found.best.fits or not fitting
        if fitting:
            assert found.bound <= min(fitting) * (1 + 1e-9)
            assert found.best.estimate.step_s <= min(fitting) * (1 + SCALARS)


def test_a_template_that_counts_more_leaves_the_certificate_of_the_search() -> None:
    captured = program(recurrent, (64, 512, 512))
    planner = Planner(captured.graph, captured.structure, NESTED)
    found = planner.plan("auto")
    dearer = dataclasses.replace(found.best, cost=2 * found.best.cost)
    assert found.gap is not None
    assert dataclasses.replace(found, best=dearer).gap == found.gap


@pytest.mark.parametrize("cluster", [FLAT, NESTED], ids=["flat", "nested"])
def test_no_template_is_better_and_each_is_a_member_of_the_space(cluster: fa.Cluster) -> None:
    captured = program(regression, (64, 512, 256))
    planner = Planner(captured.graph, captured.structure, cluster)
    best = planner.plan("auto").best
    for name in fa.STRATEGIES:
        assert best.cost <= planner.plan(name).best.cost * (1 + 1e-9), name


def test_more_axes_are_never_worse_and_the_gap_holds_for_all_meshes() -> None:
    captured = program(regression, (64, 512, 256))
    eight = fa.Cluster("eight", DEVICE, (fa.Level("card", 8, 1e9, 1e-6),))
    two, three = (Planner(captured.graph, captured.structure, eight, axes=axes).plan("auto") for axes in (2, 3))
    assert (two.meshes, three.meshes) == (2, 3)
    assert three.best.cost <= two.best.cost * (1 + 1e-9)
    assert three.gap is not None and three.gap <= 1.001e-3


@pytest.mark.parametrize("function", [*PROGRAMS, recurrent])
def test_a_level_split_in_two_axes_has_every_plan_of_the_whole_one_at_the_same_cost(
    function: Callable[[Any, Any], Any],
) -> None:
    captured = program(function, (64, 512, 256) if function is not recurrent else (64, 512, 512))
    cluster = fa.Cluster("wide", DEVICE, (fa.Level("node", 8, 1e8, 1e-5), fa.Level("card", 2, 1e9, 1e-6)))
    planner = Planner(captured.graph, captured.structure, cluster)
    whole = planner.natural
    mesh = next(mesh for mesh in meshes(cluster) if mesh.sizes == (4, 2, 2))
    split = Space.of(planner.outline, mesh, DEVICE, Chains(3))
    rng = np.random.default_rng(0)
    for _ in range(20):
        labels = np.array([rng.integers(len(options)) for options in whole.labels])
        meaning = [options[label] for options, label in zip(whole.labels, labels, strict=True)]
        same = [options.index((node, node, card)) for options, (node, card) in zip(split.labels, meaning, strict=True)]
        assert cost(split, np.array(same)) == pytest.approx(cost(whole, labels), rel=1e-9)


def test_finer_meshes_find_what_coarser_ones_do_not_have() -> None:
    """Three dimensions of four and 64 devices: all of them work only where their level is split in three axes."""
    shape = jax.ShapeDtypeStruct((4, 4, 4, 65536), "float32")
    captured = Program.of(fa.Task(lambda x: jnp.cumsum(x, axis=3), (shape,)))
    cluster = fa.Cluster("many", DEVICE, (fa.Level("card", 64, 1e9, 1e-6),))
    coarse, fine = (Planner(captured.graph, captured.structure, cluster, axes=axes).plan("auto") for axes in (2, 3))
    assert fine.best.mesh.sizes == (4, 4, 4) and fine.meshes > coarse.meshes
    assert fine.best.cost < 0.3 * coarse.best.cost
    assert fine.gap is not None and fine.gap <= 1.001e-3
