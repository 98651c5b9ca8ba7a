"""A program in words, before any plan: its logical dimensions, where they conflict, the blocks it repeats, its backbone."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

from flowaware_core.explain import size
from flowaware_core.graph.blocks import Blocks, conflicts, repeated
from flowaware_core.graph.model import Graph, Operator, Subgraph, Tensor
from flowaware_core.graph.structure import Structure
from flowaware_core.program import Program

# So many dimensions, conflicts and blocks are listed.
LISTED = 20
# So many places are named for one dimension.
NAMED = 3


@dataclasses.dataclass(frozen=True)
class Dimension:
    """A dimension that runs through the program.

    Attributes:
        name: how the outline calls it.
        lengths: of the dimensions of tensors that belong to it, the most frequent first.
        places: (argument, dimension) of the arguments that have it.
        tensors: how many tensors have it.
        bytes: of these tensors.
    """

    name: str
    lengths: tuple[int, ...]
    places: tuple[tuple[str, int], ...]
    tensors: int
    bytes: int


def outline(program: Program) -> str:
    """The program for a person. A pin names a dimension as the outline does: by an argument that has it."""
    graph, structure = program.graph, program.structure
    names = _names(graph, structure)
    looped = graph.num_operators - len(graph.operators)
    lines = [
        f"{program.task.name}: {graph.num_operators} operators ({looped} in loops and branches), {len(graph.tensors)} tensors"
        f" in {len(structure.groups)} groups of one layout each",
        "Logical dimensions, those of the largest tensors first:",
    ]
    found = dimensions(graph, structure)
    lines += [f"  {line}" for line in map(_dimension, found[:LISTED])]
    if len(found) > LISTED:
        lines.append(f"  and {len(found) - LISTED} more")
    lines += _conflicts(structure, names)
    lines += _blocks(graph, repeated(graph))
    return "\n".join(lines)


def dimensions(graph: Graph, structure: Structure) -> list[Dimension]:
    """All logical dimensions, those of the largest tensors first."""
    names = _names(graph, structure)
    lengths: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    members: dict[int, set[int]] = collections.defaultdict(set)
    places: dict[int, list[tuple[str, int]]] = collections.defaultdict(list)
    for tensor, dim, number in _members(graph.tensors, structure):
        lengths[number][tensor.shape[dim]] += 1
        members[number].add(tensor.id)
    for leaf, name in zip(graph.inputs, graph.input_names, strict=True):
        for tensor, dim, number in _members([graph.tensors[leaf]], structure):
            del tensor
            places[number].append((name, dim))
    found = [
        Dimension(
            names[number],
            tuple(length for length, _ in lengths[number].most_common()),
            tuple(places[number]),
            len(members[number]),
            sum(graph.tensors[tensor].bytes for tensor in members[number]),
        )
        for number in lengths
    ]
    return sorted(found, key=lambda dimension: (-dimension.bytes, dimension.name))


def _members(tensors: Sequence[Tensor], structure: Structure) -> Iterator[tuple[Tensor, int, int]]:
    """Each dimension of each tensor with the class it belongs to."""
    for tensor in tensors:
        group = structure.group_of[tensor.id]
        for dim, logical in enumerate(structure.dims_of[tensor.id]):
            if group >= 0 and logical >= 0:
                yield tensor, dim, structure.classes[group][logical]


def _names(graph: Graph, structure: Structure) -> dict[int, str]:
    """d0, d1, ... in order of appearance in the program."""
    names: dict[int, str] = {}
    for _, _, number in _members(graph.tensors, structure):
        names.setdefault(number, f"d{len(names)}")
    return names


def _dimension(dimension: Dimension) -> str:
    lengths = "/".join(map(str, dimension.lengths[:NAMED])) + ("/..." if len(dimension.lengths) > NAMED else "")
    shown = [f"dimension {dim} of {name}" for name, dim in dimension.places[:NAMED]]
    more = len(dimension.places) - NAMED
    where = "; " + ", ".join(shown) + (f" and {more} more arguments" if more > 0 else "") if shown else ""
    return f"{dimension.name:<5} length {lengths}: {dimension.tensors} tensors of {size(dimension.bytes)}{where}"


def _conflicts(structure: Structure, names: dict[int, str]) -> list[str]:
    """Where one dimension meets itself, counted by line."""
    counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for operator, number in conflicts(structure):
        counts[names[number], operator.primitive, operator.source] += 1
    if not counts:
        return ["Conflicts: none; no operator has one dimension twice"]
    lines = ["Conflicts, where a dimension meets itself and only one of the two can be split over an axis:"]
    for (name, primitive, source), count in counts.most_common(LISTED):
        lines.append(f"  {name} twice in {primitive} at {source}" + (f", {count} times" if count > 1 else ""))
    if len(counts) > LISTED:
        lines.append(f"  and {len(counts) - LISTED} more lines")
    return lines


def _blocks(graph: Graph, found: Sequence[Blocks]) -> list[str]:
    loops = [(operator, body.repeat) for operator, body in _loops(graph) if body.repeat > 1]
    if not found and not loops:
        return ["Repeated blocks: none", "Backbone: none, for want of repeated blocks"]
    lines = ["Repeated blocks, each planned once:"]
    largest = sorted(found, key=lambda blocks: -blocks.length * blocks.count)[:LISTED]
    for blocks in sorted(largest, key=lambda blocks: blocks.first.id):
        source = blocks.first.source
        lines.append(f"  {blocks.count} blocks of {blocks.length} operators from {blocks.first.primitive} at {source}")
    for operator, repeat in loops[:LISTED]:
        lines.append(f"  a loop of {repeat} rounds at {operator.source}")
    trunk = collections.Counter(
        (graph.tensors[tensor].dtype, graph.tensors[tensor].shape)
        for blocks in largest
        for tensor in blocks.passed
        if graph.tensors[tensor].shape
    )
    lines.append(
        "Backbone, what passes from block to block:" if trunk else "Backbone: nothing passes between the blocks"
    )
    for (dtype, shape), count in trunk.most_common(LISTED):
        lines.append(f"  {dtype}[{', '.join(map(str, shape))}]" + (f" in {count} kinds of blocks" if count > 1 else ""))
    return lines


def _loops(graph: Graph) -> Iterator[tuple[Operator, Subgraph]]:
    for operator, _ in graph.walk():
        for body in operator.subgraphs:
            yield operator, body
