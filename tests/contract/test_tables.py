"""Rows looked up in a table that is cut along its rows: an embedding whose vocabulary is spread over the devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowaware_core as fa

# Moving the table costs more than adding up what was read of it.
ROWS, WIDTH = 65536, 64


@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_a_table_cut_along_its_rows_is_read_as_planned(flat: fa.Cluster, mode: str) -> None:
    """Parts of the rows are added up by a reduce-scatter, whatever stands for an index that is in no part."""

    def step(table: Any, indices: Any) -> Any:
        return jnp.sin(table.at[indices].get(mode=mode)).sum(axis=1)

    random = np.random.default_rng(0)
    table = random.normal(size=(ROWS, WIDTH)).astype(np.float32)
    indices = random.integers(-2 * ROWS, 2 * ROWS, (256, 16)).astype(np.int32)
    task = fa.Task(step, (table, indices), batch=(1,))
    pins = [fa.Pin("0", dim=0, axis="device"), fa.Pin("1", dim=0, axis="device")]
    plan = fa.plan(task, flat, pins=pins)
    split = fa.apply(plan, task)
    audit = fa.audit(split.compile(optimise=False), plan, split)
    assert audit.ok, audit.describe()
    assert set(plan.predicted.collectives) >= {"reduce-scatter"}, plan.predicted.collectives
    assert audit.collectives["reduce-scatter"]["compiled"] == plan.predicted.collectives["reduce-scatter"]
    np.testing.assert_allclose(split(table, indices), jax.jit(step)(table, indices), rtol=1e-5, atol=1e-5)
