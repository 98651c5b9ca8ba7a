"""Confidences from logits equal those that were published with the logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zoo.proteins import confidence


@pytest.mark.parametrize("name", ["5awl_1", "6a5j"])
def test_published_predictions(name: str, reference_data: Path) -> None:
    path = reference_data / f"proteins/predictions/{name}_colabfold_alphafold2.npz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in the reference data")
    with np.load(path) as file:
        out = {key.removeprefix("output/"): file[key] for key in file.files if key.startswith("output/")}
    np.testing.assert_allclose(confidence.plddt(out["predicted_lddt/logits"]), out["plddt"], atol=0.05)


def test_ptm_of_certain_errors() -> None:
    breaks = np.linspace(0, 31, 63)
    logits = np.zeros((30, 30, 64))
    logits[..., 0] = 100  # every error in 0 - 0.5 angstrom
    assert confidence.ptm(logits, breaks) > 0.95
    error, bound = confidence.aligned_error(logits, breaks)
    assert np.allclose(error, 0.25) and bound == 31.75
    chains = np.repeat([1, 2], 15)
    assert confidence.iptm(logits, breaks, chains) == pytest.approx(confidence.ptm(logits, breaks))
    logits[:15, 15:] = logits[15:, :15] = np.eye(64)[63] * 100  # nothing known between the chains
    assert confidence.iptm(logits, breaks, chains) < 0.05
    pairs = confidence.chain_pair_iptm(logits, breaks, chains)
    assert pairs[0, 0] > 0.9 and pairs[0, 1] < 0.05
    assert confidence.chain_pair_error(confidence.aligned_error(logits, breaks)[0], chains)[0, 1] > 30


def test_extremes_stay_in_range() -> None:
    logits = np.full((3, 50), -1e4)
    logits[:, 49] = 1e4
    np.testing.assert_allclose(confidence.plddt(logits), 99)
