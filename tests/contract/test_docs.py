"""The page about the engine, run from top to bottom as its reader would."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np


def test_the_page_about_the_engine_runs(root: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (root / "docs" / "engine.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/engine.md", "exec"), names)
    weights = jax.jit(names["born"])(jax.random.key(0))
    batch = {"x": np.ones((256, 512), np.float32), "y": np.zeros((256, 512), np.float32)}
    expected, loss = jax.jit(names["step"])(weights, batch)
    assert math.isclose(names["loss"], loss, rel_tol=1e-5)
    np.testing.assert_allclose(names["weights"]["in"], expected["in"], rtol=1e-4, atol=1e-6)
    assert "card:" in names["pinned"].to_json()["choices"]["groups"].__str__()
