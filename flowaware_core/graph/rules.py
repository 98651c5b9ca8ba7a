"""One sharding rule per primitive: an operator is its factors.

A factor is an independent loop dimension of an operator. A rule says for every dimension of every operand and result of which
factors it is made; putting mesh axes on factors then fixes the layout of all operands and results at once. The idea is that of
Shardy's sharding rules (openxla/shardy, "Sharding rules").

Kinds of factor:
    map     sharding it costs nothing: every device does its slice.
    reduce  it is combined over: sharding it leaves a partial result on every device, to be combined by `Factor.combine`.
    halo    a window slides along it: sharding it would cost an exchange of the border; this version keeps it whole.
    fixed   it must stay whole.

A dimension that is merged from several factors (reshape) lists them major first; only the major one may be sharded, because a
shard of a minor one is not a contiguous tile of the merged dimension.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

Kind = Literal["map", "reduce", "halo", "fixed"]
Shape = tuple[int, ...]
Dims = tuple[tuple[int, ...], ...]


@dataclasses.dataclass(frozen=True)
class Factor:
    """One loop dimension: its length, its kind, and for `reduce` how partial results are combined ("sum", "max", "min", ...)."""

    size: int
    kind: Kind
    combine: str = ""

    @property
    def shardable(self) -> bool:
        return self.size > 1 and self.kind in ("map", "reduce")


@dataclasses.dataclass(frozen=True)
class Rule:
    """The factors of one operator and where they sit.

    Attributes:
        factors: all factors.
        operands, results: per tensor, per dimension, the factors it is made of (none for a dimension that no factor describes).
        known: False for the fallback of a primitive that has no rule: everything fixed.
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    known: bool = True


class _Rule:
    """A rule under construction."""

    def __init__(self, operands: Sequence[Shape], results: Sequence[Shape]):
        self.factors: list[Factor] = []
        self.operands = [[()] * len(shape) for shape in operands]  # type: list[list[tuple[int, ...]]]
        self.results = [[()] * len(shape) for shape in results]  # type: list[list[tuple[int, ...]]]

    def add(self, size: int, kind: Kind, operands: dict[int, int], results: dict[int, int], combine: str = "") -> int:
        """Adds a factor; `operands` and `results` map a tensor's position to the dimension that is this factor."""
        index = len(self.factors)
        self.factors.append(Factor(int(size), kind, combine))
        for tensor, dim in operands.items():
            self.operands[tensor][dim] += (index,)
        for tensor, dim in results.items():
            self.results[tensor][dim] += (index,)
        return index

    def build(self, known: bool = True) -> Rule:
        return Rule(
            tuple(self.factors),
            tuple(tuple(dims) for dims in self.operands),
            tuple(tuple(dims) for dims in self.results),
            known,
        )


RuleFunction = Callable[[Sequence[Shape], Sequence[Shape], dict[str, Any]], Rule]


def rule(primitive: str, operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """The rule of one equation.

    Args:
        primitive: its name in a jaxpr.
        operands, results: shapes.
        params: the equation's parameters.
    """
    if primitive in ELEMENTWISE:
        return _elementwise(operands, results, params)
    function = RULES.get(primitive)
    return function(operands, results, params) if function else fixed(operands, results, params, known=False)


def fixed(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any], known: bool = True) -> Rule:
    """Every dimension stays whole."""
    del params
    building = _Rule(operands, results)
    for position, shape in enumerate(operands):
        for dim, size in enumerate(shape):
            building.add(size, "fixed", {position: dim}, {})
    for position, shape in enumerate(results):
        for dim, size in enumerate(shape):
            building.add(size, "fixed", {}, {position: dim})
    return building.build(known)


def _elementwise(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    del params
    building = _Rule(operands, results)
    shape = results[0]
    for dim, size in enumerate(shape):
        # Scalars (literals, the bounds of clamp, the predicate of select_n) and dimensions of length 1 take part in no factor.
        inputs = {p: dim for p, other in enumerate(operands) if len(other) == len(shape) and other[dim] == size}
        building.add(size, "map", inputs, dict.fromkeys(range(len(results)), dim))
    return building.build()


def _broadcast_in_dim(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = _Rule(operands, results)
    source = {out: dim for dim, out in enumerate(params["broadcast_dimensions"])}
    for out, size in enumerate(results[0]):
        dim = source.get(out)
        shared = dim is not None and operands[0][dim] == size
        building.add(size, "map", {0: dim} if shared and dim is not None else {}, {0: out})
    return building.build()


def _transpose(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = _Rule(operands, results)
    for out, dim in enumerate(params["permutation"]):
        building.add(operands[0][dim], "map", {0: dim}, {0: out})
    return building.build()


def _reshape(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Walks both shapes from the left and pairs runs of dimensions with equal products."""
    if params.get("dimensions") is not None:
        return fixed(operands, results, params)
    building = _Rule(operands, results)
    before = [(dim, size) for dim, size in enumerate(operands[0]) if size != 1]
    after = [(dim, size) for dim, size in enumerate(results[0]) if size != 1]
    if math.prod(operands[0]) == 0:
        return fixed(operands, results, params)
    while before and after:
        left, right = [before.pop(0)], [after.pop(0)]
        while math.prod(size for _, size in left) != math.prod(size for _, size in right):
            if math.prod(size for _, size in left) < math.prod(size for _, size in right):
                left.append(before.pop(0))
            else:
                right.append(after.pop(0))
        # The major dimensions of both runs share a factor: its length is what both are a multiple of.
        major = math.gcd(left[0][1], right[0][1])
        building.add(major, "map", {0: left[0][0]}, {0: right[0][0]})
        for (dim, size), side in ((left[0], 0), (right[0], 1)):
            if size != major:
                building.add(size // major, "fixed", {0: dim} if side == 0 else {}, {0: dim} if side == 1 else {})
        for dim, size in left[1:]:
            building.add(size, "fixed", {0: dim}, {})
        for dim, size in right[1:]:
            building.add(size, "fixed", {}, {0: dim})
    return building.build()


def _squeeze(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = _Rule(operands, results)
    kept = [dim for dim in range(len(operands[0])) if dim not in params["dimensions"]]
    for out, dim in enumerate(kept):
        building.add(operands[0][dim], "map", {0: dim}, {0: out})
    return building.build()


def _expand_dims(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = _Rule(operands, results)
    kept = [dim for dim in range(len(results[0])) if dim not in params["dimensions"]]
    for dim, out in enumerate(kept):
        building.add(operands[0][dim], "map", {0: dim}, {0: out})
    return building.build()


def _reduce(combine: str) -> RuleFunction:
    def reduction(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
        building = _Rule(operands, results)
        axes = {axis % len(operands[0]) for axis in params["axes"]}
        out = 0
        for dim, size in enumerate(operands[0]):
            inputs = dict.fromkeys(range(len(operands)), dim)
            if dim in axes:
                building.add(size, "reduce" if combine else "fixed", inputs, {}, combine)
            else:
                building.add(size, "map", inputs, dict.fromkeys(range(len(results)), out))
                out += 1
        return building.build()

    return reduction


def _along(name: str) -> RuleFunction:
    """Primitives that work along one or several dimensions and map over the others; operands and results share a shape."""

    def worked(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
        if any(len(shape) != len(results[0]) for shape in (*operands, *results)):
            return fixed(operands, results, params)
        dims = params[name]
        rank = len(results[0])
        along = {int(dim) % rank for dim in (dims if isinstance(dims, tuple | list) else (dims,))}
        building = _Rule(operands, results)
        for dim, size in enumerate(results[0]):
            inputs = dict.fromkeys(range(len(operands)), dim)
            outputs = dict.fromkeys(range(len(results)), dim)
            if dim not in along:
                building.add(size, "map", inputs, outputs)
                continue
            for position, shape in enumerate(operands):
                building.add(shape[dim], "fixed", {position: dim}, {})
            for position, shape in enumerate(results):
                building.add(shape[dim], "fixed", {}, {position: dim})
        return building.build()

    return worked


def _fft(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    rank = len(operands[0])
    dims = tuple(range(rank - len(params["fft_lengths"]), rank))
    return _along("dims")(operands, results, {"dims": dims})


def _dot_general(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    (left_contract, right_contract), (left_batch, right_batch) = params["dimension_numbers"]
    building = _Rule(operands, results)
    out = 0
    for left, right in zip(left_batch, right_batch, strict=True):
        building.add(operands[0][left], "map", {0: left, 1: right}, {0: out})
        out += 1
    for position, (contract, batch) in enumerate(((left_contract, left_batch), (right_contract, right_batch))):
        for dim, size in enumerate(operands[position]):
            if dim not in contract and dim not in batch:
                building.add(size, "map", {position: dim}, {0: out})
                out += 1
    for left, right in zip(left_contract, right_contract, strict=True):
        building.add(operands[0][left], "reduce", {0: left, 1: right}, {}, "sum")
    return building.build()


def _conv(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    numbers = params["dimension_numbers"]
    lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    groups, batch_groups = params["feature_group_count"], params["batch_group_count"]
    building = _Rule(operands, results)
    if batch_groups > 1:
        # Batch groups: example group g of the left operand meets output channel group g only.
        building.add(batch_groups, "fixed", {0: lhs[0], 1: rhs[0]}, {0: out[1]})
        building.add(results[0][out[0]], "fixed", {0: lhs[0]}, {0: out[0]})
        building.add(operands[1][rhs[0]] // batch_groups, "fixed", {1: rhs[0]}, {0: out[1]})
        building.add(operands[0][lhs[1]], "reduce", {0: lhs[1], 1: rhs[1]}, {}, "sum")
    else:
        building.add(operands[0][lhs[0]], "map", {0: lhs[0]}, {0: out[0]})
        if groups > 1:
            building.add(groups, "map", {0: lhs[1], 1: rhs[0]}, {0: out[1]})
            building.add(operands[1][rhs[1]], "fixed", {0: lhs[1], 1: rhs[1]}, {})
            building.add(operands[1][rhs[0]] // groups, "fixed", {1: rhs[0]}, {0: out[1]})
        else:
            building.add(operands[0][lhs[1]], "reduce", {0: lhs[1], 1: rhs[1]}, {}, "sum")
            building.add(operands[1][rhs[0]], "map", {1: rhs[0]}, {0: out[1]})
    for index, (left, window, result) in enumerate(zip(lhs[2:], rhs[2:], out[2:], strict=True)):
        pointwise = (
            operands[1][window] == 1
            and params["window_strides"][index] == params["lhs_dilation"][index] == 1
            and tuple(params["padding"][index]) == (0, 0)
        )
        building.add(operands[1][window], "fixed", {1: window}, {})
        if pointwise:
            building.add(operands[0][left], "map", {0: left}, {0: result})
        else:
            building.add(operands[0][left], "halo", {0: left}, {})
            building.add(results[0][result], "halo", {}, {0: result})
    return building.build()


def _window(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Sliding windows (reduce_window, its gradients): a dimension with a window of 1 is mapped, the others carry a halo."""
    window = params["window_dimensions"]
    rank = len(window)
    building = _Rule(operands, results)
    tensors = [position for position, shape in enumerate(operands) if len(shape) == rank]
    for dim in range(rank):
        sizes = {operands[position][dim] for position in tensors} | {shape[dim] for shape in results}
        if window[dim] == 1 and len(sizes) == 1:
            building.add(sizes.pop(), "map", dict.fromkeys(tensors, dim), dict.fromkeys(range(len(results)), dim))
            continue
        for position in tensors:
            building.add(operands[position][dim], "halo", {position: dim}, {})
        for position, shape in enumerate(results):
            building.add(shape[dim], "halo", {}, {position: dim})
    return building.build()


def _same_size_or_fixed(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Pad, slice, concatenate, dynamic_slice ...: dimensions whose size nobody changes are mapped, the others stay whole."""
    del params
    building = _Rule(operands, results)
    rank = len(results[0])
    tensors = [position for position, shape in enumerate(operands) if len(shape) == rank]
    for dim in range(rank):
        sizes = {operands[position][dim] for position in tensors} | {results[0][dim]}
        if len(sizes) == 1:
            building.add(sizes.pop(), "map", dict.fromkeys(tensors, dim), {0: dim})
            continue
        for position in tensors:
            building.add(operands[position][dim], "fixed", {position: dim}, {})
        building.add(results[0][dim], "fixed", {}, {0: dim})
    return building.build()


def _concatenate(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    return _along("dimension")(operands, results, params)


def _dynamic_update_slice(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    del params
    building = _Rule(operands, results)
    for dim, size in enumerate(results[0]):
        whole = operands[1][dim] == size
        if whole:
            building.add(size, "map", {0: dim, 1: dim}, {0: dim})
        else:
            building.add(size, "fixed", {0: dim}, {0: dim})
            building.add(operands[1][dim], "fixed", {1: dim}, {})
    return building.build()


def _iota(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    del params
    building = _Rule(operands, results)
    for dim, size in enumerate(results[0]):
        building.add(size, "map", {}, {0: dim})
    return building.build()


def _random_bits(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    # One key makes the whole block; jax_threefry_partitionable lets every device make its own tile of it.
    if operands[0] != ():
        return fixed(operands, results, params)
    return _iota(operands, results, params)


def _gather(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Index batch dimensions and whole window dimensions are mapped; the indexed dimensions stay whole."""
    numbers = params["dimension_numbers"]
    if getattr(numbers, "operand_batching_dims", ()):
        return fixed(operands, results, params)
    operand, indices, out = operands[0], operands[1], results[0]
    building = _Rule(operands, results)
    windows = iter(dim for dim in range(len(operand)) if dim not in numbers.collapsed_slice_dims)
    batch = iter(range(len(indices) - 1))
    described: set[int] = set()
    for dim, size in enumerate(out):
        if dim not in numbers.offset_dims:
            building.add(size, "map", {1: next(batch)}, {0: dim})
            continue
        source = next(windows)
        described.add(source)
        if size == operand[source]:
            building.add(size, "map", {0: source}, {0: dim})
        else:
            building.add(operand[source], "fixed", {0: source}, {})
            building.add(size, "fixed", {}, {0: dim})
    for dim, size in enumerate(operand):
        if dim not in described:
            building.add(size, "fixed", {0: dim}, {})
    building.add(indices[-1], "fixed", {1: len(indices) - 1}, {})
    return building.build()


def _scatter(combine: str) -> RuleFunction:
    """Update window dimensions are mapped; the scattered dimensions stay whole; index batches reduce where updates add up."""

    def scattering(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
        numbers = params["dimension_numbers"]
        if getattr(numbers, "operand_batching_dims", ()):
            return fixed(operands, results, params)
        operand, indices, updates = operands
        building = _Rule(operands, results)
        windows = iter(dim for dim in range(len(operand)) if dim not in numbers.inserted_window_dims)
        batch = iter(range(len(indices) - 1))
        described: set[int] = set()
        for dim, size in enumerate(updates):
            if dim not in numbers.update_window_dims:
                building.add(size, "fixed", {1: next(batch), 2: dim}, {})
                continue
            target = next(windows)
            described.add(target)
            if size == operand[target]:
                building.add(size, "map", {0: target, 2: dim}, {0: target})
            else:
                building.add(size, "fixed", {2: dim}, {})
                building.add(operand[target], "fixed", {0: target}, {0: target})
        for dim, size in enumerate(operand):
            if dim not in described:
                building.add(size, "fixed", {0: dim}, {0: dim})
        building.add(indices[-1], "fixed", {1: len(indices) - 1}, {})
        return building.build()

    del combine
    return scattering


ELEMENTWISE = frozenset(
    """abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp clz complex conj
    convert_element_type copy copy_p cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igammac
    igamma_grad_a imag integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul ne neg nextafter not
    or polygamma population_count pow random_gamma_grad real reduce_precision regularized_incomplete_beta rem round rsqrt
    select_n shift_left shift_right_arithmetic shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh
    threefry2x32 xor zeta optimization_barrier device_put name pvary sharding_constraint mul_add""".split()
)

RULES: dict[str, RuleFunction] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "rev": _along("dimensions"),
    "reduce_sum": _reduce("sum"),
    "reduce_max": _reduce("max"),
    "reduce_min": _reduce("min"),
    "reduce_prod": _reduce("prod"),
    "reduce_and": _reduce("and"),
    "reduce_or": _reduce("or"),
    "reduce_xor": _reduce(""),
    "argmax": _reduce(""),
    "argmin": _reduce(""),
    "cumsum": _along("axis"),
    "cumprod": _along("axis"),
    "cummax": _along("axis"),
    "cummin": _along("axis"),
    "cumlogsumexp": _along("axis"),
    "sort": _along("dimension"),
    "fft": _fft,
    "dot_general": _dot_general,
    "conv_general_dilated": _conv,
    "reduce_window_sum": _window,
    "reduce_window_max": _window,
    "reduce_window_min": _window,
    "reduce_window": _window,
    "select_and_scatter_add": _window,
    "select_and_gather_add": _window,
    "pad": _same_size_or_fixed,
    "slice": _same_size_or_fixed,
    "dynamic_slice": _same_size_or_fixed,
    "concatenate": _concatenate,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter(""),
    "scatter-add": _scatter("sum"),
    "scatter_add": _scatter("sum"),
    "scatter_mul": _scatter("prod"),
    "scatter_min": _scatter("min"),
    "scatter_max": _scatter("max"),
    "iota": _iota,
    "random_bits": _random_bits,
    "random_wrap": fixed,
    "random_unwrap": fixed,
    "random_seed": fixed,
    "random_fold_in": fixed,
    "random_split": fixed,
    "random_clone": fixed,
    "top_k": lambda operands, results, params: _along("dims")(operands, results, {"dims": len(results[0]) - 1}),
}
