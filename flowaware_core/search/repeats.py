"""Repeated blocks: the part of a labelling problem that stands for the whole.

Nodes that look the same from where they stand get one colour (Weisfeiler and Leman's refinement). Nodes of a colour of their own
are what the repeated blocks hang on: the trunk of a deep network is one group of tensors and so one node. Without them the rest
falls into parts that see only them, and parts that are equal up to the numbering have equal best labels whatever the trunk
chooses: one of them, counted as often as there are, replaces all. That is exact, bounds included.

Reference: Weisfeiler and Leman, The reduction of a graph to canonical form and the algebra which appears therein, 1968.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence

Edges = Mapping[tuple[int, int], Hashable]
# Colours are refined so often at most: blocks that differ only further away are compared node by node anyway.
ROUNDS = 12


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Which nodes stand for the whole.

    Attributes:
        nodes: the representatives in order.
        times: per representative how many nodes it stands for.
        of: per node of the whole the position of its representative.
    """

    nodes: tuple[int, ...]
    times: tuple[int, ...]
    of: tuple[int, ...]

    @staticmethod
    def none(count: int) -> Repeats:
        """Every node stands for itself."""
        return Repeats(tuple(range(count)), (1,) * count, tuple(range(count)))


def repeats(kinds: Sequence[Hashable], edges: Edges) -> Repeats:
    """Finds equal parts.

    Args:
        kinds: per node everything that must agree for two nodes to be equal, their neighbours aside.
        edges: pair of nodes (smaller first) -> everything that must agree for two edges to be equal.
    """
    links: list[list[tuple[int, int]]] = [[] for _ in kinds]
    numbers: dict[Hashable, int] = {}
    for (i, j), kind in edges.items():
        links[i].append((2 * numbers.setdefault(kind, len(numbers)), j))
        links[j].append((2 * numbers[kind] + 1, i))
    colours = _colours(kinds, links)
    sizes: dict[int, int] = {}
    for colour in colours:
        sizes[colour] = sizes.get(colour, 0) + 1
    single = [sizes[colour] == 1 for colour in colours]
    first: dict[tuple[int, ...], list[list[int]]] = {}
    stands_for = list(range(len(kinds)))
    times = [1] * len(kinds)
    for part in _parts(single, links):
        part.sort(key=lambda node: (colours[node], node))
        known = first.setdefault(tuple(colours[node] for node in part), [])
        for other in known:
            if _equal(other, part, links):
                for mine, theirs in zip(part, other, strict=True):
                    stands_for[mine] = theirs
                    times[theirs] += 1
                break
        else:
            known.append(part)
    nodes = tuple(node for node, other in enumerate(stands_for) if node == other)
    position = {node: index for index, node in enumerate(nodes)}
    return Repeats(nodes, tuple(times[node] for node in nodes), tuple(position[node] for node in stands_for))


def _colours(kinds: Sequence[Hashable], links: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    colours = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
    count = len(numbers)
    for _ in range(ROUNDS):
        names: dict[Hashable, int] = {}
        views = (
            (colour, tuple(sorted([(kind, colours[other]) for kind, other in around])))
            for colour, around in zip(colours, links, strict=True)
        )
        colours = [names.setdefault(view, len(names)) for view in views]
        if len(names) == count:
            break
        count = len(names)
    return colours


def _parts(single: Sequence[bool], links: Sequence[Sequence[tuple[int, int]]]) -> Iterable[list[int]]:
    """Connected parts of what is left without the nodes of a colour of their own."""
    seen = list(single)
    for start in range(len(single)):
        if seen[start]:
            continue
        seen[start] = True
        part = [start]
        for node in part:
            for _, other in links[node]:
                if not seen[other]:
                    seen[other] = True
                    part.append(other)
        yield part


def _equal(one: Sequence[int], other: Sequence[int], links: Sequence[Sequence[tuple[int, int]]]) -> bool:
    """Whether the edges agree where the nodes of two parts are matched in order; nodes outside must be the same."""
    match = dict(zip(other, one, strict=True))
    return all(
        sorted(links[mine]) == sorted((kind, match.get(far, far)) for kind, far in links[theirs])
        for mine, theirs in zip(one, other, strict=True)
    )
