"""What a plan was made for, and what of it has changed since: a plan is used again only where nothing has."""

from __future__ import annotations

import collections
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from flowaware_core import versions
from flowaware_core.cluster.model import Cluster
from flowaware_core.program import Program

# So many changes are named.
NAMED = 8


def identity(program: Program, cluster: Cluster, strategy: str) -> dict[str, Any]:
    """A program, a cluster and how they were planned, as plain values that are equal exactly where the plan would be."""
    described = cluster.to_json()
    return {
        "jax": ".".join(map(str, versions.VERSION)),
        "strategy": strategy,
        **_of_program(program),
        "cluster": {**described, "levels": {level["name"]: level for level in described["levels"]}},
    }


@functools.lru_cache(maxsize=8)  # a program that is planned for many clusters
def _of_program(program: Program) -> dict[str, Any]:
    graph = program.graph
    digest = hashlib.sha256(repr((program.fingerprint, sorted(graph.carried.items()), graph.batch)).encode())
    counts: collections.Counter[str] = collections.Counter()
    for operator, times in graph.walk():
        tensors = [graph.tensors[tensor] for tensor in (*operator.inputs, *operator.results)]
        digest.update(repr((operator.rule, [(t.shape, t.dtype) for t in tensors], times, operator.flops)).encode())
        counts[operator.primitive] += 1
    arguments: dict[str, str] = {}
    for name, tensor in zip(graph.input_names, graph.inputs, strict=True):
        # Layers that differ in their number alone stand together.
        pattern, value = re.sub(r"\d+(?=[^\[\]]*'\])", "*", name), graph.tensors[tensor]
        arguments[pattern] = f"{value.dtype}{list(value.shape)}"
    return {
        "arguments": arguments,
        "operators": dict(sorted(counts.items())),
        "program": digest.hexdigest()[:16],
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """What has changed between two identities, a line each, the causes before what follows from them; empty for equal ones."""
    if not before:
        return ("the plan does not say what it was made for",)
    lines = list(_lines(before, after, ""))
    shown = [line for line in lines if not line.startswith("program:")]
    if lines and not shown:
        shown = ["program: the same operators on the same arguments, connected in another way"]
    more = [f"and {len(shown) - NAMED} more changes"] if len(shown) > NAMED else []
    return (*shown[:NAMED], *more)


def _lines(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            yield from _lines(before.get(key), after.get(key), f"{path}.{key}" if path else str(key))
    elif _plain(before) != _plain(after):
        words = {None: "absent"}
        yield f"{path}: {words.get(_plain(before), before)} -> {words.get(_plain(after), after)}"


def _plain(value: Any) -> Any:
    """As JSON gives it back, and hashable."""
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value
