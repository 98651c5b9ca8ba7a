"""A folder with good, bad and duplicate proteins through the command: statuses, files, exit codes, a second run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import DONE, PARTLY, exit_code
from zoo.predict import main

pytestmark = pytest.mark.slow
BLOCKS = "recipe.model.config.model.embeddings_and_evoformer"
SMALL = [f"{BLOCKS}.evoformer_num_block=1", f"{BLOCKS}.extra_msa_stack_num_block=1"]


def rows(output: Path) -> dict[str, dict[str, str]]:
    with (output / "summary.csv").open() as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def test_good_bad_and_duplicate_proteins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.fasta").write_text(
        ">one\nACDEFGHIKL\n>bad\nAC-DE\n>one\nACDEFGHIKL\n>two\nMKTAYIAKQRX\n>pair\nACD:EFG\n"
    )
    words = ["recipe=alphafold2", f"input={source}", f"output={output}", "models=model_3_ptm", "recycles=1", *SMALL]
    assert exit_code(main)([*words, "params=random"]) == PARTLY
    found = rows(output)
    assert {name: row["status"] for name, row in found.items()} == {
        "one": "done", "bad": "failed", "one_2": "skipped", "two": "done", "pair": "failed",
    }  # fmt: skip
    assert "line 4, column 3" in found["bad"]["reason"] and "models=multimer" in found["pair"]["reason"]
    assert found["one"]["mark"] == "random parameters: no structural meaning"
    assert "random parameters" in (output / "one/ranked_0.pdb").read_text()
    stem = "model_3_ptm_seed_0"
    with np.load(output / f"two/result_{stem}.npz") as arrays:
        assert arrays["plddt"].shape == (11,) and arrays["predicted_aligned_error"].shape == (11, 11)
        assert not arrays["structure_module/final_atom_mask"][10].any()  # X has no atoms
    assert len(json.loads((output / f"two/confidence_{stem}.json").read_text())["confidenceScore"]) == 11
    before = (output / f"one/result_{stem}.npz").read_bytes()
    capsys.readouterr()
    (source / "a.fasta").write_text(">one\nACDEFGHIKL\n>two\nMKTAYIAKQRX\n")
    assert exit_code(main)([*words, "params=random"]) == DONE
    assert "buckets" not in capsys.readouterr().out  # nothing was left to do
    assert (output / f"one/result_{stem}.npz").read_bytes() == before


def test_without_parameters_the_command_says_where_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.fasta").write_text(">a\nACD\n")
    assert exit_code(main)(["recipe=alphafold2", f"input={tmp_path}", f"output={tmp_path / 'out'}"]) == 2
    assert "5.3 GB, CC BY 4.0" in capsys.readouterr().err


def test_a_protein_too_long_for_one_device_is_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory is told so small that one device cannot hold it; the result is that of one device."""
    (tmp_path / "a.fasta").write_text(">long\n" + "ACDEFGHIKLMNPQRSTVWY" * 6 + "\n")
    words = ["recipe=alphafold2", f"input={tmp_path / 'a.fasta'}", "models=model_3_ptm", "recycles=1", "params=random"]
    words += [*SMALL, "plots=false"]
    assert exit_code(main)([*words, f"output={tmp_path / 'whole'}"]) == DONE
    assert exit_code(main)([*words, f"output={tmp_path / 'split'}", "memory_gib=0.05"]) == DONE
    assert "split over 8" in capsys.readouterr().out
    whole, split = (np.load(tmp_path / name / "long/result_model_3_ptm_seed_0.npz") for name in ("whole", "split"))
    for name in (name for name in whole.files if whole[name].dtype.kind == "f"):
        np.testing.assert_allclose(split[name], whole[name], atol=1e-4 * max(np.abs(whole[name]).max(), 1e-30))
