"""The predicted step in the format of Chrome's trace viewer, which chrome://tracing and ui.perfetto.dev open.

The format is described in "Trace Event Format" of the Catapult project: complete events ("ph": "X"), times in microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowaware_core.page import pieces
from flowaware_core.plan import Plan


def timeline(plan: Plan) -> dict[str, Any]:
    """The step of one device, which all take alike: a row for compute and one for the links over each mesh axis."""
    rows: dict[str, int] = {}
    found = [(rows.setdefault(lane, len(rows)), lane, name, start, spent) for name, start, spent, lane in pieces(plan)]
    return {**trace(f"{plan.task} on {plan.cluster} (predicted)", found), "otherData": {"plan": plan.hash}}


def trace(title: str, found: Sequence[tuple[int, str, str, float, float]]) -> dict[str, Any]:
    """A trace of (row, name of the row, name, start in s, seconds)."""
    about = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": title}}]
    for row, lane in {row: lane for row, lane, *_ in found}.items():
        about.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": {"name": lane}})
    events = [
        {"name": name, "ph": "X", "ts": 1e6 * start, "dur": 1e6 * spent, "pid": 0, "tid": row}
        for row, _, name, start, spent in found
    ]
    return {"traceEvents": about + events, "displayTimeUnit": "ms"}
