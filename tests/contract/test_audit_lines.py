"""An audit names the lines of the program whose values XLA replicates against the plan."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import flowaware_core as fa
from flowaware_core.graph import rules


def spectra(x: Any, w: Any) -> Any:
    y = jnp.sin(x)
    z = jnp.fft.fft(y, axis=-1)  # the line that is named
    return jnp.abs(z) @ w


def test_a_replicated_value_is_reported_with_its_line(flat: fa.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA's partitioner gathers what a Fourier transform reads, along whatever it is cut; the plan knows better."""
    right = rules.RULES["fft"]
    args = np.ones((256, 1024), np.float32), np.ones((1024, 8), np.float32)
    task = fa.Task(spectra, args, batch=(0,))
    plan = fa.plan(task, flat, strategy="data")
    step = fa.apply(plan, task)
    audit = fa.audit(step.compile(optimise=False), plan, step)
    assert audit.ok, audit.describe()

    monkeypatch.setitem(rules.RULES, "fft", lambda *given: dataclasses.replace(right(*given), local=False))
    plan = fa.plan(task, flat, strategy="data")
    step = fa.apply(plan, task)
    audit = fa.audit(step.compile(optimise=False), plan, step)
    named = [finding for finding in audit.findings if "replicates against the plan" in finding]
    line = next(n for n, text in enumerate(open(__file__), 1) if "the line that is named" in text)  # noqa: SIM115
    assert len(named) == 1 and f"fft at test_audit_lines.py:{line} (spectra)" in named[0], audit.describe()
