"""Every strategy's plan of one task side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

import flowaware_core as fa


@dataclasses.dataclass(frozen=True)
class Row:
    """One strategy: its plan, or why it has none."""

    strategy: str
    plan: fa.Plan | None
    reason: str = ""


def compare(task: fa.Task, cluster: fa.Cluster) -> list[Row]:
    """Plans the task with each strategy."""
    return [
        Row(strategy, found) if isinstance(found, fa.Plan) else Row(strategy, None, str(found))
        for strategy, found in fa.compare(task, cluster).items()
    ]


def show(rows: Sequence[Row]) -> None:
    """Prints the comparison, the fastest marked; every figure is predicted."""
    table = Table(title="strategies (predicted)", title_justify="left")
    for heading in ("strategy", "step", "peak memory a device", "sent by a device a step", "mesh"):
        table.add_column(heading)
    steps = {row.strategy: row.plan.to_json()["predicted"]["step_s"] for row in rows if row.plan is not None}
    for row in rows:
        if row.plan is None:
            table.add_row(row.strategy, "-", "does not fit", "-", "-")
            continue
        predicted = row.plan.to_json()["predicted"]
        fastest = "  (fastest)" if predicted["step_s"] == min(steps.values()) else ""
        table.add_row(
            row.strategy,
            f"{predicted['step_s'] * 1e3:.3g} ms{fastest}",
            f"{predicted['peak_bytes_per_device'] / 2**30:.3g} GiB",
            f"{sum(predicted['collective_bytes'].values()) / 2**20:.4g} MiB",
            " x ".join(f"{name} {size}" for name, size in row.plan.mesh["axes"].items()),
        )
    # A fixed width where there is no terminal: a file or a pipe gets whole lines.
    console = Console(width=None if Console().is_terminal else 120)
    console.print(table)
    for row in rows:
        if row.plan is None:
            console.print(f"{row.strategy} does not fit: {row.reason}", markup=False, highlight=False, soft_wrap=True)
