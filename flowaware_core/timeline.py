"""The predicted step in the format of Chrome's trace viewer, which chrome://tracing and ui.perfetto.dev open.

The format is described in "Trace Event Format" of the Catapult project: complete events ("ph": "X"), times in microseconds.
"""

from __future__ import annotations

from typing import Any

from flowaware_core.page import pieces
from flowaware_core.plan import Plan


def timeline(plan: Plan) -> dict[str, Any]:
    """The step of one device, which all take alike: a row for compute and one for the links over each mesh axis."""
    rows: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for name, start, spent, lane in pieces(plan):
        row = rows.setdefault(lane, len(rows))
        events.append({"name": name, "ph": "X", "ts": 1e6 * start, "dur": 1e6 * spent, "pid": 0, "tid": row})
    about = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{plan.task} on {plan.cluster} (predicted)"}}
    ]
    for lane, row in rows.items():
        about.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": row, "args": {"name": lane}})
    return {"traceEvents": about + events, "displayTimeUnit": "ms", "otherData": {"plan": plan.hash}}
