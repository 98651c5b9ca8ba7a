"""From a strategy's name to the best candidate: the hand-written templates, and the search over meshes that they seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from flowaware_core.cluster.mesh import Mesh, meshes, natural
from flowaware_core.cluster.model import Cluster
from flowaware_core.graph.model import Graph
from flowaware_core.graph.structure import Structure
from flowaware_core.search import templates
from flowaware_core.search.operators import Candidate, Space, better, search
from flowaware_core.search.problem import Restriction

TEMPLATES: Mapping[str, Callable[[Graph, Structure, Mesh], Restriction]] = {
    "data": templates.data,
    "fsdp": templates.fsdp,
    "tensor": templates.tensor,
}
STRATEGIES: tuple[str, ...] = ("auto", *TEMPLATES)
# Meshes of more axes multiply the labels of every node; the natural mesh is searched whatever its number of axes.
MOST_AXES = 2


def candidates(graph: Graph, structure: Structure, cluster: Cluster, strategy: str) -> tuple[Candidate, ...]:
    """The candidate of the strategy first, then the other ones that were looked at, templates in their order.

    Args:
        graph, structure: the program.
        cluster: what it shall run on.
        strategy: "auto" or a template's name.
    """
    mesh, device = natural(cluster), cluster.device
    space = Space.of(graph, structure, mesh, device)
    others = {
        name: search(space, name, restrict(graph, structure, mesh))
        for name, restrict in TEMPLATES.items()
        if strategy in ("auto", name)
    }
    if strategy != "auto":
        return (others[strategy],)
    best = search(space, "auto", None, [candidate.choices for candidate in others.values()])
    for option in meshes(cluster):
        if option != mesh and len(option.axes) <= MOST_AXES:
            best = better(best, search(Space.of(graph, structure, option, device), "auto"))
    for other in others.values():
        # The solver counts a copy once per reader, the estimate once: by the estimate a template may still win.
        best = better(best, dataclasses.replace(other, strategy="auto"))
    return (best, *others.values())
