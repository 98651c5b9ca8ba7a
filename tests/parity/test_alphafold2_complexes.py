"""Features of complexes against the original's pipeline: pairing, merging, cropping; and what it makes of its own draws.

The digests and numbers of the original are committed: alphafold2_draws.npz (`alphafold2_reference.py draws OUT.npz`), and
alphafold2_complexes.json, against which the original is held, in a minute, by

    PYTHONPATH=ORIGINAL ZOO_PARITY_ALPHAFOLD=PYTHON pytest -m slow tests/parity/test_alphafold2_complexes.py
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from zoo.proteins.complexes import complex_features
from zoo.proteins.features import Features, sequence_features
from zoo.proteins.processed import Draws, Sizes, drawn_features

HERE = Path(__file__).parent
# Letters of each chain, its species, its rows. C has more rows and pairs than are read.
KINDS = {"A": (11, 20, 60), "B": (7, 15, 300), "C": (5, 400, 2500)}


def chain(name: str) -> tuple[str, Features, Features]:
    """Sequence, raw features and features of the alignment for pairing."""
    length, species, count = KINDS[name]
    rng = np.random.default_rng(ord(name))
    sequence = "".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), length))
    raw = sequence_features(name, sequence)
    letters = rng.integers(0, 22, (count + count // 2, length), np.int32)
    letters[0] = letters[count] = ["ACDEFGHIKLMNPQRSTVWY".index(letter) for letter in sequence]
    letters[count + 5 : count + 9] = letters[5:9]  # also among the pairs
    deletions = rng.integers(0, 4, letters.shape, np.int32)
    raw |= {"msa": letters[:count], "deletion_matrix_int": deletions[:count]}
    raw |= {"num_alignments": np.full(length, count, np.int32), "msa_species_identifiers": np.array([b""] * count)}
    names = [b""] + [b"S%d" % number for number in rng.integers(0, species, count // 2 - 1)]
    source = {
        "msa": letters[count:],
        "deletion_matrix_int": deletions[count:],
        "msa_species_identifiers": np.array(names),
    }
    templates = 2 if name == "A" else 6
    raw |= {
        "template_aatype": np.eye(22, dtype=np.float32)[rng.integers(0, 22, (templates, length))],
        "template_all_atom_masks": rng.integers(0, 2, (templates, length, 37)).astype(np.float32),
        "template_all_atom_positions": rng.integers(-9, 9, (templates, length, 37, 3)).astype(np.float32),
        "template_domain_names": np.array([b"x"] * templates),
        "template_sum_probs": np.ones((templates, 1), np.float32),
    }
    return sequence, raw, source


def digests(features: Features) -> dict[str, str]:
    """Name, type, shape and bytes of each feature."""
    return {
        name: f"{value.dtype} {list(value.shape)} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]}"
        for name, value in sorted(features.items())
    }


def ours(chains: str) -> Features:
    sequences, raw, sources = zip(*(chain(name) for name in chains), strict=True)
    return complex_features(sequences, raw, sources)


@pytest.mark.parametrize("chains", ["A", "AA", "AB", "ABA", "BC", "ABCAB"])
def test_features_are_those_of_the_original(chains: str) -> None:
    assert digests(ours(chains)) == json.loads((HERE / "alphafold2_complexes.json").read_text())[chains]


def test_the_features_of_its_draws_are_those_of_the_original() -> None:
    with np.load(HERE / "alphafold2_draws.npz") as file:
        wanted = dict(file)
    msa, deletions = wanted["msa"][:-1], wanted["deletion_matrix"][:-1]  # the last row is padding
    sizes = Sizes(clusters=6, further=7)
    for recycle in range(2):
        order = wanted["draws/order"][recycle]
        assert order[-1] == len(msa)
        draws = Draws(
            order[:-1],
            wanted["draws/masked"][recycle] > 0,
            wanted["draws/replacement"][recycle].astype(int),
            np.arange(9),
        )
        found = drawn_features(msa, deletions, sizes, draws, multimer=True)
        for name in (
            "msa_feat",
            "msa_mask",
            "extra_msa",
            "extra_msa_mask",
            "extra_has_deletion",
            "extra_deletion_value",
        ):
            np.testing.assert_allclose(found[name], wanted[f"drawn/{name}"][recycle], atol=2e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("chains", ["AB", "ABCAB"])
def test_the_original_run_beside_ours(chains: str, tmp_path: Path) -> None:
    wanted = json.loads((HERE / "alphafold2_complexes.json").read_text())[chains]
    assert digests(original(chains, tmp_path)) == wanted == digests(ours(chains))


def original(chains: str, folder: Path) -> Features:
    python = os.environ.get("ZOO_PARITY_ALPHAFOLD")
    if not python:
        pytest.skip("ZOO_PARITY_ALPHAFOLD names no environment with the original")
    job = {}
    for number, name in enumerate(chains):
        _, raw, source = chain(name)
        job |= {f"{number}/{key}": value for key, value in raw.items()}
        if len(set(chains)) > 1:
            job |= {f"{number}/{key}_all_seq": value for key, value in source.items()}
    np.savez(folder / "job.npz", **job)
    script = HERE / "alphafold2_reference.py"
    subprocess.run([python, str(script), "pair", str(folder / "job.npz"), str(folder / "out.npz")], check=True)
    with np.load(folder / "out.npz") as file:
        return dict(file)
