"""Raw features are those of the original pipeline, value by value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from zoo.proteins.alignments import read_alignment, single
from zoo.proteins.fasta import read_fasta
from zoo.proteins.features import MOST_ROWS, alignment_features, no_templates, sequence_features


def test_the_original_features_are_reproduced(reference_data: Path) -> None:
    folder = reference_data / "proteins"
    sequence = read_fasta(folder / "fasta/ofquery.fasta")[0][0].chains[0]
    alignments = []
    for name in ("uniref90_hits.sto", "bfd_uniclust_hits.a3m", "mgnify_hits.sto"):
        alignment, problems = read_alignment(folder / f"msa/ofquery/{name}.gz", sequence)
        assert alignment is not None and not problems
        alignments.append(alignment.first(MOST_ROWS.get(name.split("_")[0], len(alignment))))
    ours = sequence_features("query", sequence) | alignment_features(alignments)
    with np.load(folder / "features/ofquery_alphafold_features.npz") as original:
        names = [name for name in original.files if not name.startswith("template_")]
        for name in names:
            assert ours[name].dtype == original[name].dtype, name
            np.testing.assert_array_equal(ours[name], original[name], err_msg=name)
    assert set(ours) - set(names) == {"msa_species_identifiers"}


@pytest.mark.parametrize("sequence", ["M", "AC", "ACDEF", "A" * 26, "MKUXA"])
def test_short_and_odd_sequences_have_features(sequence: str) -> None:
    features = (
        sequence_features("x", sequence) | alignment_features([single("x", sequence)]) | no_templates(len(sequence))
    )
    assert features["msa"].shape == (1, len(sequence))
    assert features["aatype"].sum() == len(sequence)


def test_equal_rows_are_kept_once_in_the_order_of_appearance() -> None:
    first, second = single("a", "ACD"), single("b", "ACE")
    features = alignment_features([first, second, first])
    assert features["msa"].tolist() == [[0, 1, 2], [0, 1, 3]]
    assert features["num_alignments"].tolist() == [2, 2, 2]
