"""What was planned, drawn: a page of HTML and a trace, of one program or of stages."""

from __future__ import annotations

import html
import itertools
from typing import Any

from flowaware_core import page as pages
from flowaware_core import timeline as timelines
from flowaware_core.drafting import drafted
from flowaware_core.explain import seconds, size
from flowaware_core.order import timetable
from flowaware_core.pipeline import Pipeline
from flowaware_core.plan import Plan
from flowaware_core.planned import PlannedStage
from flowaware_core.search.strategies import Result

_COLOURS = {"forward": pages.COMPUTE, "backward": pages.COLOURS[0], "update": pages.COLOURS[1]}


def page(plan: Plan | Pipeline) -> str:
    """One page of HTML that needs no network. Every figure on it is a prediction of the cost model."""
    if isinstance(plan, Plan):
        return pages.page(plan)
    parts = [
        f"<p>{html.escape(plan.describe().splitlines()[0])}, stage loads within {100 * plan.imbalance:.2g} %.</p>",
        *pages.part("One step", _timetable(plan), "A row is a stage; point at a pass for its name and times."),
        *pages.part("Stages", _stages(plan), ""),
    ]
    for number, stage in enumerate(plan.stages):
        own = _plan_of(plan, number, stage)
        note = "Each square is a device; equal colours hold equal parts."
        parts += pages.part(f"Stage {number}: what lies where", pages.layouts(own), note)
        parts += pages.part(f"Stage {number}: memory of a device at its fullest moment", pages.memory(own), "")
        parts += pages.part(f"Stage {number}: what a micro-batch and the update are spent on", pages.costs(own), "")
    return pages.document(f"{plan.name} on {plan.cluster.name}", parts)


def timeline(plan: Plan | Pipeline) -> dict[str, Any]:
    """The predicted step in the format of Chrome's trace viewer; a row is a stage, or a kind of work of one program."""
    if isinstance(plan, Plan):
        return timelines.timeline(plan)
    pieces = [(stage, f"stage {stage}", name, start, spent) for stage, name, _, start, spent in _pieces(plan)]
    return timelines.trace(f"{plan.name} on {plan.cluster.name} (predicted)", pieces)


def _plan_of(plan: Pipeline, number: int, stage: PlannedStage) -> Plan:
    return drafted(
        stage.program,
        f"{plan.cluster.name}, stage {number}",
        stage.cluster.device,
        stage.candidate.strategy,
        Result(stage.candidate),
        {},
        (),
    )


def _pieces(plan: Pipeline) -> list[tuple[int, str, str, float, float]]:
    """(stage, name, kind, start in s, seconds) of all passes and updates."""
    stages = plan.stages
    passes = timetable(
        [stage.forward_s for stage in stages],
        [stage.backward_s for stage in stages],
        [stage.entry_s for stage in stages],
        plan.micro_batches,
    )
    found = [
        (one.stage, f"{one.direction} pass of micro-batch {one.number}", one.direction, one.start_s, one.seconds)
        for one in passes
    ]
    end = max(one.start_s + one.seconds for one in passes)
    return found + [(n, "update", "update", end, stage.update_s) for n, stage in enumerate(stages) if stage.update_s]


def _timetable(plan: Pipeline) -> str:
    pieces = _pieces(plan)
    whole = max(start + spent for *_, start, spent in pieces)
    scale = pages.WIDTH / whole
    boxes = [
        pages.rect(
            start * scale, 24 * stage, spent * scale, 20, _COLOURS[kind], f"stage {stage}: {name}, {seconds(spent)}"
        )
        for stage, name, kind, start, spent in pieces
    ]
    keys = "".join(f'<span class="key" style="background:{colour}"></span>{kind}' for kind, colour in _COLOURS.items())
    height = 24 * len(plan.stages)
    return (
        f'<svg viewBox="0 0 {pages.WIDTH} {height}" width="{pages.WIDTH}">{"".join(boxes)}</svg>'
        f'<p class="small">0 to {seconds(whole)}. {keys}</p>'
    )


def _stages(plan: Pipeline) -> str:
    begins = list(itertools.accumulate(plan.groups, initial=0))
    rows = [
        pages.table_row(
            [
                number,
                f"{begins[number]} to {begins[number + 1] - 1}",
                len(stage.stage.own),
                " x ".join(f"{axis.name} {axis.size}" for axis in stage.candidate.mesh.axes),
                seconds(stage.forward_s),
                seconds(stage.backward_s),
                seconds(stage.entry_s),
                seconds(stage.update_s),
                size(stage.memory_bytes),
                f"{len(stage.kept)} kept" if stage.kept else "computed again" if stage.forward_s else "all kept",
            ]
        )
        for number, stage in enumerate(plan.stages)
    ]
    heads = "stage|devices|weights|mesh|forward|backward|to get there and back|update|memory of a device|activations"
    return pages.table(heads.split("|"), rows)
