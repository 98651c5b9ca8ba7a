"""Processed features of a monomer are those that the original's TensorFlow pipeline makes of the same draws.

Its numbers are committed: `alphafold2_monomer_reference.py OUT.npz` makes alphafold2_monomer.npz. Its random generator is that of
TensorFlow, so the draws themselves are equal in distribution only (tests/unit/zoo/proteins/test_processed.py).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zoo.proteins.processed import Draws, Sizes, alignment_rows, drawn_features, monomer_features

HERE = Path(__file__).parent


def test_the_features_of_its_draws_are_those_of_the_original() -> None:
    with np.load(HERE / "alphafold2_monomer.npz") as file:
        wanted = dict(file)
    num_res = wanted["msa"].shape[1]
    raw = {name: wanted[name] for name in ("msa", "deletion_matrix_int")}
    raw |= {"aatype": np.eye(21)[np.arange(num_res) % 20], "residue_index": np.arange(num_res)}
    raw["between_segment_residues"] = np.zeros(num_res, np.int32)
    draws = Draws(wanted["order"], wanted["masked"] > 0, wanted["replacement"], wanted["further"])
    assert 0 < wanted["masked"].mean() < 0.5
    sizes = Sizes(clusters=len(wanted["msa_mask"]), further=len(wanted["extra_msa_mask"]))
    found = drawn_features(*alignment_rows(raw), sizes, draws) | {"target_feat": monomer_features(raw)["target_feat"]}
    for name in (
        "target_feat", "msa_feat", "msa_mask", "bert_mask", "extra_msa", "extra_msa_mask", "extra_has_deletion",
        "extra_deletion_value",
    ):  # fmt: skip
        np.testing.assert_allclose(found[name], wanted[name], atol=2e-6, err_msg=name)
