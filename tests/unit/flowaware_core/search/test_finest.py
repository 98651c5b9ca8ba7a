"""What holds for all meshes at once, against every mesh searched on its own."""

from __future__ import annotations

import dataclasses
import itertools
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
from flowaware_core.search.finest import finest
from flowaware_core.search.operators import cost, priced, solve
from flowaware_core.search.problem import Space
from flowaware_core.search.strategies import Planner

DEVICE = fa.Device("lab", 2**34, {"float32": 1e12}, 1e11)
CLUSTER = fa.Cluster("lab", DEVICE, (fa.Level("node", 4, 5e8, 1e-5, shared=True), fa.Level("card", 4, 1e10, 4e-6)))
ARROW = jax.ShapeDtypeStruct


def attention(w: Any, x: Any) -> Any:
    """Positions meet themselves: what is cut along them has to change places."""
    scores = jax.nn.softmax(jnp.einsum("bik,bjk->bij", x @ w, x))
    return jnp.einsum("bij,bjk->bik", scores, x).sum(axis=1)


def axial(w: Any, x: Any) -> Any:
    """Rows and columns in turn."""
    rows = jnp.cumsum(jnp.tanh(x @ w), axis=0)
    return jnp.cumsum(rows * x, axis=1)


def uneven(w: Any, x: Any) -> Any:
    return jnp.sin(jnp.cumsum(x @ w, axis=2))


def deep(w: Any, x: Any) -> Any:
    return jax.lax.scan(lambda rows, layer: (jnp.tanh(rows @ layer), None), x, w)[0]


PROGRAMS: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = [
    (attention, (64, 64), (16, 32, 64)),
    (axial, (32, 32), (256, 256, 32)),
    (uneven, (5, 5), (12, 6, 5)),
]


def planner(function: Callable[..., Any], weights: tuple[int, ...], rows: tuple[int, ...], axes: int | None) -> Planner:
    args = ARROW(weights, "float32"), ARROW(rows, "float32")
    program = Program.of(fa.Task(function, args, mode="inference"))
    return Planner(program.graph, program.structure, CLUSTER, axes=axes)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0].__name__)
def test_no_mesh_has_anything_better_and_the_plan_is_near_the_best_of_all(program: Any) -> None:
    few, every = (planner(*program, axes) for axes in (2, None))
    found = every.plan("auto")
    best = min(solve(Space.of(every.outline, mesh, DEVICE, Chains(len(mesh.axes)))).cost for mesh in meshes(CLUSTER))
    assert found.meshes == len(meshes(CLUSTER))
    assert found.bound <= best * (1 + 1e-9)
    assert found.best.fits and found.best.cost <= few.plan("auto").best.cost * (1 + 1e-9)
    assert found.best.cost <= best * 1.005
    assert found.gap is not None and found.gap <= 0.005


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0].__name__)
def test_every_plan_of_every_mesh_is_a_member_and_costs_no_less(program: Any) -> None:
    outline = planner(*program, None).outline
    every = meshes(CLUSTER)
    relaxed = Space.relaxed(outline, every[-1], DEVICE)
    random = np.random.default_rng(0)
    for mesh in every:
        space = Space.of(outline, mesh, DEVICE, Chains(len(mesh.axes)))
        for _ in range(20):
            labels = np.array([random.integers(len(options)) for options in space.labels])
            meaning = [options[label] for options, label in zip(space.labels, labels, strict=True)]
            same = [
                options.index(_ascending(label, mesh)) for options, label in zip(relaxed.labels, meaning, strict=True)
            ]
            assert cost(relaxed, np.array(same)) <= cost(space, labels) * (1 + 1e-9)


def _ascending(label: tuple[int, ...], mesh: Any) -> tuple[int, ...]:
    """An assignment on the finest mesh, two axes of two a level, with the axes of a level in order."""
    found: list[int] = []
    for level in ("node", "card"):
        pairs = zip(label, mesh.axes, strict=True)
        spread = [[dim] * (axis.size // 2) for dim, axis in pairs if axis.level == level]
        found += sorted(itertools.chain(*spread), key=lambda dim: (dim < 0, dim))
    return tuple(found)


def test_what_costs_more_than_the_cutoff_is_not_looked_for() -> None:
    outline = planner(*PROGRAMS[0], None).outline
    mesh = meshes(CLUSTER)[-1]
    best = finest(outline, mesh, DEVICE, np.inf).best
    assert best is not None
    below = finest(outline, mesh, DEVICE, 0.9 * best.cost)
    assert below.best is None and below.bound == pytest.approx(0.9 * best.cost)


@pytest.mark.parametrize("part", [0.85, 0.65])
def test_under_a_limit_the_bound_holds_for_whatever_fits_on_any_mesh(part: float) -> None:
    """Layers in a loop, on devices that hold only a part of what the fastest plan needs."""
    program = planner(deep, (8, 512, 512), (16384, 512), None)
    needed = program.on(CLUSTER, 2).plan("auto").best.estimate.usage.total
    device = dataclasses.replace(DEVICE, memory_bytes=int(part * needed), usable_fraction=1.0)
    tight = dataclasses.replace(CLUSTER, device=device)
    few, every = (program.on(tight, axes).plan("auto") for axes in (2, None))
    assert every.limited and every.best.fits
    assert every.best.estimate.step_s <= few.best.estimate.step_s * (1 + 1e-9)
    assert every.bound <= every.best.cost * (1 + 1e-9)
    random = np.random.default_rng(0)
    for mesh in meshes(CLUSTER):
        space = Space.of(program.outline, mesh, device, Chains(len(mesh.axes)))
        for _ in range(100):
            tried = priced(space, "random", np.array([random.integers(len(options)) for options in space.labels]))
            assert not tried.fits or tried.cost >= every.bound * (1 - 1e-9)


def test_a_plan_on_the_finest_mesh_computes_what_plain_jax_does() -> None:
    function, weights, rows = PROGRAMS[1]
    eight = fa.Cluster("eight", DEVICE, (fa.Level("node", 2, 5e8, 1e-5), fa.Level("card", 4, 1e10, 4e-6)))
    task = fa.Task(function, (ARROW(weights, "float32"), ARROW(rows, "float32")), mode="inference")
    plan = fa.plan(task, eight, axes=None)
    assert plan.searched["meshes"] == len(meshes(eight))
    keys = jax.random.split(jax.random.key(0))
    arrays = jax.random.normal(keys[0], weights) / 8, jax.random.normal(keys[1], rows)
    split = fa.apply(plan, task)
    found = split(*jax.device_put(arrays, split.in_shardings))
    np.testing.assert_allclose(np.asarray(found), np.asarray(function(*arrays)), rtol=1e-4, atol=1e-3)
