"""What happens around the network: chains back in the order of the input, and when recycling stops."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from zoo.folding.buckets import Size
from zoo.folding.predictor import NotFinite, Prediction, Predictor, in_input_order
from zoo.models.alphafold2.config import preset

SEQUENCES = ("AC", "DEF", "AC", "G")  # the network sees AC, AC, DEF, G
SEEN = np.array([0, 1, 5, 6, 2, 3, 4, 7])  # the residue of the input at each place


def test_chains_come_back_in_the_order_of_the_input() -> None:
    error = SEEN[:, None] * 10.0 + SEEN[None]
    found = Prediction(
        positions=np.repeat(SEEN[:, None, None], 37, axis=1) * np.ones(3),
        mask=np.repeat(SEEN[:, None], 37, axis=1),
        plddt=SEEN.astype(float),
        error=error,
        max_error=31.0,
        scores={},
        arrays={"masked_msa/logits": np.tile(SEEN, (2, 1))[..., None], "distogram/bin_edges": np.arange(3)},
        recycles=1,
        trace=(SEEN[:, None, None],),
        pairs={"iptm": np.array([0, 2, 1, 3])[:, None] * 10 + np.array([0, 2, 1, 3])},
    )
    back = in_input_order(found, SEQUENCES)
    residues = np.arange(8)
    assert back.plddt.tolist() == residues.tolist() == back.positions[:, 0, 0].tolist() == back.mask[:, 5].tolist()
    np.testing.assert_array_equal(back.error, residues[:, None] * 10.0 + residues)
    np.testing.assert_array_equal(back.arrays["masked_msa/logits"][1, :, 0], residues)
    np.testing.assert_array_equal(back.trace[0][:, 0, 0], residues)
    np.testing.assert_array_equal(back.pairs["iptm"], np.arange(4)[:, None] * 10 + np.arange(4))


@pytest.mark.parametrize(("tolerance", "passes"), [(-1.0, 6), (0.5, 4), (1e9, 2)])
def test_one_more_pass_follows_the_one_that_moved_little(
    tolerance: float, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distance between two atoms is 10, 5, 4.9, ... after each pass."""
    predictor, calls = Predictor(preset("model_3_ptm")), 0

    def step(params: Any, features: Any, previous: Any, key: Any) -> Any:
        nonlocal calls
        distance = (10.0, 5.0, 4.9)[min(calls, 2)]
        calls += 1
        positions = np.zeros((2, 37, 3))
        positions[1, 1, 0] = distance
        outputs = {
            "predicted_lddt": {"logits": np.zeros((2, 50))},
            "structure_module": {"final_atom_positions": positions, "final_atom_mask": np.ones((2, 37))},
        }
        return (
            outputs,
            {"prev_pos": positions},
            dict.fromkeys(("the Evoformer", "the structure module", "the heads"), True),
        )

    monkeypatch.setattr(predictor, "_step", step)
    found = predictor.predict({}, lambda recycle: {}, 2, Size(2, 1, 1), recycles=5, tolerance=tolerance)
    assert calls == passes and found.recycles == passes - 1


@pytest.mark.parametrize("stage", ["the Evoformer", "the structure module", "the heads"])
def test_numbers_that_are_not_finite_name_their_stage(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second pass; what comes after a stage is not finite either, and the first one is named."""
    predictor, later = (
        Predictor(preset("model_3_ptm")),
        ("the Evoformer", "the structure module", "the heads").index(stage),
    )

    def iterate(params: Any, features: Any, previous: Any, key: Any) -> Any:
        numbers = jnp.where((previous["prev_pos"].sum() > 0) & (jnp.arange(3) >= later), jnp.nan, 1.0)
        outputs = {
            "representations": {"pair": numbers[0], "single": numbers[0]},
            "structure_module": {"final_atom_positions": numbers[1] * jnp.ones((2, 37, 3))},
            "predicted_lddt": {"logits": numbers[2] * jnp.ones((2, 50))},
        }
        return outputs, {"prev_pos": jnp.ones((2, 37, 3))}

    monkeypatch.setattr(predictor.model, "iterate", iterate)
    with pytest.raises(NotFinite, match=f"came out of {stage} in pass 2"):
        predictor.predict({}, lambda recycle: {}, 2, Size(2, 1, 1), recycles=3)
