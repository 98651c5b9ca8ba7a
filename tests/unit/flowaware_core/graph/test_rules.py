"""What the rules say about small operators; that they hold is proven in tests/contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from flowaware_core.graph.capture import capture
from flowaware_core.graph.model import Operator
from flowaware_core.graph.rules import ELEMENTWISE, RULES, Rule, rule
from flowaware_core.task import Task


def operator(function: Callable[..., Any], *shapes: Sequence[int], primitive: str, dtype: Any = np.float32) -> Operator:
    """The one operator of this primitive in a function of arrays of these shapes; whole numbers for indices."""
    args = [jax.ShapeDtypeStruct(tuple(shape), dtype) for shape in shapes]
    found = [one for one, _ in capture(Task(function, tuple(args))).walk() if one.primitive == primitive]
    assert len(found) == 1, [one.primitive for one in found]
    return found[0]


def kinds(found: Rule) -> list[tuple[int, str]]:
    return [(factor.size, factor.kind) for factor in found.factors]


def test_a_primitive_without_a_rule_is_fixed_and_says_so() -> None:
    found = rule("no such primitive", [(4, 8)], [(8,)], {})
    assert not found.known
    assert kinds(found) == [(4, "fixed"), (8, "fixed"), (8, "fixed")]


def test_every_rule_describes_every_dimension_of_an_elementwise_operator() -> None:
    for name in sorted(ELEMENTWISE):
        found = rule(name, [(4, 8), ()], [(4, 8)], {})
        assert found.operands == (((0,), (1,)), ())
        assert found.results == (((0,), (1,)),)


def test_lengths_of_one_take_no_part_in_an_elementwise_operator() -> None:
    found = rule("add", [(4, 8), (1, 8)], [(4, 8)], {})
    assert found.operands == (((0,), (1,)), ((), (1,)))


def test_a_product_has_batch_left_right_and_contracted_factors() -> None:
    found = operator(jnp.matmul, (2, 3, 4), (2, 4, 5), primitive="dot_general").rule
    assert kinds(found) == [(2, "map"), (3, "map"), (5, "map"), (4, "reduce")]
    assert found.operands == (((0,), (1,), (3,)), ((0,), (3,), (2,)))
    assert found.results == (((0,), (1,), (2,)),)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((8, 16), (128,), [(8, "map"), (16, "fixed"), (16, "fixed")]),
        ((128,), (8, 16), [(8, "map"), (16, "fixed"), (16, "fixed")]),
        ((8, 16), (8, 4, 4), [(8, "map"), (4, "map"), (4, "fixed"), (4, "fixed")]),
        ((8, 6), (4, 12), [(4, "map"), (2, "fixed"), (6, "fixed"), (12, "fixed")]),
        ((8, 1, 6), (1, 8, 6), [(8, "map"), (6, "map")]),
        ((0, 4), (4, 0), [(0, "fixed"), (4, "fixed"), (4, "fixed"), (0, "fixed")]),
    ],
)
def test_reshape_keeps_the_major_dimension_of_every_merge(
    before: tuple[int, ...], after: tuple[int, ...], expected: list[tuple[int, str]]
) -> None:
    assert kinds(rule("reshape", [before], [after], {"dimensions": None})) == expected


def test_merged_dimensions_list_the_major_factor_first() -> None:
    found = rule("reshape", [(8, 16)], [(128,)], {"dimensions": None})
    assert found.operands == (((0,), (2,)),)
    assert found.results == (((0, 1),),)


def test_a_sum_can_be_cut_where_it_adds_and_an_argmax_cannot() -> None:
    assert kinds(operator(lambda x: x.sum(1), (4, 8), primitive="reduce_sum").rule) == [(4, "map"), (8, "reduce")]
    assert kinds(operator(lambda x: jnp.argmax(x, 1), (4, 8), primitive="argmax").rule) == [(4, "map"), (8, "fixed")]


def test_flags_combine_and_bits_do_not() -> None:
    flags = operator(lambda x: x.any(1), (4, 8), primitive="reduce_or", dtype=np.bool_).rule
    bits = operator(lambda x: lax.reduce_or_p.bind(x, axes=(1,)), (4, 8), primitive="reduce_or", dtype=np.int32).rule
    assert kinds(flags) == [(4, "map"), (8, "reduce")]
    assert kinds(bits) == [(4, "map"), (8, "fixed")]


def test_an_embedding_may_be_cut_by_index_by_row_and_by_column() -> None:
    def embed(table: jax.Array) -> jax.Array:
        return table[jnp.arange(6, dtype=jnp.int32) % 32]

    found = operator(embed, (32, 8), primitive="gather").rule
    assert kinds(found) == [(6, "map"), (8, "map"), (32, "reduce"), (1, "fixed")]
    assert found.operands == (((2,), (1,)), ((0,), (3,)))


def test_its_gradient_adds_up_over_indices_and_serves_rows_apart() -> None:
    def gradient(table: jax.Array) -> jax.Array:
        return jax.grad(lambda t: (t[jnp.arange(6, dtype=jnp.int32)] ** 2).sum())(table)

    found = operator(gradient, (32, 8), primitive="scatter-add").rule
    assert kinds(found) == [(6, "reduce"), (8, "map"), (32, "map"), (1, "fixed")]
    assert found.operands == (((2,), (1,)), ((0,), (3,)), ((0,), (1,)))
    assert found.results == (((2,), (1,)),)


def test_a_scatter_that_replaces_cannot_be_cut_over_its_indices() -> None:
    found = operator(lambda x, u: x.at[jnp.array([3, 1])].set(u), (32, 8), (2, 8), primitive="scatter").rule
    assert kinds(found)[0] == (2, "fixed")


def test_a_padded_dimension_is_fixed_even_where_its_length_stays() -> None:
    found = operator(lambda x: lax.pad(x, 0.0, ((0, 0, 0), (3, -3, 0))), (4, 8), primitive="pad").rule
    assert kinds(found) == [(4, "map"), (8, "fixed"), (8, "fixed")]


def test_a_window_of_one_is_mapped_unless_it_is_padded() -> None:
    def pool(padding: Any) -> Callable[[jax.Array], jax.Array]:
        return lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), padding)

    plain = operator(pool(((0, 0), (0, 0))), (4, 8), primitive="reduce_window_max").rule
    shifted = operator(pool(((1, -1), (0, 0))), (4, 8), primitive="reduce_window_max").rule
    assert kinds(plain) == [(4, "map"), (4, "halo")]
    assert kinds(shifted) == [(4, "halo"), (4, "halo")]
    assert (shifted.factors[0].borders[0].before, shifted.factors[0].borders[0].after) == (1, 0)


def test_a_convolution_maps_examples_and_channels_and_sums_over_input_channels() -> None:
    def conv(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    found = operator(conv, (4, 8, 8, 6), (3, 3, 6, 10), primitive="conv_general_dilated").rule
    assert kinds(found)[:3] == [(4, "map"), (6, "reduce"), (10, "map")]
    assert not found.local
    borders = [factor.borders[0] for factor in found.factors if factor.kind == "halo"]
    assert [(border.dim, border.before, border.after) for border in borders] == [(1, 1, 1), (2, 1, 1)]
    pointwise = operator(conv, (4, 8, 8, 6), (1, 1, 6, 10), primitive="conv_general_dilated").rule
    assert [kind for kind in kinds(pointwise) if kind == (8, "map")] == [(8, "map")] * 2


def test_groups_of_a_convolution_are_mapped_and_run_locally() -> None:
    def depthwise(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=6
        )

    found = operator(depthwise, (4, 8, 8, 6), (3, 3, 1, 12), primitive="conv_general_dilated").rule
    assert kinds(found)[:2] == [(4, "map"), (6, "map")]
    assert found.local


@pytest.mark.parametrize(
    ("function", "shape", "primitive"),
    [
        (jnp.linalg.cholesky, (4, 3, 3), "cholesky"),
        (jnp.linalg.eigh, (4, 3, 3), "eigh"),
        (lambda x: jnp.linalg.svd(x), (4, 3, 2), "svd"),
        (lambda x: lax.linalg.lu(x), (4, 3, 3), "lu"),
        (lambda x: lax.top_k(x, 2), (4, 3), "top_k"),
        (lambda x: jnp.fft.fft(x), (4, 3), "fft"),
    ],
)
def test_libraries_run_locally_on_batches(function: Callable[..., Any], shape: tuple[int, ...], primitive: str) -> None:
    found = operator(function, shape, primitive=primitive).rule
    assert found.local
    assert [factor.size for factor in found.factors if factor.shardable] == [4]


def test_right_sides_of_a_triangular_system_are_independent() -> None:
    def solve(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.linalg.triangular_solve(a, b, left_side=True)

    found = operator(solve, (4, 3, 3), (4, 3, 5), primitive="triangular_solve").rule
    assert [factor.size for factor in found.factors if factor.shardable] == [4, 5]


def test_random_numbers_are_made_where_they_are_needed() -> None:
    one = operator(lambda: jax.random.bits(jax.random.key(0), (4, 8)), primitive="random_bits").rule
    assert kinds(one) == [(4, "map"), (8, "map")]

    def many() -> jax.Array:
        return jax.vmap(lambda key: jax.random.bits(key, (8,)))(jax.random.split(jax.random.key(0), 4))

    found = operator(many, primitive="random_bits").rule
    assert kinds(found) == [(4, "map"), (8, "map")]
    assert found.operands == (((0,),),)


def test_a_sum_and_a_stack_of_several_tensors_share_their_factors() -> None:
    found = rule("concatenate", [(4, 8), (4, 2)], [(4, 10)], {"dimension": 1})
    assert kinds(found) == [(4, "map"), (8, "fixed"), (2, "fixed"), (10, "fixed")]
    stacked = rule("stack", [(4, 8), (4, 8)], [(4, 2, 8)], {"axis": 1})
    assert kinds(stacked) == [(4, "map"), (8, "map"), (2, "fixed")]
    assert stacked.results == (((0,), (2,), (1,)),)


def test_every_rule_function_belongs_to_one_primitive_name() -> None:
    assert all(name == name.strip() and callable(function) for name, function in RULES.items())
