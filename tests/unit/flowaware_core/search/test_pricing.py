"""What labels cost, against times worked out by hand."""

from __future__ import annotations

import jax
import pytest

import flowaware_core as fa
from flowaware_core.cost.communication import seconds
from flowaware_core.program import Program
from flowaware_core.search.strategies import Planner

DEVICE = fa.Device("lab", 2**34, {"float32": 1e12}, 1e11)
CLUSTER = fa.Cluster("lab", DEVICE, (fa.Level("node", 2, 1e9, 1e-6), fa.Level("card", 4, 1e10, 1e-7)))


def test_borders_taken_later_include_those_taken_before() -> None:
    shapes = (jax.ShapeDtypeStruct((1, 16, 32, 1), "float32"), jax.ShapeDtypeStruct((4, 2, 1, 1), "float32"))
    layout = ("NHWC", "HWIO", "NHWC")

    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 2), (1, 0)], dimension_numbers=layout)

    program = Program.of(fa.Task(convolve, shapes, mode="inference"))
    planner = Planner(program.graph, program.structure, CLUSTER)
    (operator,) = program.structure.free
    space = planner.natural
    node = space.outline.repeats.nodes.index(space.outline.terms.groups)
    rows, columns = (dims[0] for dims in operator.rule.operands[0][1:3])
    # A shard is 8 x 8; with the borders of its rows, one before and two after, 11 x 8.
    expected = sum(
        seconds("collective-permute", 4 * size, (axis,), space.mesh) for size, axis in ((8, 0), (16, 0), (11, 1))
    )
    assert space.own[node][space.labels[node].index((rows, columns))] == pytest.approx(expected, rel=1e-9)
