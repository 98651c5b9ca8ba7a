"""A folder with good, bad and duplicate proteins through the command: statuses, files, exit codes, a second run."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from zoo.errors import DONE, PARTLY, exit_code
from zoo.folding.buckets import Size
from zoo.folding.features import drawn_for, raw_features, read_sizes, size_of
from zoo.folding.inputs import read_items
from zoo.folding.options import PredictOptions
from zoo.folding.predictor import Predictor
from zoo.models.alphafold2.config import changed, is_multimer, preset
from zoo.models.alphafold2.convert import draw
from zoo.predict import main

pytestmark = pytest.mark.slow
BLOCKS = "recipe.model.config.model.embeddings_and_evoformer"
SMALL = [f"{BLOCKS}.evoformer_num_block=1", f"{BLOCKS}.extra_msa_stack_num_block=1"]

# Predicts, and says how many programs were not in the cache.
COUNT = """
import sys, jax, jax.monitoring
misses = []
jax.monitoring.register_event_listener(lambda name, **_: misses.append(name) if name.endswith("cache_misses") else None)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
from zoo.predict import main
assert main(sys.argv[1:]) == 0
print(len(misses))
"""


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
    assert "bucket" not in capsys.readouterr().out  # nothing was left to do
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


@pytest.mark.parametrize("models", ["model_3_ptm", "model_1_multimer_v3"])
def test_padding_changes_nothing(models: str, tmp_path: Path) -> None:
    """17 residues and 12 rows in their own size, and in one of 32 residues and 24 rows."""
    sequence, rng = "ACDEFGHIKLMNPQRST", np.random.default_rng(0)
    rows = ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY-"), 17)) for _ in range(11)]
    (tmp_path / "a.a3m").write_text("".join(f">{number}\n{row}\n" for number, row in enumerate([sequence, *rows])))
    (item,) = read_items(tmp_path / "a.a3m", None)
    options = PredictOptions(models=models, params="random", max_clusters=8, max_further=8)
    wide = {"model.global_config.bfloat16": False}
    config = changed(
        preset(models), {word.removeprefix("recipe.model.config.").split("=")[0]: 1 for word in SMALL} | wide
    )
    raw, predictor = raw_features(item, is_multimer(config)), Predictor(config)
    params = draw(predictor.model.parameter_shapes(), 0)
    own, padded = (
        predictor.predict(params, drawn_for(raw, config, options, size, 3), 17, size, recycles=1)
        for size in (size_of(raw, read_sizes(config, options)), Size(32, 8, 24))
    )
    assert (
        own.plddt.shape == (17,) and own.error is not None and padded.error is not None and own.error.shape == (17, 17)
    )
    np.testing.assert_allclose(padded.plddt, own.plddt, atol=1e-3)
    np.testing.assert_allclose(padded.error, own.error, atol=3e-4)
    np.testing.assert_allclose(padded.positions, own.positions, atol=1e-3)
    assert {name: value.shape for name, value in padded.arrays.items()} == {
        name: value.shape for name, value in own.arrays.items()
    }


def test_another_process_compiles_nothing_and_writes_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.fasta").write_text(">one\nACDEFGHIKL\n")
    words = ["recipe=alphafold2", f"input={tmp_path / 'a.fasta'}", "models=model_3_ptm", "recycles=1", "params=random"]
    misses = []
    for run, seed in (("first", 0), ("second", 0), ("other", 1)):
        command = [
            sys.executable,
            "-c",
            COUNT,
            *words,
            *SMALL,
            "plots=false",
            f"output={tmp_path / run}",
            f"seed={seed}",
        ]
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"), "XLA_FLAGS": ""}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        misses.append(int(done.stdout.splitlines()[-1]))
    assert misses == [1, 0, 0]  # nothing beside the one program
    other = (tmp_path / "other/one/ranked_0.pdb").read_bytes()
    assert other != (tmp_path / "first/one/ranked_0.pdb").read_bytes()
    for name in ("ranked_0.pdb", "result_model_3_ptm_seed_0.npz"):
        assert (tmp_path / "first/one" / name).read_bytes() == (tmp_path / "second/one" / name).read_bytes()
