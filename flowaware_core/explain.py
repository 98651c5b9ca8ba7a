"""A plan in words: what is split over what, where memory goes, what a step spends its time on, and what else was looked at."""

from __future__ import annotations

from collections.abc import Sequence

from flowaware_core.plan import Plan, WhatIf, decode

# How many differing choices of a kind are listed one by one.
LISTED = 20
# How many of the things that a step is spent on are named.
LIMITS = 3
GIB = 2**30


def describe(plan: Plan) -> str:
    """The plan for a person: a dozen lines of plain text. Every figure is a prediction of the cost model."""
    predicted = plan.predicted
    axes = " x ".join(f"{name} {size}" for name, size in plan.axes.items())
    usable = plan.device["usable_bytes"]
    lines = [
        f"Plan for {plan.task} on {plan.cluster}: {plan.num_devices} devices ({plan.device['kind']}), mesh {axes}",
        f"  {plan.strategy}",
        f"  predicted step      {seconds(predicted.step_s)}"
        f" = compute {seconds(predicted.compute_s)} + communication {seconds(predicted.communication_s)}",
        f"  predicted memory    {predicted.memory['total'] / GIB:.2f} GiB a device of {usable / GIB:.2f} GiB usable"
        f" (arguments {predicted.memory['arguments'] / GIB:.2f}, temporaries {predicted.memory['temporaries'] / GIB:.2f})",
    ]
    for kind, entry in predicted.collectives.items():
        lines.append(f"  predicted {kind:<18} {entry['count']:>5} with {size(entry['bytes'])} a device")
    lines += _scheduled(plan)
    lines += _limited(plan)
    lines += _certified(plan)
    if plan.alternatives:
        lines.append("  also looked at:")
    for other in plan.alternatives:
        verdict = "" if other.feasible else "  does not fit"
        loses = f" ({100 * (other.step_s / predicted.step_s - 1):+.1f} %)" if predicted.step_s > 0 else ""
        lines.append(
            f"    {other.strategy:<8} step {seconds(other.step_s)}{loses},"
            f" {other.peak_bytes_per_device / GIB:.2f} GiB a device{verdict}"
        )
    for change in plan.what_if:
        lines.append(f"  with {change.change}: {_brings(change, predicted.step_s)}")
    lines += [f"  note: {note}" for note in plan.notes]
    spent = plan.seconds
    lines.append(
        f"  {plan.operators} operators; traced in {spent['capture']:.1f} s, analysed in {spent['analyse']:.1f} s,"
        f" searched in {spent['search']:.1f} s; plan {plan.hash}"
    )
    return "\n".join(lines)


def _scheduled(plan: Plan) -> list[str]:
    """What runs when, where it is not everything at once."""
    count, again = plan.schedule["micro_batches"], plan.schedule["recompute"]
    lines = [f"  {count} micro-batches one after the other, gradients added up"] if count > 1 else []
    kept = {
        "products": "what goes into a block and its matrix products",
        "inputs": "what goes into a block",
        "few inputs": "what goes into some of the rounds",
    }
    return lines + [f"  {kind}: computed again in the backward pass from {kept[name]}" for kind, name in again.items()]


def _limited(plan: Plan) -> list[str]:
    """What a step is spent on, the largest first, in words."""
    whole = plan.predicted.step_s
    if not plan.limits or whole <= 0:
        return []
    parts = []
    for name, spent in sorted(plan.limits.items(), key=lambda item: -item[1])[:LIMITS]:
        words = "compute" if name == "compute" else f"links over {name}"
        parts.append(f"{words} {100 * spent / whole:.0f} %")
    return [f"  the step is limited by {', then '.join(parts)}"]


def _certified(plan: Plan) -> list[str]:
    """How close to the best the plan is, and of how many."""
    if not plan.searched:
        return []
    space = f"10^{plan.searched['digits']} plans on the largest of {plan.searched['meshes']} meshes"
    if plan.gap is None:
        return [f"  chosen among {space}; how close to the best it is was not certified"]
    lines = [f"  at most {100 * plan.gap:.2g} % from the best of {space}"]
    if "least_s" in plan.searched:
        lines.append(f"  of this schedule; with any other a step takes at least {seconds(plan.searched['least_s'])}")
    return lines


def _brings(change: WhatIf, now: float) -> str:
    if change.step_s is None:
        return "nothing fits"
    if change.step_s == now:
        return "the same step: it is not what binds"
    return f"step {seconds(change.step_s)} ({100 * (change.step_s / now - 1):+.1f} %)"


def diff(one: Plan, other: Plan) -> str:
    """Where two plans differ, a line each; empty for equal plans.

    Groups, operators and views are compared only between plans for the same program.
    """
    lines = []
    for name in ("task", "cluster", "requested", "strategy"):
        before, after = getattr(one, name), getattr(other, name)
        if before != after:
            lines.append(f"{name}: {before} -> {after}")
    if dict(one.axes) != dict(other.axes):
        lines.append(f"mesh: {dict(one.axes)} -> {dict(other.axes)}")
    if one.predicted.step_s != other.predicted.step_s:
        lines.append(f"predicted step: {seconds(one.predicted.step_s)} -> {seconds(other.predicted.step_s)}")
    totals = one.predicted.memory["total"], other.predicted.memory["total"]
    if totals[0] != totals[1]:
        lines.append(f"predicted memory: {size(totals[0])} -> {size(totals[1])}")
    if one.fingerprint != other.fingerprint:
        lines.append(f"program: {one.fingerprint} -> {other.fingerprint}; their choices cannot be compared")
        return "\n".join(lines)
    for part in ("groups", "operators", "views"):
        before, after = (decode(plan.choices[part], tuple(plan.axes)) for plan in (one, other))
        names = [tuple(plan.axes) for plan in (one, other)]
        changed = [n for n in before if _words(before[n], names[0]) != _words(after.get(n, ()), names[1])]
        for number in changed[:LISTED]:
            words = _words(before[number], names[0]), _words(after.get(number, ()), names[1])
            lines.append(f"{part} {number}: {words[0]} -> {words[1]}")
        if len(changed) > LISTED:
            lines.append(f"{part}: {len(changed) - LISTED} more differ")
    return "\n".join(lines)


def _words(assignment: Sequence[int], axes: Sequence[str]) -> str:
    return " ".join(f"{axes[axis]}:{dim}" for axis, dim in enumerate(assignment) if dim >= 0) or "whole"


def seconds(value: float) -> str:
    """A duration with a unit that suits it."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms"


def size(value: float) -> str:
    """A number of bytes with a unit that suits it."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:.2f} {unit}"
    return f"{value:.0f} B"
