"""Which devices take part in a collective together, in each of the ways XLA writes it."""

from __future__ import annotations

import math
import re

import numpy as np

Groups = tuple[tuple[int, ...], ...]

MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^)]*\)?[^)]*)\))? \{([^}]*)\}")
TILES = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
LISTS = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")
AXIS = re.compile(r"'?([^':,=]+)'?(?::\((\d+)\)(\d+))?")


def integers(text: str) -> list[int]:
    """The integers of "1,2,3"."""
    return [int(number) for number in text.split(",") if number.strip()]


def replica_groups(attributes: str, num_devices: int) -> Groups | None:
    """The groups an instruction's attributes name, devices in the order of the collective; None if they name none.

    Reads lists `{{0,1},{2,3}}` (`{}` is all devices), iota tiles `[4,2]<=[2,4]T(1,0)`, and axes of a mesh
    `mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}` with sub-axes `'b':(1)2` (size 2 inside a factor of 1).
    """
    if found := TILES.search(attributes):
        return tiles(*found.groups())
    if found := LISTS.search(attributes):
        lists = re.findall(r"\{([\d,]*)\}", found.group(1))
        return tuple(tuple(integers(group)) for group in lists) or (tuple(range(num_devices)),)
    if found := MESH.search(attributes):
        return mesh_groups(*found.groups())
    return None


def tiles(shape: str, source: str, permutation: str | None) -> Groups:
    """`[shape]<=[source]T(permutation)`: count up in `source`, transpose, reshape to (group, member)."""
    grid = np.arange(math.prod(integers(source))).reshape(integers(source))
    if permutation:
        grid = grid.transpose(integers(permutation))
    rows = grid.reshape(integers(shape)[0], -1)
    return tuple(tuple(row) for row in rows.tolist())


def mesh_groups(axes: str, device_ids: str | None, grouped: str) -> Groups:
    """The groups along the `grouped` axes (or parts of axes) of a mesh."""
    sizes = {name.strip("'"): int(size) for name, size in (axis.rsplit("=", 1) for axis in axes.split(","))}
    ids = np.arange(math.prod(sizes.values()))
    if device_ids and (found := re.match(r"\[([\d,]+)\](?:<=\[[\d,]*\])?(?:T\(([\d,]+)\))?$", device_ids)):
        ids = ids.reshape(integers(found.group(1)))
        ids = ids.transpose(integers(found.group(2))) if found.group(2) else ids
    elif device_ids:
        ids = np.array(integers(re.sub(r"[^\d,]", "", device_ids)))
    wanted = [(name, int(before or 1), int(size or 0) or sizes[name]) for name, before, size in AXIS.findall(grouped)]
    # Cut every axis where a wanted part of it begins or ends, so that each wanted part is whole dimensions of `shape`.
    shape: list[int] = []
    position: dict[tuple[str, int], int] = {}
    for name, total in sizes.items():
        cuts = sorted({1, total} | {cut for n, before, size in wanted if n == name for cut in (before, before * size)})
        for inner, outer in zip(cuts, cuts[1:], strict=False):
            position[name, inner] = len(shape)
            shape.append(outer // inner)
    chosen = [
        place
        for n, before, size in wanted
        for (m, at), place in position.items()
        if m == n and before <= at < before * size
    ]
    rest = [place for place in range(len(shape)) if place not in chosen]
    rows = ids.reshape(shape).transpose(rest + chosen).reshape(-1, math.prod(shape[place] for place in chosen))
    return tuple(tuple(row) for row in rows.tolist())


def pairs(attributes: str) -> Groups | None:
    """The (source, target) pairs of a permute; None if the attributes name none."""
    found = PAIRS.search(attributes)
    if found is None:
        return None
    return tuple((int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", found.group(1)))
