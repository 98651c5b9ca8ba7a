"""A plan in words: what is split over what, where memory goes, what a step spends its time on, and what else was looked at."""

from __future__ import annotations

from flowaware_core.plan import Plan

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
    if plan.alternatives:
        lines.append("  also looked at:")
    for other in plan.alternatives:
        verdict = "" if other.feasible else "  does not fit"
        lines.append(
            f"    {other.strategy:<8} step {seconds(other.step_s)}, {other.peak_bytes_per_device / GIB:.2f} GiB a device{verdict}"
        )
    spent = plan.seconds
    lines.append(
        f"  {plan.operators} operators; traced in {spent['capture']:.1f} s, analysed in {spent['analyse']:.1f} s,"
        f" searched in {spent['search']:.1f} s; plan {plan.hash}"
    )
    return "\n".join(lines)


def seconds(value: float) -> str:
    """A duration with a unit that suits it."""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms"


def size(value: float) -> str:
    """A number of bytes with a unit that suits it."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:.2f} {unit}"
    return f"{value:.0f} B"
