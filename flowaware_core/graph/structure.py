"""What the data flow ties together: groups of tensors with one layout, and the places where a choice remains.

Elementwise operators, transposes and carried state want all their tensors cut alike. Following them through the whole program
(forward, backward and update) leaves a few hundred groups for ten thousand tensors; the dimensions of a group are the logical
dimensions of the program (batch, height, channels of a stage, ...). Every other operator either follows one of its tensors (a
reduction its operand, a broadcast its result) or has a choice of its own (matrix products, convolutions, reshapes).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from flowaware_core.graph.model import Graph, Operator, Tensor
from flowaware_core.graph.rules import Cut, Dims, Rule


@dataclasses.dataclass(frozen=True)
class Group:
    """Tensors that share a layout.

    Attributes:
        sizes: length of each logical dimension.
        shardable: how the dimension may be cut: not at all (a scan's leading dimension), or into equal shards only where a member
            is an argument or a result, whose shards JAX wants equal.
        members: tensor ids, smallest first.
    """

    sizes: tuple[int, ...]
    shardable: tuple[Cut, ...]
    members: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Structure:
    """The tied program.

    Attributes:
        groups: all groups; tensors without a dimension above 1 are in none.
        group_of: per tensor its group, -1 for none.
        dims_of: per tensor, per dimension, the logical dimension of its group (-1 for length 1).
        classes: per group, per logical dimension, the class it belongs to through the whole program: all dimensions that some
            operator loops over together, such as every tensor's batch dimension.
        tied: operators that follow their group entirely.
        anchored: operator id -> tensor whose layout decides the operator's.
        free: operators with a choice of their own.
    """

    groups: tuple[Group, ...]
    group_of: tuple[int, ...]
    dims_of: tuple[tuple[int, ...], ...]
    classes: tuple[tuple[int, ...], ...]
    tied: frozenset[int]
    anchored: Mapping[int, int]
    free: tuple[Operator, ...]


def analyse(graph: Graph) -> Structure:
    """Ties what can be tied, in program order."""
    outside = {*graph.inputs, *(output for output in graph.outputs if isinstance(output, int))}
    ties = _Ties(graph.tensors, outside)
    for index, output in graph.carried.items():
        result = graph.outputs[output]
        if isinstance(result, int):
            ties.tie(graph.inputs[index], result)
    tied: set[int] = set()
    operators = [operator for operator, _ in graph.walk()]
    for operator in operators:
        for outer, inner, skip in operator.ties:
            ties.tie(outer, inner, skip)
        if operator.subgraphs or (_uniform(operator, graph.tensors) and _tie_operator(ties, operator)):
            tied.add(operator.id)
    tied |= {operator.id for operator in operators if operator.id not in tied and _tie_rounds(ties, operator)}
    anchored: dict[int, int] = {}
    free: list[Operator] = []
    for operator in operators:
        if operator.id in tied:
            continue
        if all(ties.scalar(tensor) for tensor, _ in tensors_of(operator)):
            tied.add(operator.id)
            continue
        anchor = _anchor(operator, graph.tensors, ties)
        if anchor is not None:
            anchored[operator.id] = anchor
        else:
            free.append(operator)
    return ties.structure(operators, frozenset(tied), anchored, tuple(free))


def tensors_of(operator: Operator) -> Iterable[tuple[int, Dims]]:
    """The operator's tensors, literals left out, each with its dimensions in factors."""
    for operand, dims in zip(operator.operands, operator.rule.operands, strict=True):
        if isinstance(operand, int):
            yield operand, dims
    yield from zip(operator.results, operator.rule.results, strict=True)


def _alone(dims: Dims, shape: Sequence[int]) -> list[int] | None:
    """The factor of each dimension above 1, where each such dimension is exactly one factor."""
    found = []
    for factors, size in zip(dims, shape, strict=True):
        if size > 1:
            if len(factors) != 1:
                return None
            found.append(factors[0])
    return found


def _uniform(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether every tensor (scalars aside) consists of all factors, all of them mapped."""
    rule = operator.rule
    wanted = {index for index, factor in enumerate(rule.factors) if factor.size > 1}
    if not wanted or any(rule.factors[index].kind != "map" for index in wanted):
        return False
    for tensor, dims in tensors_of(operator):
        alone = _alone(dims, tensors[tensor].shape)
        if alone is None or (alone and set(alone) != wanted):
            return False
    return True


def _tie_operator(ties: _Ties, operator: Operator) -> bool:
    """Ties all tensors to the first result; False where a tensor would meet itself with its dimensions swapped."""
    reference, reference_dims = operator.results[0], operator.rule.results[0]
    place = {factors[0]: dim for dim, factors in enumerate(reference_dims) if factors}
    pairs = []
    for tensor, dims in tensors_of(operator):
        matching = [
            (dim, place[factors[0]]) for dim, factors in enumerate(dims) if factors and ties.above_one(tensor, dim)
        ]
        if tensor != reference and matching:
            pairs.append((tensor, matching))
    if not all(ties.compatible(tensor, reference, matching) for tensor, matching in pairs):
        return False
    return all(ties.unite(tensor, reference, matching) for tensor, matching in pairs)


def _tie_rounds(ties: _Ties, operator: Operator) -> bool:
    """Ties a reshape that groups the rounds of a loop, or joins groups of them, but for the leading dimensions: they stay whole."""
    if operator.primitive != "reshape" or len(operator.inputs) != 1:
        return False
    operand, result = operator.inputs[0], operator.results[0]
    left, right = operator.rule.operands[0], operator.rule.results[0]
    place = {dims[0]: dim for dim, dims in enumerate(right) if len(dims) == 1 and ties.above_one(result, dim)}
    matching = [
        (dim, place[dims[0]])
        for dim, dims in enumerate(left)
        if len(dims) == 1 and dims[0] in place and ties.above_one(operand, dim)
    ]
    if not matching:
        return False
    rest = {operand: range(matching[0][0]), result: range(matching[0][1])}
    whole = any(all(ties.whole(tensor, dim) for dim in dims) for tensor, dims in rest.items())
    alike = matching == list(zip(range(matching[0][0], len(left)), range(matching[0][1], len(right)), strict=False))
    if not whole or not alike or not ties.compatible(operand, result, matching):
        return False
    for tensor, dims in rest.items():
        ties.keep_whole(tensor, dims)
    return ties.unite(operand, result, matching)


def _anchor(operator: Operator, tensors: Sequence[Tensor], ties: _Ties) -> int | None:
    """A tensor that shows every shardable factor and no other: its layout is a layout of the operator.

    Operators that run locally or exchange borders want equal shards, which a layout does not promise: they choose themselves.
    """
    rule: Rule = operator.rule
    if rule.local or any(factor.borders for factor in rule.factors):
        return None
    wanted = {index for index, factor in enumerate(rule.factors) if factor.shardable}
    if not wanted:
        return None
    for tensor, dims in tensors_of(operator):
        alone = _alone(dims, tensors[tensor].shape)
        if alone is not None and set(alone) == wanted and ties.distinct(tensor):
            return tensor
    return None


class _Ties:
    """Union-find over groups that keeps how the dimensions of tensors and groups correspond."""

    def __init__(self, tensors: Sequence[Tensor], outside: AbstractSet[int]):
        self._outside = outside
        self._shapes = [tensor.shape for tensor in tensors]
        self._group = list(range(len(tensors)))
        self._members: list[list[int]] = [[tensor.id] for tensor in tensors]
        self._sizes: list[list[int]] = []
        self._whole: list[set[int]] = [set() for _ in tensors]
        self._dims: list[list[int]] = []
        for tensor in tensors:
            dims: list[int] = []
            sizes: list[int] = []
            for size in tensor.shape:
                dims.append(len(sizes) if size > 1 else -1)
                if size > 1:
                    sizes.append(size)
            self._sizes.append(sizes)
            self._dims.append(dims)

    def above_one(self, tensor: int, dim: int) -> bool:
        return self._shapes[tensor][dim] > 1

    def whole(self, tensor: int, dim: int) -> bool:
        """Whether a dimension may not be cut."""
        return self._dims[tensor][dim] < 0 or self._dims[tensor][dim] in self._whole[self._group[tensor]]

    def scalar(self, tensor: int) -> bool:
        return all(size == 1 for size in self._shapes[tensor])

    def distinct(self, tensor: int) -> bool:
        """Whether the tensor's dimensions are different logical dimensions (a matrix added to its transpose has only one)."""
        dims = [dim for dim in self._dims[tensor] if dim >= 0]
        return len(set(dims)) == len(dims)

    def tie(self, outer: int, inner: int, skip: int = 0) -> None:
        """Ties two tensors dimension by dimension; the first `skip` dimensions of `outer` stay whole."""
        matching = [
            (dim + skip, dim)
            for dim in range(len(self._shapes[inner]))
            if self._shapes[inner][dim] > 1 and self._shapes[outer][dim + skip] == self._shapes[inner][dim]
        ]
        self.keep_whole(outer, range(skip))
        if not (self.compatible(outer, inner, matching) and self.unite(outer, inner, matching)):
            # A loop whose body swaps dimensions cannot have equal layouts at both ends unless both are whole.
            self.keep_whole(outer, range(len(self._shapes[outer])))
            self.keep_whole(inner, range(len(self._shapes[inner])))

    def keep_whole(self, tensor: int, dims: Iterable[int]) -> None:
        self._whole[self._group[tensor]] |= {self._dims[tensor][dim] for dim in dims if self._dims[tensor][dim] >= 0}

    def compatible(self, left: int, right: int, matching: Sequence[tuple[int, int]]) -> bool:
        """Whether uniting would keep every logical dimension apart from the others of its group."""
        mine, theirs = self._group[left], self._group[right]
        pairs = {(self._dims[left][one], self._dims[right][other]) for one, other in matching}
        if mine == theirs:
            return all(one == other for one, other in pairs)
        return len({one for one, _ in pairs}) == len(pairs) == len({other for _, other in pairs})

    def unite(self, left: int, right: int, matching: Sequence[tuple[int, int]]) -> bool:
        mine, theirs = self._group[left], self._group[right]
        if mine == theirs:
            return all(self._dims[left][one] == self._dims[right][other] for one, other in matching)
        rename = {self._dims[left][one]: self._dims[right][other] for one, other in matching}
        small, large = mine, theirs
        if len(self._members[mine]) > len(self._members[theirs]):
            small, large = theirs, mine
            rename = {other: one for one, other in rename.items()}
        for dim, size in enumerate(self._sizes[small]):
            if dim not in rename:
                rename[dim] = len(self._sizes[large])
                self._sizes[large].append(size)
        self._whole[large] |= {rename[dim] for dim in self._whole[small]}
        for tensor in self._members[small]:
            self._group[tensor] = large
            self._dims[tensor] = [rename[dim] if dim >= 0 else -1 for dim in self._dims[tensor]]
        self._members[large] += self._members[small]
        self._members[small] = []
        return True

    def structure(
        self, operators: Sequence[Operator], tied: frozenset[int], anchored: dict[int, int], free: tuple[Operator, ...]
    ) -> Structure:
        numbers: dict[int, int] = {}
        groups: list[Group] = []
        group_of: list[int] = []
        for group in self._group:
            if not self._sizes[group]:
                group_of.append(-1)
                continue
            if group not in numbers:
                numbers[group] = len(groups)
                members = tuple(sorted(self._members[group]))
                cut = Cut.UNEVEN if self._outside.isdisjoint(members) else Cut.EVEN
                whole = self._whole[group]
                shardable = tuple(Cut.WHOLE if dim in whole else cut for dim in range(len(self._sizes[group])))
                groups.append(Group(tuple(self._sizes[group]), shardable, members))
            group_of.append(numbers[group])
        dims_of = tuple(tuple(dims) for dims in self._dims)
        classes = _classes(operators, tied, groups, group_of, dims_of)
        return Structure(tuple(groups), tuple(group_of), dims_of, classes, tied, anchored, free)


def _classes(
    operators: Sequence[Operator],
    tied: frozenset[int],
    groups: Sequence[Group],
    group_of: Sequence[int],
    dims_of: Sequence[Sequence[int]],
) -> tuple[tuple[int, ...], ...]:
    """Unites logical dimensions that share a factor of some operator; classes are numbered in order of appearance."""
    starts = [0]
    for group in groups:
        starts.append(starts[-1] + len(group.sizes))
    parent = list(range(starts[-1]))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for operator in operators:
        if operator.id in tied:
            continue
        first: dict[int, int] = {}
        for tensor, dims in tensors_of(operator):
            for dim, factors in enumerate(dims):
                if not factors or dims_of[tensor][dim] < 0 or not operator.rule.factors[factors[0]].shardable:
                    continue
                node = starts[group_of[tensor]] + dims_of[tensor][dim]
                if factors[0] in first:
                    parent[find(node)] = find(first[factors[0]])
                else:
                    first[factors[0]] = node
    numbers: dict[int, int] = {}
    return tuple(
        tuple(numbers.setdefault(find(starts[index] + dim), len(numbers)) for dim in range(len(group.sizes)))
        for index, group in enumerate(groups)
    )
