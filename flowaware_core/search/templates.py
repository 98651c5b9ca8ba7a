"""The plans people write by hand, as restrictions of the search space: they are its baselines and seed it.

data     every device holds the whole state; examples are spread over all devices.
fsdp     as data, and the state is spread too: every large tensor along its longest dimension over all devices.
tensor   weights are cut along channels over the innermost axis; examples are spread over the others.
"""

from __future__ import annotations

import math

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.placement import Assignment
from flowaware_core.graph.structure import Structure, tensors_of
from flowaware_core.search.problem import Filter, Restriction

# Below this many elements a tensor costs more to gather than it saves: hand-written FSDP leaves such tensors whole.
SMALL = 2**14


def data(graph: Graph, structure: Structure, mesh: Mesh) -> Restriction:
    """Examples over all axes, everything else whole."""
    return _spread(graph, structure, mesh, state=False)


def fsdp(graph: Graph, structure: Structure, mesh: Mesh) -> Restriction:
    """Examples over all axes; state along its longest dimension over all axes."""
    return _spread(graph, structure, mesh, state=True)


def tensor(graph: Graph, structure: Structure, mesh: Mesh) -> Restriction:
    """Examples over all axes but the innermost, which cuts every large weight along one of its two channel dimensions."""
    batch = batch_classes(graph, structure)
    weights = _state_groups(graph, structure)
    inner = len(mesh.axes) - 1

    def group(index: int) -> Filter:
        sizes, classes = structure.groups[index].sizes, structure.classes[index]
        batched = any(c in batch for c in classes)
        weight = index in weights and math.prod(sizes) >= SMALL and len(sizes) > 1

        def allowed(assignment: Assignment) -> bool:
            cut = assignment[inner]
            if cut >= 0 and classes[cut] in batch:
                return False
            if weight and cut not in (len(sizes) - 2, len(sizes) - 1):
                return False
            return all((dim >= 0 and classes[dim] in batch) if batched else dim < 0 for dim in assignment[:inner])

        return allowed

    def operator(candidate: Operator) -> Filter:
        examples = _batch_factors(candidate, structure, batch)

        def allowed(assignment: Assignment) -> bool:
            outer = all((factor in examples) if examples else factor < 0 for factor in assignment[:inner])
            return outer and assignment[inner] not in examples

        return allowed

    return Restriction(group, operator)


def _spread(graph: Graph, structure: Structure, mesh: Mesh, state: bool) -> Restriction:
    batch = batch_classes(graph, structure)
    kept = _state_groups(graph, structure)
    count = len(mesh.axes)

    def group(index: int) -> Filter:
        sizes, classes = structure.groups[index].sizes, structure.classes[index]
        examples = [dim for dim, c in enumerate(classes) if c in batch]
        if examples:
            return _only(examples[0], count)
        if state and index in kept and math.prod(sizes) >= SMALL:
            return _only(_longest(sizes, mesh), count)
        return _only(-1, count)

    def operator(candidate: Operator) -> Filter:
        return _only(min(_batch_factors(candidate, structure, batch), default=-1), count)

    return Restriction(group, operator)


def _only(dim: int, count: int) -> Filter:
    """All axes on one dimension (-1: none on any)."""
    wanted = (dim,) * count
    return lambda assignment: assignment == wanted


def _longest(sizes: tuple[int, ...], mesh: Mesh) -> int:
    """The longest dimension that all devices can share evenly, -1 for none."""
    fitting = [dim for dim, size in enumerate(sizes) if size % mesh.num_devices == 0]
    return max(fitting, key=lambda dim: (sizes[dim], dim), default=-1)


def batch_classes(graph: Graph, structure: Structure) -> frozenset[int]:
    """Classes of the dimensions along which the batch arguments hold examples."""
    found = set()
    for index in graph.batch:
        leaf = graph.inputs[index]
        group, dims = structure.group_of[leaf], structure.dims_of[leaf]
        if group >= 0 and dims and dims[0] >= 0:
            found.add(structure.classes[group][dims[0]])
    return frozenset(found)


def _state_groups(graph: Graph, structure: Structure) -> frozenset[int]:
    """Groups that hold carried arguments: parameters and optimizer state."""
    return frozenset(structure.group_of[graph.inputs[index]] for index in graph.carried) - {-1}


def _batch_factors(operator: Operator, structure: Structure, batch: frozenset[int]) -> frozenset[int]:
    found = set()
    for tensor, dims in tensors_of(operator):
        for dim, factors in enumerate(dims):
            logical = structure.dims_of[tensor][dim]
            if not factors or logical < 0 or not operator.rule.factors[factors[0]].shardable:
                continue
            if structure.classes[structure.group_of[tensor]][logical] in batch:
                found.add(factors[0])
    return frozenset(found)
