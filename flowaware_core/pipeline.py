"""A training step in stages: groups of devices that each hold a part of the model and pass micro-batches along.

`pipeline` cuts the loss where the step is fastest, plans each stage on its own devices, and predicts the whole. A stage keeps what
the way back needs of every micro-batch under way; where that does not fit, it keeps what comes into it and computes the rest anew.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from flowaware_core.cluster.mesh import natural
from flowaware_core.cluster.model import GIB, Cluster, Level
from flowaware_core.cost import communication, compute
from flowaware_core.cost.estimate import Estimate, estimate
from flowaware_core.garbage import collection_paused
from flowaware_core.graph.capture import capture
from flowaware_core.graph.layout import local_shape
from flowaware_core.graph.owners import ALL, Inseparable, Split, split
from flowaware_core.graph.placement import Placement, place
from flowaware_core.graph.residuals import residuals
from flowaware_core.graph.sections import Section, Trunk
from flowaware_core.graph.stage import Leafs, Stage, results_of, wide
from flowaware_core.program import Program
from flowaware_core.search.operators import Candidate
from flowaware_core.search.partition import candidates, partition, pipelined
from flowaware_core.search.strategies import Planner
from flowaware_core.task import Task, abstract
from flowaware_core.training import Mean, Outcome, Training

# Plans of all stages, each with weights corrected by the one before.
ROUNDS = 3
# Numbers of stages and micro-batches that are planned.
TRIES = 3
# Stages whose loads differ by no more are not cut anew.
EVEN = 0.05
# How much faster plans of stages are found to be than devices that share the examples of a micro-batch.
OPTIMISM = 0.9
MANY = 2**30
# The way back costs twice the forward pass.
PASSES = 3.0


@dataclasses.dataclass(frozen=True, eq=False)
class PlannedStage:
    """A stage with its plan.

    Attributes:
        stage: what it runs.
        program, candidate, placement: its plan on its own devices.
        kept: tensors that a forward pass keeps for the way back; without any, that computes them again.
        forward_s, backward_s, update_s: seconds of one micro-batch's passes and of the update.
        entry_s: seconds in which a micro-batch gets here and its derivatives get back.
        memory_bytes: on one device, micro-batches under way included.
    """

    stage: Stage
    program: Program
    candidate: Candidate
    placement: Placement
    kept: tuple[int, ...]
    forward_s: float
    backward_s: float
    update_s: float
    entry_s: float
    memory_bytes: int

    @property
    def load_s(self) -> float:
        """Seconds that a micro-batch keeps the stage busy."""
        return self.forward_s + self.backward_s + self.entry_s


@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
    """A training step in stages.

    Attributes:
        training, state, batch: what is trained, abstract.
        cluster: all devices.
        micro_batches: parts of the batch.
        cuts: the equations of the loss before which it is cut.
        stages: in order.
        split: the update among them.
        name: what it is called.
    """

    training: Training
    state: Any
    batch: Any
    cluster: Cluster
    micro_batches: int
    cuts: tuple[int, ...]
    stages: tuple[PlannedStage, ...]
    split: Split
    name: str

    @property
    def step_s(self) -> float:
        """Predicted seconds of a step."""
        return _step_s(self.stages, self.micro_batches)

    @property
    def imbalance(self) -> float:
        """By how much the lightest stage is below the busiest, as a part of the busiest."""
        loads = [stage.load_s for stage in self.stages]
        return 1.0 - min(loads) / max(loads)

    @property
    def fits(self) -> bool:
        return _fit(self.stages, self.cluster)

    def describe(self) -> str:
        """A table for a person, one line a stage."""
        lines = [
            f"{len(self.stages)} stages of {self.cluster.num_devices // len(self.stages)} devices, {self.micro_batches} "
            f"micro-batches, predicted step {self.step_s * 1e3:.3g} ms",
            "stage  weights  forward ms  backward ms  entry ms  update ms  memory GiB",
        ]
        for number, planned in enumerate(self.stages):
            lines.append(
                f"{number:>5}  {len(planned.stage.own):>7}  {planned.forward_s * 1e3:>10.3g}  {planned.backward_s * 1e3:>11.3g}"
                f"  {planned.entry_s * 1e3:>8.3g}  {planned.update_s * 1e3:>9.3g}  {planned.memory_bytes / GIB:>10.3g}"
            )
        return "\n".join(lines)


def pipeline(
    training: Training,
    state: Any,
    batch: Any,
    cluster: Cluster,
    stages: int | None = None,
    micro_batches: int | None = None,
    below: float = math.inf,
    name: str = "task",
) -> Pipeline:
    """Finds the fastest split of a training step into stages.

    Args:
        training: loss and optimizer.
        state, batch: arrays or shapes.
        cluster: the devices; stages are groups of the members of its outermost level that has several.
        stages: how many; None chooses.
        micro_batches: how many parts of the batch; None chooses among those that the loss allows.
        name: what the pipeline is called.
        below: seconds; what is thought to take as long is not planned.

    Raises:
        ValueError: the members of the outermost level do not divide into so many stages, or the loss does not split into so many
            parts.
        Inseparable: a ValueError: the loss has no place for so many cuts, or the update mixes parameters of several stages.
    """
    with collection_paused():
        return _pipeline(training, abstract(state), abstract(batch), cluster, stages, micro_batches, below, name)


def _pipeline(
    training: Training,
    state: Any,
    batch: Any,
    cluster: Cluster,
    stages: int | None,
    micro_batches: int | None,
    below: float,
    name: str,
) -> Pipeline:
    task = training.task(state, batch, name)
    outer = _outermost(cluster)
    groups = [count for count in range(2, outer.size + 1) if outer.size % count == 0]
    if stages is not None and stages not in groups:
        raise ValueError(
            f"stages={stages}; the {outer.size} {outer.name}s of {cluster.name} divide into {groups or 'no stages'}"
        )
    allowed = task.micro_batches
    if micro_batches is not None and micro_batches not in allowed:
        raise ValueError(f"micro_batches={micro_batches}; this batch and loss allow {list(allowed)}")
    parts = allowed if micro_batches is None else [micro_batches]
    whole = _wholes(training, state, batch)
    chosen = groups if stages is None else [stages]
    drafts = [draft for count in chosen for draft in _drafts(whole, cluster, count, parts)]
    if not drafts:
        raise Inseparable(
            f"the loss of {task.name} has too few places to cut it into stages; repeated layers in a loop have none"
        )
    best: Pipeline | None = None
    slower = 0.0  # per turn of all stages, than drafted
    for _ in range(TRIES):
        draft = min(drafts, key=lambda draft: draft.step_s + slower * draft.turns)
        expected = draft.step_s + slower * draft.turns
        if OPTIMISM * expected >= below or (best is not None and best.fits and expected >= best.step_s):
            break
        drafts.remove(draft)
        planned = _planned_stages(whole(draft.micro_batches), cluster, draft)
        found = Pipeline(training, state, batch, cluster, draft.micro_batches, *planned, name)
        best = found if best is None or _key(found) < _key(best) else best
        slower = max(slower, (found.step_s - draft.step_s) / draft.turns)
        if not drafts:
            break
    if best is None:
        raise Inseparable(f"no pipeline of {task.name} on {cluster.name} takes less than {below:.3g} s a step")
    return best


def _key(found: Pipeline) -> tuple[bool, float]:
    return not found.fits, found.step_s


@dataclasses.dataclass(frozen=True)
class _Draft:
    """Numbers of stages and micro-batches, cuts, and the seconds of a step if the devices of a stage share its examples."""

    stages: int
    micro_batches: int
    cuts: tuple[int, ...]
    step_s: float

    @property
    def turns(self) -> int:
        return self.micro_batches + self.stages - 1


def _wholes(training: Training, state: Any, batch: Any) -> Callable[[int], _Whole]:
    """By the number of micro-batches; each is traced once."""
    extra = None if training.extra is None else state[training.extra]
    counts = jax.eval_shape(lambda *args: _counts(training.loss(*args)), state["params"], extra, batch, state["rng"])
    return functools.cache(lambda parts: _Whole(training, state, batch, parts, counts))


def _drafts(whole: Callable[[int], _Whole], cluster: Cluster, count: int, parts: Sequence[int]) -> Iterator[_Draft]:
    """The best cuts into so many stages, for each number of micro-batches."""
    fewest, most = (_Chain.of(whole(part).trunk, cluster, count) for part in (parts[0], parts[-1]))
    for part in parts:
        if part >= count or part == parts[-1]:
            chain = most if part == parts[-1] else fewest.between(most, parts[0] / part, parts[0] / parts[-1])
            cuts = chain.partition(count, part)
            if cuts is not None:
                yield _Draft(count, part, cuts, pipelined(chain.loads(cuts), part))


@dataclasses.dataclass(frozen=True, eq=False)
class _Chain:
    """The equations of a loss as a chain to be cut.

    Attributes:
        weights: [equations] seconds of both passes of a micro-batch.
        positions: where a cut may be.
        entry: [equations + 1] seconds in which what passes a cut before each equation gets there and back.
    """

    weights: np.ndarray
    positions: np.ndarray
    entry: np.ndarray

    @staticmethod
    def of(trunk: Trunk, cluster: Cluster, count: int) -> _Chain:
        inside, link = _inside(cluster, count), natural(cluster).axes[0]
        per_byte = 1.0 / (inside.num_devices * link.bandwidth_bytes_per_s)
        entry = 2.0 * (np.asarray(trunk.crossing) * per_byte + link.latency_s)
        return _Chain(_weights(trunk, inside), candidates(trunk.crossing), entry)

    def between(self, other: _Chain, share: float, least: float) -> _Chain:
        """For micro-batches `share` times as large, where those of `other` are `least` times as large: all grows evenly."""
        part = (1.0 - share) / (1.0 - least)
        mixed = lambda one, two: (1.0 - part) * one + part * two
        return _Chain(mixed(self.weights, other.weights), self.positions, mixed(self.entry, other.entry))

    def partition(self, count: int, parts: int) -> tuple[int, ...] | None:
        return partition(self.weights, self.positions, self.entry[self.positions], count, parts)

    def entries(self, cuts: Sequence[int]) -> list[float]:
        """Seconds in which a micro-batch gets to each stage, and back."""
        return [0.0, *(float(self.entry[cut]) for cut in cuts)]

    def loads(self, cuts: Sequence[int]) -> list[float]:
        edges = [0, *cuts, len(self.weights)]
        spans = itertools.pairwise(edges)
        return [float(self.weights[i:j].sum()) + e for (i, j), e in zip(spans, self.entries(cuts), strict=True)]


def _outermost(cluster: Cluster) -> Level:
    """The outermost level that has several members."""
    return next((level for level in cluster.levels if level.size > 1), cluster.levels[0])


def _inside(cluster: Cluster, count: int) -> Cluster:
    """The devices of one stage."""
    outer = _outermost(cluster)
    fewer = dataclasses.replace(outer, size=outer.size // count)
    return dataclasses.replace(cluster, levels=tuple(fewer if level is outer else level for level in cluster.levels))


def _planned_stages(
    whole: _Whole, cluster: Cluster, draft: _Draft
) -> tuple[tuple[int, ...], tuple[PlannedStage, ...], Split]:
    """The best cuts into so many stages, corrected by what the plans of the stages say; the stages, and the update among them."""
    count, parts, cuts = draft.stages, draft.micro_batches, draft.cuts
    chain, inside = _Chain.of(whole.trunk, cluster, count), _inside(cluster, count)
    tried: dict[tuple[int, ...], tuple[tuple[PlannedStage, ...], Split]] = {}
    while len(tried) < ROUNDS and cuts not in tried:
        division, stages = whole.stages(cuts)
        planned = tuple(
            _planned(stage, f"stage {number}", inside, entry, count - number)
            for number, (stage, entry) in enumerate(zip(stages, chain.entries(cuts), strict=True))
        )
        tried[cuts] = planned, division
        loads = [stage.load_s for stage in planned]
        if min(loads) > (1 - EVEN) * max(loads):
            break
        for (begin, end), stage in zip(itertools.pairwise([0, *cuts, len(chain.weights)]), planned, strict=True):
            total = max(float(chain.weights[begin:end].sum()), 1e-30)
            chain.weights[begin:end] *= (stage.forward_s + stage.backward_s) / total
        cuts = chain.partition(count, parts) or cuts

    def key(cuts: tuple[int, ...]) -> tuple[bool, float]:
        planned = tried[cuts][0]
        return not _fit(planned, cluster), _step_s(planned, parts)

    best = min(tried, key=key)
    return best, *tried[best]


def _fit(stages: Sequence[PlannedStage], cluster: Cluster) -> bool:
    return all(stage.memory_bytes <= cluster.device.usable_bytes for stage in stages)


def _step_s(stages: Sequence[PlannedStage], micro_batches: int) -> float:
    """Seconds of a step."""
    return pipelined([stage.load_s for stage in stages], micro_batches) + max(stage.update_s for stage in stages)


class _Whole:
    """Loss and update of one micro-batch, before they are cut; `counts` are the normalisers of the loss."""

    def __init__(self, training: Training, state: Any, batch: Any, parts: int, counts: Any):
        self.training = training
        params = state["params"]
        extra = None if training.extra is None else state[training.extra]
        rows = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0] // parts, *leaf.shape[1:]), leaf.dtype), batch
        )
        key = state["rng"]
        args = (params, extra, rows, key, counts)
        self.trunk = Trunk(self._part, args, weights=(0, 1))
        ends = list(itertools.accumulate(len(jax.tree.leaves(argument)) for argument in args))
        self.leafs = Leafs(*ends)
        self.loss_shapes = jax.tree.leaves(args)
        found = self.trunk.shapes[1]
        self.num_sums = len(jax.tree.leaves(found))
        gradients, sums = jax.tree.map(wide, (params, found))
        self.update_args = (params, state["opt_state"], state["step"], gradients, sums)
        self.update_shapes = jax.tree.leaves(self.update_args)
        self.starts = dict(
            zip(
                ("params", "slots", "step", "gradients", "sums", "end"),
                itertools.accumulate((len(jax.tree.leaves(argument)) for argument in self.update_args), initial=0),
                strict=True,
            )
        )

    def _part(self, params: Any, extra: Any, rows: Any, key: Any, counts: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        found = self.training.loss(params, extra, rows, key)
        share = sum((Mean(mean.total, counts[name]).value for name, mean in found.terms.items()), jnp.zeros(()))
        return share, (found.terms, found.metrics), found.extra

    def _finish(self, params: Any, opt_state: Any, step: Any, gradients: Any, sums: Any) -> Any:
        gradients = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), gradients, params)
        state = {"params": params, "opt_state": opt_state, "step": step}
        after, metrics = self.training.finish(state, gradients, Outcome(*sums))
        return after["params"], after["opt_state"], after["step"], metrics

    def at(self, what: str, leaf: int) -> int:
        """The position among the update's argument leaves of a parameter, its gradient, a slot, or a sum of the loss."""
        return self.starts[what] + leaf - (1 if what == "sums" else 0)

    def stages(self, cuts: Sequence[int]) -> tuple[Split, list[Stage]]:
        """The stages between cuts, and how the update is split among them."""
        sections = self.trunk.cut(cuts)
        owner: dict[int, int] = {}
        for number, section in enumerate(sections):
            for leaf in section.leaves:
                owner.setdefault(leaf, number)
        params = range(self.leafs.extra)
        owned = {self.at("params", leaf): owner.get(leaf, 0) for leaf in params}
        owned |= {self.at("gradients", leaf): owner.get(leaf, 0) for leaf in params}
        for number, section in enumerate(sections):
            owned |= {self.at("sums", result): number for result in section.results if 1 <= result <= self.num_sums}
        carried = {leaf: leaf for leaf in range(self.starts["gradients"])}
        division = split(self._finish, self.update_args, owned, carried, len(sections))
        return division, [
            self._stage(number, section, owner, division, sections) for number, section in enumerate(sections)
        ]

    def _stage(
        self, number: int, section: Section, owner: Mapping[int, int], division: Split, sections: Sequence[Section]
    ) -> Stage:
        params = range(self.leafs.extra)
        own = tuple(leaf for leaf in params if owner.get(leaf, 0) == number)
        borrowed = tuple(leaf for leaf in section.leaves if leaf < self.leafs.extra and owner[leaf] != number)
        lent = tuple(
            leaf for other, another in enumerate(sections) if other != number for leaf in another.leaves if leaf in own
        )
        slots = range(self.starts["slots"], self.starts["step"])
        share = division.shares[number]
        first = 1 + self.num_sums
        extra_results = {self.leafs.extra + index: first + index for index in range(self.leafs.rows - self.leafs.extra)}
        for leaf, result in extra_results.items():
            if (leaf in section.leaves) != (result in section.results):
                raise Inseparable(
                    "what the model carries beside its parameters is read in one stage and made in another"
                )
        return Stage(
            section=section,
            share=share,
            leafs=self.leafs,
            own=own,
            borrowed=borrowed,
            slots=tuple(leaf - slots.start for leaf in slots if division.owners[leaf] == number),
            numbers=tuple(leaf for leaf in share.leaves if division.owners[leaf] == ALL),
            lent=lent,
            sums=tuple(result for result in section.results if 1 <= result <= self.num_sums),
            extra_results=extra_results,
            update_leaf=self.at,
            loss_shapes=self.loss_shapes,
            update_shapes=self.update_shapes,
        )


def _counts(found: Outcome) -> dict[str, Any]:
    return {name: mean.count for name, mean in found.terms.items()}


def _weights(trunk: Trunk, inside: Cluster) -> np.ndarray:
    """Seconds of both passes of each equation on one stage's devices that share the examples, reduction of gradients included."""
    known: dict[Any, float] = {}
    found = np.zeros(len(trunk.equations))
    shards, mesh = np.array(float(inside.num_devices)), natural(inside)
    # Many small gradients are reduced together: what counts is their bytes.
    per_byte = communication.seconds("all-reduce", MANY, range(len(mesh.axes)), mesh) / MANY
    for index, equation in enumerate(trunk.equations):
        avals = [atom.aval for atom in (*equation.invars, *equation.outvars)]
        sign = (
            equation.primitive.name,
            tuple((a.shape, str(a.dtype)) for a in avals),
            str(equation.params.get("length")),
        )
        if sign not in known:
            program = trunk.excerpt(index)
            shapes = tuple(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in program.jaxpr.invars)
            graph = capture(Task(versions.jaxpr_as_fun(program), shapes, mode="inference"))
            known[sign] = sum(
                times * float(compute.seconds(operator, graph.tensors, shards, inside.device))
                for operator, times in graph.walk()
                if not operator.subgraphs
            )
        found[index] = PASSES * known[sign] + per_byte * trunk.fresh[index]
    return found


def _planned(stage: Stage, name: str, inside: Cluster, entry_s: float, under_way: int) -> PlannedStage:
    """The plan of a stage on its own devices; `under_way` micro-batches wait in it at most."""
    program = Program.of(stage.task(name))
    planner = Planner(program.graph, program.structure, inside)
    candidate = planner.plan("auto").best
    placed = place(program.graph, program.structure, candidate.choices)
    mesh, device = candidate.mesh, inside.device
    parts = results_of(program.graph)

    def part(outputs: Sequence[int], given: Sequence[int] = ()) -> Estimate:
        return estimate(program.graph.part(outputs, given=given), placed, mesh, device)

    def bytes_of(tensors: Sequence[int]) -> int:
        shards = (local_shape(program.graph.tensors[t].shape, placed.tensors[t], mesh.sizes) for t in tensors)
        return sum(math.prod(s) * program.graph.tensors[t].itemsize for t, s in zip(tensors, shards, strict=True))

    last, back = not stage.section.passed, (*parts.held, *parts.back)
    kept = () if last else residuals(program.graph, parts.forward, back)
    comes = bytes_of(program.graph.inputs[parts.given])
    memory = candidate.estimate.usage.total + (under_way - 1) * (comes + bytes_of(kept))
    if memory > device.usable_bytes:
        kept, memory = (), candidate.estimate.usage.total + (under_way - 1) * comes
    return PlannedStage(
        stage,
        program,
        candidate,
        placed,
        kept,
        0.0 if last else part(parts.forward).step_s,
        part(back, kept).step_s,
        part(parts.update).step_s if parts.update else 0.0,
        entry_s,
        memory,
    )
