"""A convolutional network cut along height and width: borders are exchanged, nothing is gathered, and the answer is the same."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import flowaware_core as fa
from flowaware_core import hlo
from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cost.trace import trace
from flowaware_core.graph.model import Operator
from flowaware_core.graph.placement import Assignment, Choices
from flowaware_core.graph.structure import tensors_of
from flowaware_core.program import Program
from flowaware_core.search.space import group_assignments, operator_assignments
from flowaware_core.search.terms import viewed
from tests.contract.programs import mesh_of, split

NHWC = ("NHWC", "HWIO", "NHWC")


def network(w: Any, x: Any) -> Any:
    """Three convolutions, one of them strided, normalisation over all positions, overlapping windows of maxima."""
    y = lax.conv_general_dilated(x, w["first"], (1, 1), "SAME", dimension_numbers=NHWC)
    y = jax.nn.relu((y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-3))
    y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = lax.conv_general_dilated(y, w["second"], (2, 2), "SAME", dimension_numbers=NHWC)
    return (lax.conv_general_dilated(jnp.tanh(y), w["third"], (1, 1), "SAME", dimension_numbers=NHWC) ** 2).mean()


def step(w: Any, x: Any) -> Any:
    value, grads = jax.value_and_grad(network)(w, x)
    return jax.tree.map(lambda a, b: a - 0.1 * b, w, grads), value


def arguments() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    shapes = {"first": (7, 7, 3, 8), "second": (3, 3, 8, 16), "third": (1, 1, 16, 8)}
    weights = {name: np.float32(random.standard_normal(shape) / 8) for name, shape in shapes.items()}
    return weights, np.float32(random.standard_normal((2, 64, 64, 3)))


def spread(program: Program, mesh: Mesh, classes: Sequence[int]) -> Choices:
    """Every axis on one class of dimensions, wherever a tensor or an operator has it and may be cut there."""
    structure = program.structure

    def factor(operator: Operator, wanted: int) -> int:
        for tensor, dims in tensors_of(operator):
            for dim, factors in enumerate(dims):
                logical = structure.dims_of[tensor][dim]
                if factors and logical >= 0 and structure.classes[structure.group_of[tensor]][logical] == wanted:
                    return factors[0]
        return -1

    def allowed(assignment: Assignment, labels: Sequence[Assignment]) -> Assignment:
        return assignment if assignment in labels else (-1,) * len(assignment)

    def of_group(index: int) -> Assignment:
        own = structure.classes[index]
        wanted = tuple(own.index(number) if number in own else -1 for number in classes)
        return allowed(wanted, group_assignments(structure.groups[index], mesh.sizes))

    operators = {
        one.id: allowed(tuple(factor(one, number) for number in classes), operator_assignments(one, mesh.sizes))
        for one in structure.free
    }
    views = {tensor: of_group(structure.group_of[tensor]) for tensor in viewed(program.graph, structure)}
    return Choices(tuple(of_group(index) for index in range(len(structure.groups))), operators, views)


def test_cut_along_height_and_width() -> None:
    args = arguments()
    program, mesh = Program.of(fa.Task(step, args, carried={0: 0}, batch=(1,))), mesh_of(2, 4)
    image = program.graph.inputs[-1]
    own = program.structure.classes[program.structure.group_of[image]]
    height, width = (own[program.structure.dims_of[image][dim]] for dim in (1, 2))
    planned, placed = split(program, spread(program, mesh, (height, width)), mesh)
    compiled = planned.compile(optimise=False)

    predicted: collections.Counter[str] = collections.Counter()
    for move in trace(program.graph, placed, mesh.sizes).communications:
        predicted[move.kind] += move.times * move.bytes
    found: collections.Counter[str] = collections.Counter()
    for collective in hlo.collectives(compiled.as_text() or "", mesh.num_devices):
        found[collective.kind] += (collective.count or 1) * collective.bytes
    assert predicted["collective-permute"] > 0
    assert found == predicted, "borders are exchanged and gradients summed; nothing else moves"

    weights, value = compiled(*jax.device_put(args, planned.in_shardings))
    expected, loss = jax.jit(step)(*args)
    np.testing.assert_allclose(value, loss, rtol=1e-5)
    for name, leaf in expected.items():
        np.testing.assert_allclose(weights[name], leaf, rtol=1e-4, atol=1e-5)
