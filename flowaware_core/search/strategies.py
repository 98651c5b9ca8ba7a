"""From a strategy's name to the best candidate: the hand-written templates, and the search over meshes that they seed.

Two strategies choose as other systems do, and are priced as all the others:

alpa  one integer program per mesh that counts communication only; heavy operators must use every axis they can.
      Zheng et al., Alpa: Automating inter- and intra-operator parallelism for distributed deep learning, OSDI 2022, section 4.
xla   one mesh axis after the other, the largest first, each choice kept for the next.
      XLA's auto-sharding pass (openxla/xla, hlo/experimental/auto_sharding) in its default setting.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from flowaware_core.cluster.mesh import Mesh, meshes
from flowaware_core.cluster.model import Cluster
from flowaware_core.cost.compute import MATRIX_PRIMITIVES
from flowaware_core.cost.resharding import Chains
from flowaware_core.garbage import collection_paused
from flowaware_core.graph.model import Graph
from flowaware_core.graph.structure import Structure
from flowaware_core.search import templates
from flowaware_core.search.finest import finest
from flowaware_core.search.operators import Candidate, Solved, better, cost, hopeless, nearly, priced, search, solve
from flowaware_core.search.pins import Pin, checked, pinned, pinned_groups
from flowaware_core.search.problem import Outline, Restriction, Space
from flowaware_core.search.templates import Roles

TEMPLATES: Mapping[str, Callable[[Roles, Mesh], Restriction]] = {
    "data": templates.data,
    "zero1": templates.zero1,
    "fsdp": templates.fsdp,
    "tensor": templates.tensor,
    "fsdp_tensor": templates.fsdp_tensor,
    "spatial": templates.spatial,
    "axial": templates.axial,
}
STRATEGIES: tuple[str, ...] = ("auto", *TEMPLATES, "alpa", "xla")
# Meshes of more axes multiply the labels of every node; the natural mesh is searched whatever its number of axes.
MOST_AXES = 3
# Meshes of so many axes are searched for every schedule that is looked at, those of more for the one that is chosen.
COARSE = 2
# Pairs of labels above which a mesh of more axes is left out: of the recipes' programs only PNASNet's for CIFAR-10 has more.
MOST_PAIRS = 20_000_000
# On a further mesh, what is not better by this part of a step is not looked for: it is the least gap that can be certified then.
WORTHWHILE = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """What a strategy gives.

    Attributes:
        best: its plan.
        meshes: how many meshes were searched.
        digits: decimal logarithm of the number of plans in the space.
        limited: whether a faster plan does not fit in memory.
        bound: no plan of the space that fits costs less; -inf where nothing is proven.
        hopeless: whether the arguments alone are too large, however they are cut.
        found: what the search's own answer costs, as it counts; inf where it does not fit. A template may have taken its place
            whose estimate is less, though it counts more.
    """

    best: Candidate
    meshes: int = 1
    digits: float = 0.0
    limited: bool = False
    bound: float = -np.inf
    hopeless: bool = False
    found: float = np.inf

    @property
    def gap(self) -> float | None:
        """How far at most the plan is from the best of the space, as a part of its cost; None where nothing is certified."""
        cost = min(self.best.cost, self.found)
        certified = self.best.fits and np.isfinite(self.bound) and cost > 0
        return max(0.0, cost - self.bound) / cost if certified else None


class Planner:
    """A program on a cluster: what all strategies share is worked out once.

    Args:
        graph, structure: the program.
        cluster: what it shall run on.
        pins: what every strategy follows.
        axes: the most axes of a mesh that is searched; None: of all meshes, by way of the finest.
        examples: over how many devices every plan spreads the examples, as one mesh at least can; None: as it turns out.

    Raises:
        ValueError: a pin that no plan can follow.
    """

    def __init__(
        self,
        graph: Graph,
        structure: Structure,
        cluster: Cluster,
        pins: Sequence[Pin] = (),
        axes: int | None = MOST_AXES,
        examples: int | None = None,
    ):
        checked(graph, structure, cluster, pins)
        self.cluster, self.pins, self.axes, self.examples = cluster, tuple(pins), axes, examples
        with collection_paused():
            self.roles = Roles.of(graph, structure)
            keys = self.roles.keys()
            for group, places in pinned_groups(graph, structure, pins).items():
                keys[group] = (keys[group], places)  # no other group may stand for it
            self.outline = Outline.of(graph, structure, keys)
        self._chains: dict[int, Chains] = {}
        self._natural: Space | None = None
        self._results: dict[str, Result] = {}
        self._coarsely: list[Solved] = []
        self._glanced: Result | None = None
        self._fitting: Result | None = None
        # What no plan costs less than even with memory to spare; -inf until all meshes were looked at.
        self.least = -np.inf

    def on(self, cluster: Cluster, axes: int | None) -> Planner:
        """The same program on another cluster: what does not depend on it is not worked out again.

        Raises:
            ValueError: a pin that no plan can follow there.
        """
        if cluster == self.cluster and axes == self.axes:
            return self
        checked(self.outline.graph, self.outline.structure, cluster, self.pins)
        other = copy.copy(self)
        other.cluster, other.axes, other._natural, other._results = cluster, axes, None, {}
        other._coarsely, other._glanced, other._fitting, other.least = [], None, None, -np.inf
        return other

    def plan(self, strategy: str) -> Result:
        """The plan of a strategy: "auto", a template's name, "alpa" or "xla"."""
        if strategy not in self._results:
            with collection_paused():
                self._results[strategy] = self._planned(strategy)
        return self._results[strategy]

    def first(self) -> Result:
        """What "auto" finds where the cheapest plan of all fits, or else what a glance does."""
        with collection_paused():
            return self._cheapest() or self._glance(np.inf)

    def glance(self, below: float) -> Result:
        """What "auto" finds on meshes of few axes without the templates, which it may be worse than where memory binds.

        Args:
            below: seconds; where no plan takes less even with memory to spare, none is made to fit.
        """
        with collection_paused():
            return self._glance(below)

    def against(self, result: Result, strategies: Sequence[str]) -> Result:
        """A result, or that of one of the strategies where its estimate is better.

        The search counts a copy of a tensor once per node that reads it, the estimate once: so this can happen.
        """
        best = result.best
        for name in strategies:
            best = better(best, dataclasses.replace(self.plan(name).best, strategy=best.strategy))
        return dataclasses.replace(result, best=best)

    def _planned(self, strategy: str) -> Result:
        if strategy == "auto":
            return self._auto()
        if strategy == "alpa":
            return Result(self._alpa())
        if strategy == "xla":
            return Result(self._xla())
        return Result(self._template(strategy))

    @property
    def natural(self) -> Space:
        """The space of the mesh with one axis per level, or else of the first that spreads the examples as they shall be."""
        if self._natural is None:
            self._natural = self._space(self._meshes()[0])
        return self._natural

    def _meshes(self) -> tuple[Mesh, ...]:
        found = [mesh for mesh in meshes(self.cluster) if self.examples is None or self.examples in mesh.products]
        most = MOST_AXES if self.axes is None else self.axes
        return found[0], *(mesh for mesh in found[1:] if len(mesh.axes) <= most)

    def _coarse(self) -> tuple[Mesh, ...]:
        natural, *others = self._meshes()
        return natural, *(mesh for mesh in others if len(mesh.axes) <= COARSE)

    def _space(self, mesh: Mesh) -> Space:
        chains = self._chains.setdefault(len(mesh.axes), Chains(len(mesh.axes)))
        space = Space.of(self.outline, mesh, self.cluster.device, chains)
        if self.examples is not None:
            space = space.restricted(space.kept(templates.shared(self.roles, mesh, self.examples)))
        if not self.pins:
            return space
        return space.restricted(space.kept(pinned(self.outline.graph, self.outline.structure, mesh, self.pins)))

    def _auto(self) -> Result:
        result = self._searched()
        # A pinned dimension, or given shards of the examples, name axes of coarser meshes.
        wanted = self.axes is None and not self.pins and self.examples is None
        return self._everywhere(result) if wanted and result.best.fits else result

    def _everywhere(self, result: Result) -> Result:
        """The same, bounded over all meshes, or what the finest of them has that is better."""
        every = meshes(self.cluster)
        if len(every) == result.meshes:
            return result
        own = min(result.best.cost, result.found)
        full = result.best if result.limited else None
        found = finest(self.outline, every[-1], self.cluster.device, own * (1 - WORTHWHILE), full)
        if found.best is not None:
            best, own = better(result.best, found.best), min(own, found.best.cost)
            result = dataclasses.replace(result, best=best, found=own)
        return dataclasses.replace(result, meshes=len(every), digits=found.digits, bound=found.bound)

    def _searched(self) -> Result:
        """The best plan of the meshes of few axes."""
        cheapest = self._fitting or (self._cheapest() if self._glanced is None else None)
        if cheapest is not None:
            return cheapest
        result = self._glanced or self._glance(np.inf)
        if result.limited and not result.hopeless:
            # Where memory binds the search is not exact: the templates seed it.
            best = result.best
            for name in TEMPLATES:
                best = better(best, dataclasses.replace(self.plan(name).best, strategy="auto"))
            result = dataclasses.replace(result, best=best)
        return result if result.hopeless else self._refined(result)

    def _cheapest(self) -> Result | None:
        """The cheapest plan of all meshes, if it fits."""
        found = list(self._solved())
        for space in self._finer():
            found.append(nearly(space, min(solved.cost for solved in found) * (1 - WORTHWHILE)))
        self.least = min(solved.bound for solved in found)
        solved = min(found, key=lambda one: one.cost)
        best = priced(solved.space, "auto", solved.labels)
        if not best.fits:
            return None
        coarse = min(self._solved(), key=lambda one: one.cost)
        if coarse is not solved and best.cost > best.estimate.step_s * (1 + WORTHWHILE):
            # Copies are shared, which is in the estimates alone: the other's may be less.
            best = better(priced(coarse.space, "auto", coarse.labels), best)
        digits = max(solved.space.digits for solved in found)
        self._fitting = Result(best, len(found), digits, bound=self.least, found=solved.cost)
        return self._fitting

    def _solved(self) -> Sequence[Solved]:
        """The cheapest choice on every mesh of few axes, memory aside."""
        if not self._coarsely:
            self._coarsely.append(solve(self.natural))
            for mesh in self._coarse()[1:]:
                cutoff = min(solved.cost for solved in self._coarsely) * (1 - WORTHWHILE)
                self._coarsely.append(solve(self._space(mesh), cutoff))
        return self._coarsely

    def _refined(self, result: Result) -> Result:
        """The same with meshes of more axes, of which only what is better by a worthwhile part is looked for."""
        best, bound, own = result.best, result.bound, result.found
        spaces = list(self._finer())
        for space in spaces:
            cutoff = min(best.cost, own) * (1 - WORTHWHILE) if best.fits else np.inf
            solved = nearly(space, cutoff)
            least = solved.bound
            if solved.cost < cutoff:
                candidate, least = search(solved, "auto", cutoff)
                best, own = better(best, candidate), min(own, candidate.cost) if candidate.fits else own
            bound = min(bound, least)
        digits = max([result.digits, *(space.digits for space in spaces)])
        meshes = result.meshes + len(spaces)
        return dataclasses.replace(result, best=best, meshes=meshes, digits=digits, bound=bound, found=own)

    def _finer(self) -> Iterator[Space]:
        """The spaces of the meshes of more axes."""
        for mesh in self._meshes()[len(self._coarse()) :]:
            space = self._space(mesh)
            if sum(matrix.size for matrix in space.matrices) <= MOST_PAIRS:
                yield space

    def _glance(self, below: float) -> Result:
        found = self._solved()
        digits = max(solved.space.digits for solved in found)
        best, bound, fitted = self._first_that_fits(found, below)
        beyond = not fitted and hopeless(found[0].space, priced(found[0].space, "auto", found[0].labels))
        own = best.cost if best.fits else np.inf
        result = Result(best, len(found), digits, not fitted, bound, beyond, own)
        if best.fits or below == np.inf:
            self._glanced = result
        return result

    def _first_that_fits(self, found: Sequence[Solved], below: float) -> tuple[Candidate, float, bool]:
        """The best plan of several meshes, a lower bound over all of them, and whether the cheapest answer fitted at once."""
        bound = min(solved.bound for solved in found)
        order = sorted(range(len(found)), key=lambda index: found[index].cost)
        first = priced(found[order[0]].space, "auto", found[order[0]].labels)
        if first.fits or bound >= below:
            return first, bound, first.fits
        if hopeless(found[order[0]].space, first):
            best, more = search(found[order[0]], "auto")
            return best, more, False
        best, bounds = first, []
        for index in order:
            if best.fits and found[index].bound >= best.cost:
                bounds.append(found[index].bound)
                continue
            solved = found[index]
            if solved.cost > solved.bound * (1 + WORTHWHILE):
                solved = solve(solved.space)  # it was cut off by an answer that does not fit
            candidate, more = search(solved, "auto")
            best = better(best, candidate)
            bounds.append(more)
        return best, min(bounds), False

    def _template(self, name: str) -> Candidate:
        space = self.natural
        left = space.restricted(space.kept(TEMPLATES[name](self.roles, space.mesh)))
        return search(solve(left), name)[0]

    def _alpa(self) -> Candidate:
        space = self.natural
        outline, middle = self.outline, self.outline.terms.groups + len(self.outline.terms.operators)
        kept = [np.arange(len(labels)) for labels in space.labels]
        for position, node in enumerate(outline.repeats.nodes):
            if outline.terms.groups <= node < middle:
                operator = outline.structure.free[node - outline.terms.groups]
                if operator.primitive in MATRIX_PRIMITIVES:
                    used = [sum(dim >= 0 for dim in label) for label in space.labels[position]]
                    kept[position] = np.flatnonzero(np.array(used) == max(used))
        left = space.restricted(kept)
        silent = dataclasses.replace(left, work=tuple(np.zeros_like(work) for work in left.work))
        return self._reprice(search(solve(silent), "alpa")[0])

    def _xla(self) -> Candidate:
        space = self.natural
        order = sorted(range(len(space.mesh.axes)), key=lambda axis: -space.mesh.sizes[axis])
        chosen: list[tuple[int, ...]] = [(-1,) * len(order) for _ in space.labels]
        left, found = space, None
        for turn in range(len(order)):
            later = order[turn + 1 :]
            kept = []
            for labels, before in zip(space.labels, chosen, strict=True):
                table = np.array(labels)
                agree = (table[:, order[:turn]] == np.array(before)[order[:turn]]).all(axis=1)
                kept.append(np.flatnonzero(agree & (table[:, later] < 0).all(axis=1)))
            left = space.restricted(kept)
            found = search(solve(left), "xla")[0]
            chosen = [_assignment(found, self.outline, node) for node in self.outline.repeats.nodes]
        assert found is not None
        return found

    def _reprice(self, found: Candidate) -> Candidate:
        """A candidate chosen by other costs, in the costs of the natural space."""
        chosen = [_assignment(found, self.outline, node) for node in self.outline.repeats.nodes]
        labels = [options.index(label) for options, label in zip(self.natural.labels, chosen, strict=True)]
        return dataclasses.replace(found, cost=cost(self.natural, np.array(labels)))


def _assignment(found: Candidate, outline: Outline, node: int) -> tuple[int, ...]:
    """What a candidate chose for a node."""
    terms, choices = outline.terms, found.choices
    if node < terms.groups:
        return choices.groups[node]
    middle = terms.groups + len(terms.operators)
    if node < middle:
        return choices.operators[terms.operators[node - terms.groups]]
    return choices.views[terms.views[node - middle]]
