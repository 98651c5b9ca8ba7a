"""What the original's TensorFlow pipeline makes of a small alignment of a monomer, with what it has drawn.

The original (google-deepmind/alphafold, commit c77e5d2) stays outside the repository, in an environment with tensorflow and jax:

    PYTHONPATH=ORIGINAL python tests/parity/alphafold2_monomer_reference.py OUT.npz

OUT.npz holds the alignment (`msa` in the order of the HH-suite, `deletion_matrix_int`), `order`, `masked`, `replacement` and
`further` as it drew them, and the features that it made.
"""

from __future__ import annotations

import sys

import numpy as np

ROWS, RESIDUES, CLUSTERS, FURTHER = 15, 18, 6, 7
MASKING = {"profile_prob": 0.1, "same_prob": 0.1, "uniform_prob": 0.1}
FEATURES = (
    "target_feat", "msa_feat", "msa_mask", "true_msa", "bert_mask", "extra_msa", "extra_msa_mask", "extra_has_deletion",
    "extra_deletion_value",
)  # fmt: skip


def main(out: str) -> None:
    import ml_collections
    import tensorflow.compat.v1 as tf
    from alphafold.model.tf import data_transforms as d

    rng = np.random.default_rng(2)
    msa, deletions = rng.integers(0, 22, (ROWS, RESIDUES)), rng.integers(0, 3, (ROWS, RESIDUES))
    msa[0] = rng.integers(0, 20, RESIDUES)
    msa[9] = msa[4]  # the same agreement with two rows
    tf.set_random_seed(0)
    protein = {
        "msa": tf.constant(msa, tf.int32),
        "deletion_matrix": tf.constant(deletions, tf.float32),
        "aatype": tf.constant(np.arange(RESIDUES) % 20, tf.int32),
        "between_segment_residues": tf.zeros(RESIDUES, tf.int32),
    }
    for step in (d.correct_msa_restypes, d.make_msa_mask, d.make_hhblits_profile):
        protein = step(protein)
    protein["true_msa"] = tf.tile(tf.range(ROWS)[:, None], [1, RESIDUES])  # tells which rows were drawn
    protein = d.sample_msa(CLUSTERS, keep_extra=True)(protein)
    drawn = [protein[name][:, 0].numpy() for name in ("true_msa", "extra_true_msa")]
    protein = d.make_masked_msa(ml_collections.ConfigDict(MASKING), 0.15)(protein)
    replacement = protein["msa"].numpy()
    protein = d.summarize_clusters()(d.nearest_neighbor_clusters()(protein))
    protein = d.crop_extra_msa(FURTHER)(protein)
    further = [drawn[1].tolist().index(row) for row in protein["extra_true_msa"][:, 0].numpy()]
    protein = d.make_msa_feat()(protein)
    found = {name: protein[name].numpy() for name in FEATURES}
    found |= {"order": np.concatenate(drawn), "masked": found["bert_mask"], "replacement": replacement}
    np.savez_compressed(out, msa=msa, deletion_matrix_int=deletions, further=np.array(further), **found)


if __name__ == "__main__":
    main(sys.argv[1])
