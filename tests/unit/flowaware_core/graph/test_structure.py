"""What the data flow ties together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import flowaware_core as fa
from flowaware_core.graph.rules import Cut
from flowaware_core.graph.structure import Structure
from flowaware_core.program import Program


def program(function: Any, *args: Any, **options: Any) -> Program:
    return Program.of(fa.Task(function, args, **options))


def group(found: Program, leaf: int) -> int:
    return found.structure.group_of[found.graph.inputs[leaf]]


def dims(structure: Structure, tensor: int) -> tuple[int, ...]:
    return structure.dims_of[tensor]


def test_elementwise_operators_and_transposes_tie() -> None:
    found = program(lambda a, b: (jnp.sin(a) + b.T).sum(), jnp.ones((4, 6)), jnp.ones((6, 4)))
    assert group(found, 0) == group(found, 1)
    one, other = (dims(found.structure, found.graph.inputs[leaf]) for leaf in (0, 1))
    assert one == other[::-1]
    assert not found.structure.free


def test_a_matrix_product_keeps_its_choice() -> None:
    found = program(lambda a, b: a @ b, jnp.ones((4, 6)), jnp.ones((6, 8)))
    assert [operator.primitive for operator in found.structure.free] == ["dot_general"]
    assert group(found, 0) != group(found, 1)


def test_a_matrix_met_by_its_transpose_does_not_tie_its_dimensions() -> None:
    found = program(lambda a: a + a.T, jnp.ones((4, 4)))
    (add,) = [operator.id for operator, _ in found.graph.walk() if operator.primitive == "add"]
    assert add not in found.structure.tied
    assert len(set(dims(found.structure, found.graph.inputs[0]))) == 2


def test_batch_is_one_class_through_the_network() -> None:
    def loss(w: Any, x: Any) -> Any:
        return jnp.mean(jax.nn.relu(x @ w) @ w.T)

    found = program(jax.grad(loss), jnp.ones((8, 16)), jnp.ones((32, 8)), batch=(1,))
    structure, graph = found.structure, found.graph
    batch = structure.classes[group(found, 1)][0]
    read = {tensor for operator, _ in graph.walk() for tensor in operator.inputs}
    hidden = [t.id for t in graph.tensors if t.shape == (32, 16) and t.id in read]
    assert hidden
    for tensor in hidden:
        dim = dims(structure, tensor)[0]
        assert structure.classes[structure.group_of[tensor]][dim] == batch


def test_carried_state_keeps_its_layout_and_scans_keep_their_leading_dimension_whole() -> None:
    def step(ws: Any, x: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return jnp.tanh(h @ w), None

        return ws * 0.5, jax.lax.scan(layer, x, ws)[0]

    found = program(step, jnp.ones((3, 8, 8)), jnp.ones((4, 8)), carried={0: 0})
    stacked = found.structure.groups[group(found, 0)]
    leading = dims(found.structure, found.graph.inputs[0])[0]
    assert not stacked.shardable[leading] and sum(stacked.shardable) == len(stacked.shardable) - 1
    assert found.structure.group_of[found.graph.outputs[0]] == group(found, 0)  # type: ignore[index]


def test_the_rounds_of_a_loop_may_be_grouped() -> None:
    """A reshape of nothing but dimensions that loops run over leaves no choice: the weights are cut alike before and after."""

    def several(x: Any, group: Any) -> Any:
        return jax.lax.scan(lambda x, v: (jnp.tanh(x @ v), None), x, group)[0], None

    def step(w: Any, x: Any) -> Any:
        gradient = jax.grad(lambda w: jax.lax.scan(several, x, w.reshape(3, 4, 8, 8))[0].sum())(w)
        return w - gradient, None

    found = program(step, jnp.ones((12, 8, 8)), jnp.ones((4, 8)), carried={0: 0})
    assert not [operator for operator in found.structure.free if operator.primitive == "reshape"]
    tensor = found.graph.inputs[0]
    kinds = found.structure.groups[found.structure.group_of[tensor]].shardable
    assert [kinds[dim] is Cut.WHOLE for dim in found.structure.dims_of[tensor]] == [True, False, False]


def test_a_reshape_of_what_may_be_cut_keeps_its_choice() -> None:
    found = program(lambda x: jnp.sin(x.reshape(4, 6, 8)).sum(), jnp.ones((24, 8)))
    assert [operator.primitive for operator in found.structure.free] == ["reshape"]
