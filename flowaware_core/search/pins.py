"""Pins: what a person decided before the search, as a restriction of it."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Sequence

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import Cluster
from flowaware_core.graph.model import Graph
from flowaware_core.graph.placement import Assignment
from flowaware_core.graph.structure import Structure
from flowaware_core.search.problem import Filter, Restriction


@dataclasses.dataclass(frozen=True)
class Pin:
    """Keeps one dimension of an argument, and of every tensor tied to it, on one level of the cluster.

    Attributes:
        argument: the argument's leaf as `describe` names it, such as "0['w']".
        dim: which of its dimensions.
        axis: the name of a level of the cluster, or None to keep the dimension whole.
    """

    argument: str
    dim: int
    axis: str | None


def checked(graph: Graph, structure: Structure, cluster: Cluster, pins: Sequence[Pin]) -> None:
    """Raises ValueError for a pin that names nothing, or that no plan can follow."""
    levels = {level.name: level.size for level in cluster.levels}
    for pin in pins:
        if pin.argument not in graph.input_names:
            near = difflib.get_close_matches(pin.argument, graph.input_names, 3, 0.0)
            raise ValueError(f"the pin is on argument {pin.argument!r}; the nearest of this task are {', '.join(near)}")
        leaf = graph.inputs[graph.input_names.index(pin.argument)]
        shape = graph.tensors[leaf].shape
        if not 0 <= pin.dim < len(shape):
            raise ValueError(f"the pin is on dimension {pin.dim} of {pin.argument}, which has the shape {shape}")
        if pin.axis is None:
            continue
        if pin.axis not in levels:
            raise ValueError(f"the pin is on axis {pin.axis!r}; the cluster has the levels {', '.join(levels)}")
        group, logical = structure.group_of[leaf], structure.dims_of[leaf][pin.dim]
        if logical < 0 or not structure.groups[group].shardable[logical]:
            raise ValueError(f"dimension {pin.dim} of {pin.argument} cannot be split: the program needs it whole")
        if shape[pin.dim] % levels[pin.axis]:
            raise ValueError(
                f"dimension {pin.dim} of {pin.argument} is {shape[pin.dim]} long, which the {levels[pin.axis]} "
                f"{pin.axis}s of the cluster do not divide; pin a dimension that they divide"
            )


def pinned_groups(
    graph: Graph, structure: Structure, pins: Sequence[Pin]
) -> dict[int, tuple[tuple[int, str | None], ...]]:
    """Group -> the logical dimensions that are pinned, each with the level it is on."""
    found: dict[int, tuple[tuple[int, str | None], ...]] = {}
    for pin in pins:
        leaf = graph.inputs[graph.input_names.index(pin.argument)]
        group, logical = structure.group_of[leaf], structure.dims_of[leaf][pin.dim]
        if group >= 0 and logical >= 0:
            found[group] = (*found.get(group, ()), (logical, pin.axis))
    return found


def pinned(graph: Graph, structure: Structure, mesh: Mesh, pins: Sequence[Pin]) -> Restriction:
    """What the pins leave to choose on a mesh.

    Raises:
        ValueError: the pins contradict each other.
    """
    wanted = {
        group: [(logical, None if axis is None else _axes(mesh, axis)) for logical, axis in places]
        for group, places in pinned_groups(graph, structure, pins).items()
    }
    for group, demands in wanted.items():
        if not _possible(demands, structure.groups[group].sizes, mesh):
            names = ", ".join(pin.argument for pin in pins)
            raise ValueError(f"the pins on {names} put one axis on two dimensions; take one of them away")

    def group_filter(index: int) -> Filter:
        return lambda assignment: all(_follows(assignment, *demand) for demand in wanted.get(index, ()))

    return Restriction(group_filter, lambda operator: lambda assignment: True)


def _axes(mesh: Mesh, level: str) -> tuple[int, ...]:
    """The axes of a level, which a mesh may have split in two."""
    return tuple(index for index, name in enumerate(mesh.names) if name == level or name.rpartition("_")[0] == level)


def _follows(assignment: Assignment, logical: int, axes: tuple[int, ...] | None) -> bool:
    if axes is None:
        return logical not in assignment
    return all(assignment[axis] == logical for axis in axes)


def _possible(demands: Sequence[tuple[int, tuple[int, ...] | None]], sizes: Sequence[int], mesh: Mesh) -> bool:
    """Whether no axis is wanted twice and every dimension can hold its axes."""
    holder: dict[int, int] = {}
    for logical, axes in demands:
        for axis in axes or ():
            if holder.setdefault(axis, logical) != logical:
                return False
    held = {logical: [axis for axis, holds in holder.items() if holds == logical] for logical in holder.values()}
    return all(sizes[dim] % math.prod(mesh.sizes[axis] for axis in axes) == 0 for dim, axes in held.items())
