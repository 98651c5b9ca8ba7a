"""Rules of primitives that move elements about: broadcasts, reshapes, slices, joins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flowaware_core.graph.rules.factors import Building, Rule, Shape, fixed, mapped_except


def broadcast_in_dim(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = Building(operands, results)
    source = {out: dim for dim, out in enumerate(params["broadcast_dimensions"])}
    for out, size in enumerate(results[0]):
        dim = source.get(out)
        shared = dim is not None and operands[0][dim] == size
        building.add(size, "map", {0: dim} if shared and dim is not None else {}, {0: out})
    return building.build()


def transpose(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = Building(operands, results)
    for out, dim in enumerate(params["permutation"]):
        building.add(operands[0][dim], "map", {0: dim}, {0: out})
    return building.build()


def reshape(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Walks both shapes from the left and pairs runs of dimensions with equal products."""
    if params.get("dimensions") is not None or math.prod(operands[0]) == 0:
        return fixed(operands, results, params)
    building = Building(operands, results)
    before = [(dim, size) for dim, size in enumerate(operands[0]) if size != 1]
    after = [(dim, size) for dim, size in enumerate(results[0]) if size != 1]
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


def squeeze(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = Building(operands, results)
    dropped = {dim % len(operands[0]) for dim in params["dimensions"]}
    kept = [dim for dim in range(len(operands[0])) if dim not in dropped]
    for out, dim in enumerate(kept):
        building.add(operands[0][dim], "map", {0: dim}, {0: out})
    return building.build()


def expand_dims(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = Building(operands, results)
    kept = [dim for dim in range(len(results[0])) if dim not in params["dimensions"]]
    for dim, out in enumerate(kept):
        building.add(operands[0][dim], "map", {0: dim}, {0: out})
    return building.build()


def stack(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Operands of one shape along a new dimension."""
    building = Building(operands, results)
    axis = params["axis"] % len(results[0])
    for dim, size in enumerate(operands[0]):
        building.add(size, "map", dict.fromkeys(range(len(operands)), dim), {0: dim + (dim >= axis)})
    return building.fill(operands, results).build()


def unstack(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    building = Building(operands, results)
    axis = params["axis"] % len(operands[0])
    for dim, size in enumerate(results[0]):
        building.add(size, "map", {0: dim + (dim >= axis)}, dict.fromkeys(range(len(results)), dim))
    return building.fill(operands, results).build()


def tile(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Dimensions that are not repeated are mapped."""
    return mapped_except(operands, results, [dim for dim, times in enumerate(params["reps"]) if times != 1])


def split(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    return mapped_except(operands, results, [params["axis"]])


def concatenate(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    return mapped_except(operands, results, [params["dimension"]])


def pad(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """A dimension without padding is mapped; one that is padded and cut to the same length is not."""
    changed = [dim for dim, padding in enumerate(params["padding_config"]) if tuple(padding) != (0, 0, 0)]
    return mapped_except(operands, results, changed)


def whole_dimensions(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Slices: a dimension taken in full is mapped, the others stay whole."""
    del params
    return mapped_except(operands, results, [d for d, size in enumerate(results[0]) if operands[0][d] != size])


def dynamic_update_slice(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """A dimension that is replaced in full is mapped; one that is replaced in part stays whole."""
    del params
    building = Building(operands, results)
    for dim, size in enumerate(results[0]):
        if operands[1][dim] == size:
            building.add(size, "map", {0: dim, 1: dim}, {0: dim})
        else:
            building.add(size, "fixed", {0: dim}, {0: dim})
    return building.fill(operands, results).build()


def bitcast_convert_type(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """To narrower elements adds a last dimension, to wider ones takes it away."""
    building = Building(operands, results)
    for dim in range(min(len(operands[0]), len(results[0]))):
        building.add(operands[0][dim], "map", {0: dim}, {0: dim})
    return building.fill(operands, results).build()


def created(operands: Sequence[Shape], results: Sequence[Shape], params: dict[str, Any]) -> Rule:
    """Values made from nothing: every device makes its own part."""
    del params
    building = Building(operands, results)
    for dim, size in enumerate(results[0]):
        building.add(size, "map", {}, {0: dim})
    return building.fill(operands, results).build()
