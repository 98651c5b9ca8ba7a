"""A training step in stages: groups of devices that each hold a part of the model and pass micro-batches along.

`pipeline` cuts the loss where the step is fastest, plans each stage on its own devices, and predicts the whole. Each stage keeps
what comes into it for every micro-batch under way and computes the rest again on the way back, so memory grows with what passes a
cut, not with what is inside a stage.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flowaware_core import versions
from flowaware_core.cluster.mesh import natural
from flowaware_core.cluster.model import GIB, Cluster
from flowaware_core.cost import compute
from flowaware_core.cost.estimate import Estimate, estimate
from flowaware_core.graph.capture import capture
from flowaware_core.graph.layout import local_shape
from flowaware_core.graph.owners import ALL, Split, split
from flowaware_core.graph.placement import Placement, place
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
# A stage computes its forward pass again before it goes back, which costs twice the forward pass.
PASSES = 4.0
# Micro-batches per stage that are looked at: with fewer most of the time is spent filling and draining.
PER_STAGE = (1, 2, 4, 8)


@dataclasses.dataclass(frozen=True, eq=False)
class PlannedStage:
    """A stage with its plan.

    Attributes:
        stage: what it runs.
        program, candidate, placement: its plan on its own devices.
        forward_s, backward_s, update_s: seconds of one micro-batch's passes and of the update.
        entry_s: seconds in which a micro-batch gets here and its derivatives get back.
        memory_bytes: on one device, micro-batches under way included.
    """

    stage: Stage
    program: Program
    candidate: Candidate
    placement: Placement
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
    """

    training: Training
    state: Any
    batch: Any
    cluster: Cluster
    micro_batches: int
    cuts: tuple[int, ...]
    stages: tuple[PlannedStage, ...]
    split: Split

    @property
    def step_s(self) -> float:
        """Predicted seconds of a step."""
        return pipelined([stage.load_s for stage in self.stages], self.micro_batches) + max(
            stage.update_s for stage in self.stages
        )

    @property
    def imbalance(self) -> float:
        """By how much the lightest stage is below the busiest, as a part of the busiest."""
        loads = [stage.load_s for stage in self.stages]
        return 1.0 - min(loads) / max(loads)

    @property
    def fits(self) -> bool:
        return all(stage.memory_bytes <= self.cluster.device.usable_bytes for stage in self.stages)

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
) -> Pipeline:
    """Finds the fastest split of a training step into stages.

    Args:
        training: loss and optimizer.
        state, batch: arrays or shapes.
        cluster: the devices; stages are groups of the members of its outermost level.
        stages: how many; None chooses.
        micro_batches: how many parts of the batch; None chooses among those that the loss allows.

    Raises:
        ValueError: the members of the outermost level do not divide into so many stages, the loss does not split into so many
            parts or has no place for so many cuts, or the update mixes parameters of several stages.
    """
    state, batch = abstract(state), abstract(batch)
    task = training.task(state, batch)
    outer = cluster.levels[0]
    groups = [count for count in range(2, outer.size + 1) if outer.size % count == 0]
    if stages is not None and stages not in groups:
        raise ValueError(
            f"stages={stages}; the {outer.size} {outer.name}s of {cluster.name} divide into {groups or 'no stages'}"
        )
    allowed = task.micro_batches
    if micro_batches is not None and micro_batches not in allowed:
        raise ValueError(f"micro_batches={micro_batches}; this batch and loss allow {list(allowed)}")
    best: Pipeline | None = None
    for count in [stages] if stages is not None else groups:
        parts = [n for n in allowed if n in [count * times for times in PER_STAGE]] or [allowed[-1]]
        for part in [micro_batches] if micro_batches is not None else parts:
            found = _staged(training, state, batch, cluster, count, part)
            if found is not None and (best is None or _key(found) < _key(best)):
                best = found
    if best is None:
        raise ValueError(
            f"the loss of {task.name} has too few places to cut it into stages; repeated layers in a loop have none"
        )
    return best


def _key(found: Pipeline) -> tuple[bool, float]:
    return not found.fits, found.step_s


def _staged(training: Training, state: Any, batch: Any, cluster: Cluster, count: int, parts: int) -> Pipeline | None:
    """The best cuts into so many stages, corrected by what the plans of the stages say; None where there are none."""
    whole = _Whole(training, state, batch, parts)
    outer = cluster.levels[0]
    inside = dataclasses.replace(
        cluster, levels=(dataclasses.replace(outer, size=outer.size // count), *cluster.levels[1:])
    )
    weights = _weights(whole.trunk, inside)
    positions = candidates(whole.trunk.crossing)
    link = natural(cluster).axes[0]
    per_byte = 1.0 / (inside.num_devices * link.bandwidth_bytes_per_s)
    transfer = 2.0 * (whole.trunk.crossing[positions] * per_byte + link.latency_s)
    best: Pipeline | None = None
    seen: set[tuple[int, ...]] = set()
    for _ in range(ROUNDS):
        cuts = partition(weights, positions, transfer, count, parts)
        if cuts is None or cuts in seen:
            break
        seen.add(cuts)
        entries = [0.0, *(float(transfer[np.searchsorted(positions, cut)]) for cut in cuts)]
        division, stages = whole.stages(cuts)
        planned = tuple(
            _planned(stage, f"stage {number}", inside, entries[number], count - number)
            for number, stage in enumerate(stages)
        )
        found = Pipeline(training, state, batch, cluster, parts, cuts, planned, division)
        if best is None or _key(found) < _key(best):
            best = found
        edges = [0, *cuts, len(weights)]
        for (begin, end), stage in zip(itertools.pairwise(edges), planned, strict=True):
            weights[begin:end] *= (stage.forward_s + stage.backward_s) / max(float(weights[begin:end].sum()), 1e-30)
    return best


class _Whole:
    """Loss and update of one micro-batch, before they are cut."""

    def __init__(self, training: Training, state: Any, batch: Any, parts: int):
        self.training, self.state = training, state
        params = state["params"]
        extra = None if training.extra is None else state[training.extra]
        rows = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((leaf.shape[0] // parts, *leaf.shape[1:]), leaf.dtype), batch
        )
        key = state["rng"]
        counts = jax.eval_shape(lambda *args: _counts(training.loss(*args)), params, extra, batch, key)
        args = (params, extra, rows, key, counts)
        self.trunk = Trunk(self._part, args, weights=(0, 1))
        ends = list(itertools.accumulate(len(jax.tree.leaves(argument)) for argument in args))
        self.leafs = Leafs(*ends)
        self.loss_shapes = jax.tree.leaves(args)
        self.found = jax.eval_shape(self._part, *args)
        self.num_sums = len(jax.tree.leaves(self.found[1]))
        gradients, sums = jax.tree.map(wide, (params, self.found[1]))
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
                raise ValueError(
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
    """Seconds of both passes of each equation on one stage's devices, as if they shared it equally."""
    known: dict[Any, float] = {}
    found = np.zeros(len(trunk.equations))
    shards = np.array(float(inside.num_devices))
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
        found[index] = PASSES * known[sign]
    return found


def _planned(stage: Stage, name: str, inside: Cluster, entry_s: float, under_way: int) -> PlannedStage:
    """The plan of a stage on its own devices; `under_way` micro-batches wait in it at most."""
    program = Program.of(stage.task(name))
    planner = Planner(program.graph, program.structure, inside)
    candidate = planner.plan("auto").best
    placed = place(program.graph, program.structure, candidate.choices)
    mesh, device = candidate.mesh, inside.device
    parts = results_of(program.graph)

    def part(outputs: Sequence[int]) -> Estimate:
        return estimate(program.graph.part(outputs), placed, mesh, device)

    last = not stage.section.passed
    forward = 0.0 if last else part(parts.forward).step_s
    waiting = sum(
        int(np.prod(local_shape(shape.shape, placed.tensors[tensor], mesh.sizes)))
        * program.graph.tensors[tensor].itemsize
        for shape, tensor in zip(stage.section.given, program.graph.inputs[parts.given], strict=True)
    )
    return PlannedStage(
        stage,
        program,
        candidate,
        placed,
        forward,
        part((*parts.held, *parts.back)).step_s,
        part(parts.update).step_s if parts.update else 0.0,
        entry_s,
        candidate.estimate.usage.total + (under_way - 1) * waiting,
    )
