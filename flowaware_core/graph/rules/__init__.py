"""One sharding rule per primitive: an operator is its factors.

A factor is an independent loop dimension of an operator. A rule says for every dimension of every operand and result of which
factors it is made; putting mesh axes on factors then fixes the layout of all operands and results at once. The idea is that of
Shardy's sharding rules (openxla/shardy, "Sharding rules").

Kinds of factor:
    map     sharding it costs nothing: every device does its slice.
    reduce  it is combined over: sharding it leaves a partial result on every device, to be combined by `Factor.combine`.
    halo    a window slides along it: every device does its slice after an exchange of borders with its neighbours. A window that is
            summed over while it slides (the gradient of a kernel) is a `reduce` with borders.
    fixed   it must stay whole.

A dimension that is merged from several factors (reshape) lists them major first; only the major one may be sharded, because a
shard of a minor one is not a contiguous tile of the merged dimension.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules import indexing, linalg, products, randomness, reductions, shapes, windows
from flowaware_core.graph.rules.factors import Border as Border
from flowaware_core.graph.rules.factors import Cut as Cut
from flowaware_core.graph.rules.factors import Dims as Dims
from flowaware_core.graph.rules.factors import Factor as Factor
from flowaware_core.graph.rules.factors import Rule as Rule
from flowaware_core.graph.rules.factors import RuleFunction, Shape, along, elementwise, fixed, leading

ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex conj
    convert_element_type copy copy_p cos cosh device_put digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma
    igamma_grad_a igammac imag integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul mulhi name ne neg
    nextafter not or polygamma population_count pow pvary random_gamma_grad real reduce_precision regularized_incomplete_beta rem
    round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan
    tanh threefry2x32 xor zeta""".split()
)

_REDUCTIONS = {
    "reduce_sum": "sum",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_prod": "prod",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "",
}
# The partitioner knows how to combine these; differences it does not.
_SCATTERS = {"add": "sum", "sub": "", "mul": "prod", "min": "min", "max": "max"}

RULES: dict[str, RuleFunction] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    # Elements moved about.
    "broadcast_in_dim": shapes.broadcast_in_dim,
    "transpose": shapes.transpose,
    "reshape": shapes.reshape,
    "squeeze": shapes.squeeze,
    "expand_dims": shapes.expand_dims,
    "rev": along("dimensions"),
    "pad": shapes.pad,
    "slice": shapes.whole_dimensions,
    "dynamic_slice": shapes.whole_dimensions,
    "dynamic_update_slice": shapes.dynamic_update_slice,
    "concatenate": shapes.concatenate,
    "split": shapes.split,
    "stack": shapes.stack,
    "unstack": shapes.unstack,
    "tile": shapes.tile,
    "bitcast_convert_type": shapes.bitcast_convert_type,
    "iota": shapes.created,
    "empty": shapes.created,
    "empty2": shapes.created,
    # Along dimensions.
    **{name: reductions.reduction(combine) for name, combine in _REDUCTIONS.items()},
    # The partitioner would move the numbers of the positions along with the values.
    **dict.fromkeys(("argmax", "argmin"), reductions.reduction("", local=True)),
    "reduce": reductions.reduction("", "dimensions"),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), along("axis")),
    "sort": along("dimension"),
    "top_k": reductions.top_k,
    "approx_top_k": along("reduction_dimension", local=True),
    "fft": reductions.fft,
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), windows.sliding),
    "reduce_window": windows.mapped,
    "select_and_gather_add": windows.mapped,
    "select_and_scatter": windows.mapped,
    "select_and_scatter_add": windows.selecting,
    # Products.
    "dot_general": products.dot_general,
    "ragged_dot": products.ragged_dot,
    "ragged_dot_general": products.ragged_dot,
    "conv_general_dilated": products.convolution,
    # Indices.
    "gather": indexing.gather,
    "scatter": indexing.scatter(""),
    **{f"scatter{mark}{name}": indexing.scatter(how) for name, how in _SCATTERS.items() for mark in "-_"},
    # Linear algebra: matrices whole, batches of them mapped.
    **dict.fromkeys(
        "cholesky eig eigh eigh_jacobi geqrf geqp3 hessenberg lu qr schur svd tridiagonal".split(),
        leading(2, local=True),
    ),
    **dict.fromkeys(
        "cholesky_update householder_product ormqr symmetric_product symmetric_update".split(), leading(2, local=True)
    ),
    "lu_pivots_to_permutation": leading(1, local=True),
    "triangular_solve": linalg.triangular_solve,
    "tridiagonal_solve": linalg.tridiagonal_solve,
    # Random numbers.
    "random_bits": randomness.per_key,
    "random_split": randomness.per_key,
    "random_seed": elementwise,
    "random_fold_in": elementwise,
    "random_clone": elementwise,
    "random_wrap": randomness.key_words,
    "random_unwrap": randomness.key_words,
    # Kept whole: results would depend on how they are cut, or the outside world is asked.
    **dict.fromkeys("random_gamma rng_bit_generator rng_uniform platform_index".split(), fixed),
    **dict.fromkeys("debug_callback debug_print io_callback pure_callback".split(), fixed),
}


def rule(primitive: str, operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """The rule of one equation.

    Args:
        primitive: its name in a jaxpr.
        operands, results: shapes.
        params: the equation's parameters.
    """
    function = RULES.get(primitive)
    if function is None:
        return dataclasses.replace(fixed(operands, results, params), known=False)
    return function(operands, results, params)
