"""Alpa's published plans of Wide-ResNets beside ours on the same cluster, under one cost model; nothing runs, all is predicted.

    python -m tests.benchmarks.published_plans [--cases 2b 6.8b 13b] [--json]

Published (Zheng et al., Alpa, OSDI 2022, and `suite_wresnet.py` of its repository): sizes, batches, numbers of micro-batches, the
residual blocks of each stage, its 4 or 8 devices of one node, their logical mesh, and whether examples are forced onto the
mesh's first axis: on a mesh of (8, 1) they are then spread over all 8 devices, on one of (1, 8) over none. What else is split is
not published; Alpa's own way to choose does that here (`strategy="alpa"`).

Assumed: everything of the links of a p3.16xlarge but the 25 Gbit/s between nodes and the data sheet's NVLink; nine tenths of the
memory are usable. Stages run as `fa.PipelinedStep` runs them: what of the activations fits in memory is kept, where Alpa computes
every block again; gradients are reduced in every micro-batch, where Alpa reduces them once a step.

Of each case there are Alpa's plan; its stages, planned inside by our search; our stages with as many micro-batches; our stages; and
our plan without stages. The exit code is 1 where none of ours is at least as fast as Alpa's.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import flowaware_core as fa
from tests.benchmarks import wide_resnet
from tests.benchmarks.wide_resnet import Size

# NVIDIA's data sheet of the V100 (SXM2); NVLink has 6 links of 25 GB/s in each direction.
CARD = fa.Device("V100", 16 * fa.GIB, {"float32": 1.57e13, "float16": 1.25e14}, memory_bandwidth_bytes_per_s=9e11)
NVLINK, NETWORK = 1.5e11, 25e9 / 8


@dataclasses.dataclass(frozen=True)
class Case:
    """A published plan.

    Attributes:
        size, rows, nodes: the network, examples in a batch, nodes of 8 devices.
        micro_batches: parts of the batch.
        blocks: residual blocks of each stage.
        examples: per stage over how many devices the examples are forced; None: Alpa's choice.
    """

    size: Size
    rows: int
    nodes: int
    micro_batches: int
    blocks: tuple[int, ...]
    examples: tuple[int | None, ...]

    @property
    def cluster(self) -> fa.Cluster:
        levels = fa.Level("node", self.nodes, NETWORK, 2e-5, shared=True), fa.Level("card", 8, NVLINK, 1e-5)
        return fa.Cluster(f"{self.nodes} x p3.16xlarge", CARD, levels)

    @property
    def cuts(self) -> list[str]:
        """The first block of every stage but the first."""
        return [f"0['params']['{wide_resnet.name(block)}']" for block in itertools.accumulate(self.blocks[:-1])]


CASES = {
    "2b": Case(Size(50, 448, 2), 1536, 1, 24, (8, 8), (None, 1)),
    "6.8b": Case(Size(50, 320, 16), 1536, 4, 32, (5, 4, 4, 3), (8, None, None, None)),
    "13b": Case(Size(101, 320, 16), 1520, 8, 38, (4, 4, 4, 4, 4, 4, 5, 4), (None, 1, None, 1, None, None, 1, None)),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One plan of a case, predicted but for `search_s`.

    Attributes:
        case, plan, stages, micro_batches: what it is.
        step_s, memory_gib: of a step, and of the fullest device; `fits` says whether there is so much.
        imbalance: by how much the lightest stage is below the busiest, as a part of the busiest.
        idle: the part of the step in which stages have nothing to do or wait for what is on its way between them.
        communication: the largest part of a stage's own time that is communication inside it.
        search_s: seconds that finding or scoring it took here.
    """

    case: str
    plan: str
    stages: int
    micro_batches: int
    step_s: float
    memory_gib: float
    fits: bool
    imbalance: float
    idle: float
    communication: float
    search_s: float


ALPA, OURS = (
    ("Alpa's", "Alpa's stages, planned inside by us"),
    ("ours, as many micro-batches", "ours", "ours, one program"),
)


def rows(name: str, case: Case) -> Iterator[Row]:
    """All plans of a case."""
    training, given = wide_resnet.training(case.size), wide_resnet.abstract(case.size, case.rows)

    def staged(**wanted: Any) -> fa.Pipeline:
        return fa.pipeline(training, *given, case.cluster, name=name, **wanted)

    groups = [case.cluster.num_devices // len(case.blocks)] * len(case.blocks)
    fixed: dict[str, Any] = {"cuts": case.cuts, "micro_batches": case.micro_batches, "groups": groups}
    made: list[tuple[str, Callable[[], Any]]] = [
        (ALPA[0], lambda: staged(**fixed, examples=case.examples, strategy="alpa")),
        (ALPA[1], lambda: staged(**fixed)),
        (OURS[0], lambda: staged(micro_batches=case.micro_batches)),
        (OURS[1], staged),
        (OURS[2], lambda: fa.plan(training.task(*given, name), case.cluster, beside=())),
    ]
    for plan, make in made:
        begin = time.perf_counter()
        try:
            found = make()
        except fa.DoesNotFit as error:
            print(f"{name}, {plan}: {error}", file=sys.stderr)
            continue
        yield _row(name, plan, found, time.perf_counter() - begin)


def _row(case: str, plan: str, found: fa.Pipeline | fa.Plan, spent: float) -> Row:
    if isinstance(found, fa.Pipeline):
        memory, numbers = max(stage.memory_bytes for stage in found.stages), (len(found.stages), found.micro_batches)
        inside = [stage.candidate.estimate for stage in found.stages]
        moved = max(one.communication_s / one.step_s for one in inside)
        parts = found.imbalance, found.idle, moved
        return Row(case, plan, *numbers, found.step_s, memory / fa.GIB, found.fits, *parts, spent)
    numbers, told = (1, found.schedule["micro_batches"]), found.predicted
    parts = 0.0, 0.0, told.communication_s / told.step_s
    return Row(case, plan, *numbers, told.step_s, told.memory["total"] / fa.GIB, True, *parts, spent)


def table(found: list[Row]) -> str:
    """In Markdown."""
    head = (
        "case | plan | stages | micro-batches | step | memory of a device | imbalance | idle | communication | search"
    )
    lines = [f"| {head} |", "| --- | --- |" + " ---: |" * 8]
    for row in found:
        memory = f"{row.memory_gib:.1f} GiB" + ("" if row.fits else ", too much")
        cells = [row.case, row.plan, row.stages, row.micro_batches, f"{row.step_s:.1f} s", memory]
        cells += [f"{100 * part:.0f} %" for part in (row.imbalance, row.idle, row.communication)]
        cells.append(f"{row.search_s:.0f} s")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def as_fast(found: list[Row]) -> bool:
    """Whether in every case the best of our plans takes no longer than either of those with Alpa's stages."""

    def best(case: str, plans: tuple[str, ...]) -> float:
        return min((r.step_s for r in found if r.case == case and r.plan in plans and r.fits), default=float("inf"))

    return all(best(case, OURS) <= best(case, ALPA) for case in {row.case for row in found})


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--json", action="store_true", help="one line of JSON in the place of the table")
    arguments = parser.parse_args(argv)
    found: list[Row] = []
    for name in arguments.cases:
        for row in rows(name, CASES[name]):
            print(row, file=sys.stderr, flush=True)
            found.append(row)
    if arguments.json:
        print(json.dumps([dataclasses.asdict(row) for row in found]))
    else:
        print(table(found))
        print("All steps are predicted by the cost model; nothing was run.")
    return 0 if as_fast(found) else 1


if __name__ == "__main__":
    sys.exit(main())
