"""The plan: what is split over what, in names a person can read, as JSON that another process can run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Predicted:
    """What the cost model says of one step on one device.

    Attributes:
        step_s, compute_s, communication_s: seconds.
        flops: floating point operations of one device.
        memory: bytes of arguments, outputs, temporaries, aliases and their total on the target.
        memory_on_cpu: the same as the CPU compiler lays the program out, which is what an audit without accelerators sees.
        collectives: kind -> count and bytes that one device puts in.
    """

    step_s: float
    compute_s: float
    communication_s: float
    flops: float
    memory: Mapping[str, int]
    memory_on_cpu: Mapping[str, int]
    collectives: Mapping[str, Mapping[str, int]]

    def to_json(self) -> dict[str, Any]:
        return {
            "step_s": self.step_s,
            "compute_s": self.compute_s,
            "communication_s": self.communication_s,
            "flops": self.flops,
            "peak_bytes_per_device": self.memory["total"],
            "memory": dict(self.memory),
            "memory_on_cpu": dict(self.memory_on_cpu),
            "collective_bytes": {kind: entry["bytes"] for kind, entry in self.collectives.items()},
            "collectives": {kind: dict(entry) for kind, entry in self.collectives.items()},
        }

    @staticmethod
    def from_json(tree: Mapping[str, Any]) -> Predicted:
        keys = ("step_s", "compute_s", "communication_s", "flops", "memory", "memory_on_cpu", "collectives")
        return Predicted(**{key: tree[key] for key in keys})


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A plan that was looked at and not taken."""

    strategy: str
    mesh: Mapping[str, int]
    step_s: float
    peak_bytes_per_device: int
    feasible: bool

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """What another cluster would bring: the best plan's step there, None where nothing fits."""

    change: str
    step_s: float | None

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything needed to run a task split over a cluster, and what was predicted for it.

    Attributes:
        task: name of the task.
        cluster: name of the cluster.
        device: kind, memory and usable bytes of its devices.
        requested: the strategy asked for: "auto" or a template's name.
        strategy: a sentence that says what is split over what.
        axes: mesh axis -> size, from the outside in.
        links: mesh axis -> bandwidth_bytes_per_s and latency_s.
        choices: "groups", "operators" and "views": assignment -> ids, both as text; see `encode`.
        fingerprint: of the program the choices are for.
        operators: number of operators planned.
        seconds: capture, analyse, search, and baselines: pricing of the alternatives.
        predicted: for one step.
        gap: certified distance from the best of the searched space; None where nothing is certified.
        alternatives: other strategies on the same cluster.
        limits: seconds of a step by what they are spent on: "compute", and the axes that collectives run over.
        picture: what a page shows: "segments" of the step in program order, "memory" by kind at the fullest moment, "layouts" of
            the arguments; see `cost/profile.py`.
        made_for: program, cluster and strategy; see `identity.py`.
        schedule: what of a step runs when: micro_batches, and recompute: block kind -> what is kept of it.
        what_if: what other clusters would bring; empty unless asked for.
        searched: number of meshes, and the number of decimal digits of the number of plans on the largest; where a schedule was
            chosen too, "least_s": seconds that no plan of any schedule goes below. Empty for a template.
        notes: what the reader should know, a sentence each, such as operators that have no rule.
    """

    task: str
    cluster: str
    device: Mapping[str, Any]
    requested: str
    strategy: str
    axes: Mapping[str, int]
    links: Mapping[str, Mapping[str, float]]
    choices: Mapping[str, Mapping[str, str]]
    fingerprint: str
    operators: int
    seconds: Mapping[str, float]
    predicted: Predicted
    gap: float | None
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...] = ()
    searched: Mapping[str, float] = dataclasses.field(default_factory=dict)
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    what_if: tuple[WhatIf, ...] = ()
    made_for: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    picture: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    schedule: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"micro_batches": 1, "recompute": {}})

    @property
    def mesh(self) -> dict[str, dict[str, int]]:
        return {"axes": dict(self.axes)}

    @property
    def num_devices(self) -> int:
        count = 1
        for size in self.axes.values():
            count *= size
        return count

    @property
    def hash(self) -> str:
        """Of everything but the seconds it took."""
        tree = {key: value for key, value in self.to_json().items() if key != "seconds"}
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values; `from_json` reads it back."""
        return {
            "recipe": self.task,
            "cluster": self.cluster,
            "device": dict(self.device),
            "operators": self.operators,
            "seconds": dict(self.seconds),
            "requested": self.requested,
            "strategy": self.strategy,
            "mesh": {"axes": dict(self.axes), "links": {name: dict(link) for name, link in self.links.items()}},
            "stages": 1,
            "made_for": dict(self.made_for),
            "picture": dict(self.picture),
            "schedule": dict(self.schedule),
            "predicted": self.predicted.to_json(),
            "gap": self.gap,
            "searched": dict(self.searched),
            "limits": dict(self.limits),
            "what_if": [change.to_json() for change in self.what_if],
            "alternatives": [alternative.to_json() for alternative in self.alternatives],
            "notes": list(self.notes),
            "fingerprint": self.fingerprint,
            "choices": {part: dict(entries) for part, entries in self.choices.items()},
        }

    @staticmethod
    def from_json(tree: Mapping[str, Any]) -> Plan:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: a key is missing.
        """
        try:
            return Plan(
                task=tree["recipe"],
                cluster=tree["cluster"],
                device=tree["device"],
                requested=tree["requested"],
                strategy=tree["strategy"],
                axes=tree["mesh"]["axes"],
                links=tree["mesh"]["links"],
                choices=tree["choices"],
                fingerprint=tree["fingerprint"],
                operators=tree["operators"],
                seconds=tree["seconds"],
                predicted=Predicted.from_json(tree["predicted"]),
                gap=tree["gap"],
                alternatives=tuple(Alternative(**alternative) for alternative in tree["alternatives"]),
                notes=tuple(tree["notes"]),
                searched=tree.get("searched", {}),
                limits=tree.get("limits", {}),
                what_if=tuple(WhatIf(**change) for change in tree.get("what_if", ())),
                made_for=tree["made_for"],
                picture=tree["picture"],
                schedule=tree["schedule"],
            )
        except KeyError as error:
            raise ValueError(f"the plan has no {error.args[0]!r}; it needs every key that `to_json` writes") from None


def encode(assignments: Mapping[int, Sequence[int]], axes: Sequence[str]) -> dict[str, str]:
    """Assignments by id as text: `{"node:0 card:1": "3-7 9"}` puts axis node on dimension 0 and card on dimension 1."""
    by_assignment: dict[str, list[int]] = {}
    for number, assignment in sorted(assignments.items()):
        words = [f"{axes[axis]}:{dim}" for axis, dim in enumerate(assignment) if dim >= 0]
        by_assignment.setdefault(" ".join(words) or "whole", []).append(number)
    return {key: _ranges(numbers) for key, numbers in by_assignment.items()}


def decode(entries: Mapping[str, str], axes: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """Reads `encode`'s text."""
    found: dict[int, tuple[int, ...]] = {}
    position = {name: index for index, name in enumerate(axes)}
    for key, numbers in entries.items():
        assignment = [-1] * len(axes)
        for word in () if key == "whole" else key.split():
            name, _, dim = word.rpartition(":")
            if name not in position or not dim.isdigit():
                raise ValueError(f"the plan assigns {word!r}; expected AXIS:DIMENSION with an axis among {list(axes)}")
            assignment[position[name]] = int(dim)
        for first, last in _spans(numbers):
            found.update(dict.fromkeys(range(first, last + 1), tuple(assignment)))
    return found


def _ranges(numbers: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _spans(text: str) -> list[tuple[int, int]]:
    spans = []
    for word in text.split():
        first, _, last = word.partition("-")
        spans.append((int(first), int(last or first)))
    return spans
