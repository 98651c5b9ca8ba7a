"""Choices as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowaware_core.explain import describe
from flowaware_core.plan import Alternative, Plan, Predicted, WhatIf, decode, encode

AXES = ("node", "card_a", "card_b")


@given(st.dictionaries(st.integers(0, 50), st.tuples(*[st.integers(-1, 4)] * 3)))
def test_what_is_written_is_read_back(assignments: dict[int, tuple[int, ...]]) -> None:
    assert decode(encode(assignments, AXES), AXES) == assignments


def test_runs_are_written_as_ranges() -> None:
    assert encode({3: (0, -1, 1), 4: (0, -1, 1), 9: (-1, -1, -1)}, AXES) == {"node:0 card_b:1": "3-4", "whole": "9"}


def test_an_unknown_axis_is_named() -> None:
    with pytest.raises(ValueError, match="rack:0"):
        decode({"rack:0": "1"}, AXES)


def made(**changes: Any) -> Plan:
    """A small plan; only what is asked for matters."""
    memory = {"arguments": 1, "outputs": 1, "temporaries": 1, "aliases": 0, "total": 3}
    predicted = Predicted(2.0, 1.5, 0.5, 1e9, memory, memory, {})
    fields: dict[str, Any] = {
        "task": "task",
        "cluster": "cluster",
        "device": {"kind": "card", "usable_bytes": 2**30},
        "requested": "auto",
        "strategy": "examples over node (2)",
        "axes": {"node": 2},
        "links": {"node": {"bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}},
        "choices": {"groups": {}, "operators": {}, "views": {}},
        "fingerprint": "0",
        "operators": 1,
        "seconds": {"capture": 0.0, "analyse": 0.0, "search": 0.0},
        "predicted": predicted,
        "gap": 0.001,
        "alternatives": (Alternative("data", {"node": 2}, 3.0, 2**30, True),),
        "searched": {"meshes": 3, "digits": 40},
        "limits": {"node": 0.5, "compute": 1.5},
        "what_if": (WhatIf("3 nodes instead of 2", 1.0), WhatIf("twice the memory, 2 GiB a device", 2.0)),
    }
    return Plan(**{**fields, **changes})


def test_a_plan_survives_json() -> None:
    plan = made()
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_says_what_binds_and_what_would_help() -> None:
    text = describe(made())
    assert "limited by compute 75 %, then links over node 25 %" in text
    assert "at most 0.1 % from the best of 10^40 plans on the largest of 3 meshes" in text
    assert "data     step 3.00 s (+50.0 %)" in text
    assert "with 3 nodes instead of 2: step 1.00 s (-50.0 %)" in text
    assert "twice the memory, 2 GiB a device: the same step" in text
    assert "not certified" in describe(made(gap=None))
