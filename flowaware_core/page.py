"""A plan as one page of HTML that needs nothing else: no network, no script, no font."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flowaware_core.explain import GIB, seconds, size
from flowaware_core.plan import Plan

WIDTH = 960
# So many arguments are drawn, the largest; and so many devices of each.
ROWS, DEVICES = 40, 32
COMPUTE = "#4c78a8"
COLOURS = ("#f58518", "#54a24b", "#e45756", "#72b7b2", "#b279a2", "#9d755d", "#eeca3b", "#bab0ac")

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1000px; padding: 0 1em; color: #222 }
h1 { font-size: 1.5em } h2 { font-size: 1.15em; margin-top: 2em } table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid #ddd; vertical-align: middle }
td.number, th.number { text-align: right } code { font-size: .85em } svg { display: block; max-width: 100% }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .4em 0 1em } p.small { color: #555; font-size: .9em }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd } td, th { border-color: #444 }
  p.small { color: #aaa } }
"""


def page(plan: Plan) -> str:
    """The whole page. Every figure on it is a prediction of the cost model."""
    parts = [
        f"<p>{_text(_opening(plan))}</p>",
        *part("What lies where", layouts(plan), "Each square is a device; equal colours hold equal parts."),
        *part("Memory of a device at its fullest moment", memory(plan), ""),
        *part("One step", _timeline(plan), "In program order; point at a piece for its name and times."),
        *part("What a step is spent on", costs(plan), "Repeated blocks are added up."),
        *part("What else was looked at", _others(plan), ""),
        f'<p class="small">Plan {_text(plan.hash)}; predicted, not measured.</p>',
    ]
    return document(f"{plan.task} on {plan.cluster}", parts)


def document(title: str, parts: Iterable[str]) -> str:
    """The parts as a page."""
    body = "\n".join([f"<h1>{_text(title)}</h1>", *parts])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def part(heading: str, content: str, note: str) -> list[str]:
    if not content:
        return []
    return [f"<h2>{_text(heading)}</h2>", *([f'<p class="small">{_text(note)}</p>'] if note else []), content]


def _opening(plan: Plan) -> str:
    axes = " x ".join(f"{name} {length}" for name, length in plan.axes.items())
    found, usable = plan.predicted, plan.device["usable_bytes"]
    parts = [
        f"{plan.num_devices} devices ({plan.device['kind']}), mesh {axes}: {plan.strategy}.",
        f"A step takes {seconds(found.step_s)}: compute {seconds(found.compute_s)}, communication "
        f"{seconds(found.communication_s)}.",
        f"A device needs {found.memory['total'] / GIB:.2f} GiB of {usable / GIB:.2f} GiB usable.",
    ]
    if plan.gap is not None:
        parts.append(f"At most {100 * plan.gap:.2g} % from the best plan of the searched space.")
    return " ".join(parts)


def layouts(plan: Plan) -> str:
    rows = sorted(plan.picture.get("layouts", ()), key=lambda row: (-row["bytes"], row["name"]))
    lines = []
    for row in rows[:ROWS]:
        shape = " x ".join(
            f"{length}" + (f" over {axes}" if axes else "")
            for length, axes in zip(row["shape"], row["cut"], strict=True)
        )
        count = f" ({row['count']} of them)" if row["count"] > 1 else ""
        cells = [f"<code>{_text(row['name'])}</code>{count}", _text(shape or "a number"), size(row["bytes"])]
        lines.append(table_row([*cells, _devices(plan.axes, row["cut"])]))
    if len(rows) > ROWS:
        lines.append(table_row([f"and {len(rows) - ROWS} smaller kinds of arguments", "", "", ""]))
    return table(["argument", "shape", "bytes of a device", "devices"], lines) if lines else ""


def _devices(axes: Mapping[str, int], cut: Sequence[str]) -> str:
    """A square per device, coloured by the part it holds."""
    names, sizes = list(axes), list(axes.values())
    used = {name for word in cut for name in word.split(" x ") if name}
    count, shown = math.prod(sizes), min(math.prod(sizes), DEVICES)
    squares = []
    for device in range(shown):
        part, rest, stride = 0, device, count
        for name, length in zip(names, sizes, strict=True):
            stride //= length
            place, rest = divmod(rest, stride)
            part = part * length + place if name in used else part
        column, line = device % 16, device // 16
        colour = f"hsl({part * 137.508 % 360:.0f} 55% 55%)"
        squares.append(
            f'<rect x="{column * 11}" y="{line * 11}" width="10" height="10" fill="{colour}">'
            f"<title>device {device}: part {part}</title></rect>"
        )
    return f'<svg width="{16 * 11}" height="{(shown + 15) // 16 * 11}">{"".join(squares)}</svg>'


def memory(plan: Plan) -> str:
    kinds: Mapping[str, int] = plan.picture.get("memory", {})
    if not kinds:
        return ""
    usable = plan.device["usable_bytes"]
    scale = WIDTH / max(usable, sum(kinds.values()))
    bars, keys, left = [], [], 0.0
    for index, (kind, held) in enumerate(sorted(kinds.items(), key=lambda item: -item[1])):
        colour = COLOURS[index % len(COLOURS)]
        label = f"{kind}: {size(held)}"
        bars.append(rect(left, 0, held * scale, 36, colour, label))
        keys.append(f'<span class="key" style="background:{colour}"></span>{_text(label)}')
        left += held * scale
    line = f'<line x1="{usable * scale:.1f}" x2="{usable * scale:.1f}" y1="0" y2="44" stroke="#c00" stroke-width="2"/>'
    keys.append(f"the red line: {size(usable)} usable")
    return f'<svg viewBox="0 0 {WIDTH + 4} 46" width="{WIDTH}">{"".join(bars)}{line}</svg><p class="small">{" ".join(keys)}</p>'


def _timeline(plan: Plan) -> str:
    """Compute above, the links below, to scale."""
    segments = plan.picture.get("segments", ())
    whole = sum(_seconds(segment) for segment in segments)
    if whole <= 0:
        return ""
    lanes = ["compute", *dict.fromkeys(name for segment in segments for name in segment["links"])]
    colour = {name: COMPUTE if name == "compute" else COLOURS[i % len(COLOURS)] for i, name in enumerate(lanes)}
    boxes, now = [], 0.0
    for name, start, spent, lane in pieces(plan):
        box = rect(
            start / whole * WIDTH, 24 * lanes.index(lane), spent / whole * WIDTH, 20, colour[lane],
            f"{name}: {lane} {seconds(spent)}",
        )  # fmt: skip
        boxes.append(box)
        now = max(now, start + spent)
    keys = "".join(f'<span class="key" style="background:{colour[name]}"></span>{_text(name)}' for name in lanes)
    return (
        f'<svg viewBox="0 0 {WIDTH} {24 * len(lanes)}" width="{WIDTH}">{"".join(boxes)}</svg>'
        f'<p class="small">0 to {seconds(now)}. {keys}</p>'
    )


def pieces(plan: Plan) -> Iterable[tuple[str, float, float, str]]:
    """(name, start in s, seconds, lane) of all that happens in a step: lanes are "compute" and the links; nothing overlaps."""
    now = 0.0
    for segment in plan.picture.get("segments", ()):
        for lane, spent in (("compute", segment["compute_s"]), *segment["links"].items()):
            if spent > 0:
                yield segment["name"], now, spent, lane
                now += spent


def costs(plan: Plan) -> str:
    kinds: dict[str, list[float]] = {}
    for segment in plan.picture.get("segments", ()):
        key = segment["kind"].partition(": ")[2] or segment["name"]
        entry = kinds.setdefault(key, [0.0, 0.0, 0])
        entry[0] += segment["compute_s"]
        entry[1] += sum(segment["links"].values())
        entry[2] += segment["operators"]
    whole = plan.predicted.step_s or 1.0
    rows = sorted(kinds.items(), key=lambda item: -item[1][0] - item[1][1])[:ROWS]
    lines = [
        table_row([_text(name), int(operators), seconds(work), seconds(links), f"{100 * (work + links) / whole:.1f} %"])
        for name, (work, links, operators) in rows
    ]
    return table(["part of the step", "operators", "compute", "communication", "share"], lines) if lines else ""


def _others(plan: Plan) -> str:
    lines = []
    for other in plan.alternatives:
        loses = 100 * (other.step_s / plan.predicted.step_s - 1) if plan.predicted.step_s else 0.0
        verdict = f"{loses:+.1f} %" if other.feasible else "does not fit"
        mesh = " x ".join(f"{name} {length}" for name, length in other.mesh.items())
        cells = [_text(other.strategy), _text(mesh), seconds(other.step_s), size(other.peak_bytes_per_device), verdict]
        lines.append(table_row(cells))
    return table(["strategy", "mesh", "step", "memory of a device", "against the plan"], lines) if lines else ""


def _seconds(segment: Mapping[str, Any]) -> float:
    return float(segment["compute_s"] + sum(segment["links"].values()))


def rect(x: float, y: float, width: float, height: float, colour: str, title: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.0f}" width="{max(width, 0.2):.2f}" height="{height:.0f}" fill="{colour}">'
        f"<title>{_text(title)}</title></rect>"
    )


def table(heads: Sequence[str], lines: Sequence[str]) -> str:
    return f"<table><tr>{''.join(f'<th>{_text(head)}</th>' for head in heads)}</tr>{''.join(lines)}</table>"


def table_row(cells: Sequence[object]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
