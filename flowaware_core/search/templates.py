"""The plans people write by hand, as restrictions of the search space: they are its baselines and seed it.

data         every device holds the whole state; examples are spread over all devices.
zero1        as data, and the state is kept spread over all devices: gathered once a step, gradients arrive spread.
fsdp         as data, and the state is spread too: every large tensor along its longest dimension over all devices.
tensor       weights are cut along channels over the innermost axis; examples are spread over the others.
fsdp_tensor  as tensor, and weights are cut along one more dimension over the other axes.
spatial      the innermost axis cuts one dimension of positions (image rows, tokens, residues, atoms) in all tensors that hold
             examples, the others the examples; the state is whole.
axial        as spatial, but each tensor is cut along whichever dimension of positions suits it, with exchanges in between.

Two more are not restrictions but other ways to choose (`strategies.py`): `alpa` and `xla`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Hashable

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.placement import Assignment
from flowaware_core.graph.structure import Structure, tensors_of
from flowaware_core.search.problem import Filter, Restriction

# Below this many elements a tensor costs more to gather than it saves: hand-written FSDP leaves such tensors whole.
SMALL = 2**14


@dataclasses.dataclass(frozen=True, eq=False)
class Roles:
    """What the templates tell apart.

    Attributes:
        structure: the program's.
        batch: classes of dimensions along which there are examples.
        channels: classes of the dimensions of the state.
        state: groups that hold carried arguments.
    """

    structure: Structure
    batch: frozenset[int]
    channels: frozenset[int]
    state: frozenset[int]

    @staticmethod
    def of(graph: Graph, structure: Structure) -> Roles:
        batch, state = batch_classes(graph, structure), _state_groups(graph, structure)
        channels = {c for index in state for c in structure.classes[index]}
        return Roles(structure, batch, frozenset(channels) - batch, state)

    def keys(self) -> list[Hashable]:
        """Per group and then per free operator: nodes of one key are treated alike by every template."""
        groups: list[Hashable] = [
            (index in self.state, tuple((c in self.batch, c in self.channels) for c in classes))
            for index, classes in enumerate(self.structure.classes)
        ]
        return [*groups, *((self.examples(operator), self.positions(operator)) for operator in self.structure.free)]

    def batched(self, index: int) -> list[int]:
        """The dimensions of a group along which it holds examples."""
        return [dim for dim, c in enumerate(self.structure.classes[index]) if c in self.batch]

    def weight(self, index: int) -> bool:
        """Whether a group holds state that is large enough to be cut."""
        sizes = self.structure.groups[index].sizes
        return index in self.state and math.prod(sizes) >= SMALL and len(sizes) > 1

    def examples(self, operator: Operator) -> frozenset[int]:
        """The factors of an operator that loop over examples."""
        return self._factors(operator, lambda c: c in self.batch)

    def positions(self, operator: Operator) -> frozenset[int]:
        """The factors that loop over neither examples nor channels."""
        return self._factors(operator, lambda c: c not in self.batch and c not in self.channels)

    def _factors(self, operator: Operator, wanted: Callable[[int], bool]) -> frozenset[int]:
        found = set()
        structure = self.structure
        for tensor, dims in tensors_of(operator):
            for dim, factors in enumerate(dims):
                logical = structure.dims_of[tensor][dim]
                if not factors or logical < 0 or not operator.rule.factors[factors[0]].shardable:
                    continue
                if wanted(structure.classes[structure.group_of[tensor]][logical]):
                    found.add(factors[0])
        return frozenset(found)


def data(roles: Roles, mesh: Mesh) -> Restriction:
    """Examples over all axes, everything else whole."""
    return _spread(roles, mesh, state=False)


def fsdp(roles: Roles, mesh: Mesh) -> Restriction:
    """Examples over all axes; state along its longest dimension over all axes."""
    return _spread(roles, mesh, state=True)


def zero1(roles: Roles, mesh: Mesh) -> Restriction:
    """As `fsdp`, and what operators read of the state is whole."""
    return dataclasses.replace(_spread(roles, mesh, state=True), view=_whole_state(roles, mesh))


def tensor(roles: Roles, mesh: Mesh) -> Restriction:
    """Examples over all axes but the innermost, which cuts every large weight along one of its two channel dimensions."""
    return _tensor(roles, mesh, state=False)


def fsdp_tensor(roles: Roles, mesh: Mesh) -> Restriction:
    """As `tensor`; the other axes all cut one dimension of every large weight."""
    return _tensor(roles, mesh, state=True)


def spatial(roles: Roles, mesh: Mesh) -> Restriction:
    """Examples over all axes but the innermost, which cuts the first dimension of positions that it divides."""
    return _positions(roles, mesh, first=True)


def axial(roles: Roles, mesh: Mesh) -> Restriction:
    """Examples over all axes but the innermost, which cuts any dimension of positions."""
    return _positions(roles, mesh, first=False)


def shared(roles: Roles, mesh: Mesh, devices: int) -> Restriction:
    """Examples over so many devices in all that holds any, wherever that can be; everything else is free."""

    def among(examples: Collection[int]) -> Filter:
        def allowed(assignment: Assignment) -> bool:
            cuts = [size for size, dim in zip(mesh.sizes, assignment, strict=True) if dim in examples]
            return not examples or math.prod(cuts) == devices

        return allowed

    group = lambda index: among(roles.batched(index))
    return Restriction(group, lambda operator: among(roles.examples(operator)), group)


def _spread(roles: Roles, mesh: Mesh, state: bool) -> Restriction:
    count = len(mesh.axes)

    def group(index: int) -> Filter:
        examples, sizes = roles.batched(index), roles.structure.groups[index].sizes
        if examples:
            return _only(examples[0], count)
        if state and index in roles.state and math.prod(sizes) >= SMALL:
            return _only(_longest(sizes, mesh), count)
        return _only(-1, count)

    def operator(candidate: Operator) -> Filter:
        return _only(min(roles.examples(candidate), default=-1), count)

    return Restriction(group, operator)


def _whole_state(roles: Roles, mesh: Mesh) -> Callable[[int], Filter]:
    def view(index: int) -> Filter:
        return _only(-1, len(mesh.axes)) if index in roles.state else lambda assignment: True

    return view


def _tensor(roles: Roles, mesh: Mesh, state: bool) -> Restriction:
    inner = len(mesh.axes) - 1

    def group(index: int) -> Filter:
        sizes, examples = roles.structure.groups[index].sizes, roles.batched(index)
        weight = roles.weight(index)

        def allowed(assignment: Assignment) -> bool:
            cut, outer = assignment[inner], assignment[:inner]
            if cut in examples or (weight and cut not in (len(sizes) - 2, len(sizes) - 1)):
                return False
            if weight and state and inner:
                return len(set(outer)) == 1 and outer[0] >= 0
            return all((dim in examples) if examples else dim < 0 for dim in outer)

        return allowed

    def operator(candidate: Operator) -> Filter:
        examples = roles.examples(candidate)

        def allowed(assignment: Assignment) -> bool:
            outer = all((factor in examples) if examples else factor < 0 for factor in assignment[:inner])
            cut = assignment[inner]
            return outer and cut not in examples and not (cut >= 0 and candidate.rule.factors[cut].borders)

        return allowed

    return Restriction(group, operator)


def _positions(roles: Roles, mesh: Mesh, first: bool) -> Restriction:
    inner, size = len(mesh.axes) - 1, mesh.sizes[-1]

    def group(index: int) -> Filter:
        classes, member = roles.structure.classes[index], roles.structure.groups[index]
        examples = roles.batched(index)
        if not examples:
            return _only(-1, inner + 1)
        free = [
            dim
            for dim, c in enumerate(classes)
            if c not in roles.batch
            and c not in roles.channels
            and member.shardable[dim]
            and member.sizes[dim] % size == 0
        ]
        inside = (free[:1] if first else free) or [-1]

        def allowed(assignment: Assignment) -> bool:
            return assignment[inner] in inside and all(dim in examples for dim in assignment[:inner])

        return allowed

    def operator(candidate: Operator) -> Filter:
        examples, positions = roles.examples(candidate), roles.positions(candidate)

        def allowed(assignment: Assignment) -> bool:
            outer = all((factor in examples) if examples else factor < 0 for factor in assignment[:inner])
            return outer and (assignment[inner] in positions or assignment[inner] < 0)

        return allowed

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
    """Groups that hold carried arguments: parameters and optimizer state, wherever that lies."""
    carried = [graph.inputs[index] for index in graph.carried]
    return frozenset(structure.group_of[tensor] for tensor in (*carried, *graph.hosted)) - {-1}
