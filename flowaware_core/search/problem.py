"""The choices inside one program as a labelling problem.

One node per group of tensors, per free operator and per view; its labels are the assignments of mesh axes it may take. Node costs
are the time of the work it stands for, edge costs the time of the collectives between what one node offers and the other wants.
Of nodes that repeat only one is in the problem, counted as often as it stands for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from flowaware_core.cluster.mesh import Mesh
from flowaware_core.cluster.model import Device
from flowaware_core.cost.relaxed import Relaxed
from flowaware_core.cost.resharding import Chains, Resharding
from flowaware_core.graph.model import Graph, Operator
from flowaware_core.graph.placement import Assignment, Choices
from flowaware_core.graph.structure import Structure
from flowaware_core.search.pricing import Labels, Pricing
from flowaware_core.search.repeats import Repeats, repeats
from flowaware_core.search.space import group_assignments, operator_assignments
from flowaware_core.search.terms import Terms, terms

Filter = Callable[[Assignment], bool]


def _anything(assignment: Assignment) -> bool:
    del assignment
    return True


@dataclasses.dataclass(frozen=True)
class Restriction:
    """Which labels a hand-written strategy leaves: to a group or a view, by the index of its group, or to a free operator."""

    group: Callable[[int], Filter]
    operator: Callable[[Operator], Filter]
    view: Callable[[int], Filter] = lambda index: _anything


@dataclasses.dataclass(frozen=True, eq=False)
class Outline:
    """A program as terms, whatever the mesh, and which of its nodes stand for the others."""

    graph: Graph
    structure: Structure
    terms: Terms
    repeats: Repeats

    @staticmethod
    def of(graph: Graph, structure: Structure, roles: Sequence[Hashable], collapse: bool = True) -> Outline:
        """Finds the terms and what repeats.

        Args:
            graph, structure: the program.
            roles: per group and then per free operator what the templates tell apart.
            collapse: False keeps every node.
        """
        found = terms(graph, structure)
        if not collapse:
            return Outline(graph, structure, found, Repeats.none(len(found.nodes)))
        start = found.groups + len(found.operators)
        kinds: list[Hashable] = [(group.sizes, group.shardable) for group in structure.groups]
        kinds += [operator.rule.factors for operator in structure.free]
        kinds += [kinds[structure.group_of[tensor]] for tensor in found.views]
        roles = [*roles, *(roles[structure.group_of[tensor]] for tensor in found.views)]
        whole = [
            ((node >= found.groups) + (node >= start), kind, role, frozenset(found.nodes[node].items()))
            for node, (kind, role) in enumerate(zip(kinds, roles, strict=True))
        ]
        edges = {pair: frozenset(counts.items()) for pair, counts in found.edges.items()}
        return Outline(graph, structure, found, repeats(whole, edges))

    @property
    def count(self) -> int:
        """Number of nodes of the whole."""
        return len(self.terms.nodes)

    def group(self, node: int) -> int:
        """The group of a node that is one or a view of one; -1 for an operator."""
        if node < self.terms.groups:
            return node
        view = node - self.terms.groups - len(self.terms.operators)
        return self.structure.group_of[self.terms.views[view]] if view >= 0 else -1

    def labels(self, mesh: Mesh, alike: bool = False) -> tuple[Labels, ...]:
        """The labels of every representative; nodes of equal lengths share one tuple. `alike` as in `assignments`."""
        whole = mesh if alike else None
        cache: dict[Hashable, Labels] = {}
        found = []
        for node in self.repeats.nodes:
            index = self.group(node)
            if index >= 0:
                group = self.structure.groups[index]
                key: Hashable = (group.sizes, group.shardable)
                if key not in cache:
                    cache[key] = group_assignments(group, mesh.sizes, whole)
            else:
                operator = self.structure.free[node - self.terms.groups]
                key = operator.rule.factors
                if key not in cache:
                    cache[key] = operator_assignments(operator, mesh.sizes, whole)
            found.append(cache[key])
        return tuple(found)


@dataclasses.dataclass(frozen=True, eq=False)
class Space:
    """A program on one mesh: every representative with its labels, priced in seconds for one step.

    Attributes:
        outline: the program.
        mesh, device: where it runs.
        labels: per representative what its labels mean.
        work: per representative the time of the work under each label.
        own: the same for collectives that no other node takes part in.
        edges, matrices: time of the collectives between two representatives.
    """

    outline: Outline
    mesh: Mesh
    device: Device
    labels: tuple[Labels, ...]
    work: tuple[np.ndarray, ...]
    own: tuple[np.ndarray, ...]
    edges: tuple[tuple[int, int], ...]
    matrices: tuple[np.ndarray, ...]

    @staticmethod
    def of(
        outline: Outline, mesh: Mesh, device: Device, chains: Chains, labels: tuple[Labels, ...] | None = None
    ) -> Space:
        """Prices a program on a mesh; of all labels, or of some that are given per representative."""
        return Space._priced(outline, labels or outline.labels(mesh), device, Resharding(mesh, chains))

    @staticmethod
    def relaxed(outline: Outline, mesh: Mesh, device: Device) -> Space:
        """A program on a mesh whose interchangeable axes are not told apart: no choice costs more than in `of`."""
        return Space._priced(outline, outline.labels(mesh, alike=True), device, Relaxed(mesh))

    @staticmethod
    def _priced(outline: Outline, labels: tuple[Labels, ...], device: Device, resharding: Resharding) -> Space:
        pricing = Pricing(outline.graph, device, resharding)
        work, own = pricing.nodes(outline.terms, outline.repeats, labels)
        edges, matrices = pricing.edges(outline.terms, outline.repeats, labels)
        return Space(outline, resharding.mesh, device, labels, tuple(work), tuple(own), tuple(edges), tuple(matrices))

    @property
    def costs(self) -> tuple[np.ndarray, ...]:
        return tuple(work + own for work, own in zip(self.work, self.own, strict=True))

    @property
    def digits(self) -> float:
        """The decimal logarithm of the number of different choices for the whole program."""
        return float(np.dot(self.outline.repeats.times, np.log10([len(labels) for labels in self.labels])))

    def choices(self, chosen: Sequence[int]) -> Choices:
        """The meaning of a labelling, spelled out for every node."""
        terms, of = self.outline.terms, self.outline.repeats.of
        meaning = [labels[label] for labels, label in zip(self.labels, chosen, strict=True)]
        whole = [meaning[representative] for representative in of]
        middle = terms.groups + len(terms.operators)
        return Choices(
            tuple(whole[: terms.groups]),
            dict(zip(terms.operators, whole[terms.groups : middle], strict=True)),
            dict(zip(terms.views, whole[middle:], strict=True)),
        )

    def restricted(self, kept: Sequence[np.ndarray]) -> Space:
        """The part of the space in which each representative has only some of its labels.

        Args:
            kept: per representative the labels that stay, ascending; with none it keeps all of them.
        """
        keep = [rows if len(rows) else np.arange(len(labels)) for rows, labels in zip(kept, self.labels, strict=True)]
        return dataclasses.replace(
            self,
            labels=tuple(tuple(labels[i] for i in rows) for labels, rows in zip(self.labels, keep, strict=True)),
            work=tuple(costs[rows] for costs, rows in zip(self.work, keep, strict=True)),
            own=tuple(costs[rows] for costs, rows in zip(self.own, keep, strict=True)),
            matrices=tuple(m[np.ix_(keep[i], keep[j])] for (i, j), m in zip(self.edges, self.matrices, strict=True)),
        )

    def kept(self, restriction: Restriction) -> list[np.ndarray]:
        """The labels that a restriction leaves."""
        outline, found = self.outline, []
        middle = outline.terms.groups + len(outline.terms.operators)
        for node, labels in zip(outline.repeats.nodes, self.labels, strict=True):
            if node < outline.terms.groups:
                allowed = restriction.group(node)
            elif node < middle:
                allowed = restriction.operator(outline.structure.free[node - outline.terms.groups])
            else:
                allowed = restriction.view(outline.group(node))
            found.append(np.array([i for i, label in enumerate(labels) if allowed(label)], dtype=np.int64))
        return found

    def positions(self, other: Space, chosen: Sequence[int]) -> np.ndarray:
        """A labelling of another restriction of this space as one of this space."""
        meaning = (labels[label] for labels, label in zip(other.labels, chosen, strict=True))
        return np.array([labels.index(m) for labels, m in zip(self.labels, meaning, strict=True)], dtype=np.int64)
