"""AlphaFold2 against the original: same parameters, same features, same outputs; every weight is drawn, none is trained.

The numbers of the original are committed (alphafold2_model_1_ptm.npz, and alphafold2_model_1_multimer_v3.npz with what it
drew); they were made by

    PYTHONPATH=ORIGINAL ZOO_PARITY_ALPHAFOLD=PYTHON pytest -m slow tests/parity/test_alphafold2.py -k original

where PYTHON is that of an environment as alphafold2_reference.py wants it. Some minutes each.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from zoo.models.alphafold2.config import changed, preset
from zoo.models.alphafold2.convert import draw, flat
from zoo.models.alphafold2.model import DRAWN, AlphaFold2
from zoo.proteins.residues import tables

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]
HERE = Path(__file__).parent
EMBEDDINGS = "model.embeddings_and_evoformer"
CHANGES = {f"{EMBEDDINGS}.evoformer_num_block": 2, f"{EMBEDDINGS}.extra_msa_stack_num_block": 2}
# Complexes read few rows, and in float32: what differs in bfloat16 is rounding.
COMPLEX = CHANGES | {
    f"{EMBEDDINGS}.num_msa": 6, f"{EMBEDDINGS}.num_extra_msa": 7, "model.global_config.bfloat16": False,
}  # fmt: skip
CHAINS = (9, 9)  # residues of the two copies; the rest is padding
RESIDUES, PADDING, ROWS, FURTHER, TEMPLATES, RECYCLES = 20, 2, 6, 7, 4, 1
# Of the large outputs every so many entries are committed.
EVERY = {
    "distogram/logits": (4, 4, 8), "predicted_aligned_error/logits": (4, 4, 8), "representations/msa": (1, 2, 16),
    "representations/pair": (4, 4, 8), "masked_msa/logits": (1, 2, 1), "representations/single": (2, 8),
    "representations/structure_module": (2, 8), "representations/msa_first_row": (2, 8), "experimentally_resolved/logits": (2, 1),
}  # fmt: skip


def features() -> dict[str, np.ndarray]:
    """Features of 18 residues and 2 of padding, for two passes; the last row of each alignment is padding too."""
    rng, n, draws = np.random.default_rng(0), RESIDUES, RECYCLES + 1
    kinds = rng.integers(0, 20, n)
    found: dict[str, Any] = {"aatype": kinds, "residue_index": np.arange(n), "seq_mask": np.ones(n)}
    found["target_feat"] = np.concatenate([np.zeros((n, 1)), np.eye(21)[kinds]], axis=1)
    found["seq_mask"][-PADDING:] = 0
    found["msa_feat"] = rng.uniform(0, 1, (draws, ROWS, n, 49))
    found["extra_msa"] = rng.integers(0, 23, (draws, FURTHER, n))
    for name, rows in (("msa_mask", ROWS), ("extra_msa_mask", FURTHER)):
        found[name] = np.ones((draws, rows, n))
        found[name][:, -1] = found[name][..., -PADDING:] = 0
    found["extra_has_deletion"] = rng.integers(0, 2, (draws, FURTHER, n))
    found["extra_deletion_value"] = rng.uniform(0, 1, (draws, FURTHER, n))
    found |= templates(rng)
    whole = ("aatype", "residue_index", "extra_msa", "template_aatype")
    return {name: value.astype(np.int32 if name in whole else np.float32) for name, value in found.items()}


def templates(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random walks of residues with a tenth of their atoms missing; the last template is empty.

    Every atom has a place, also where it is missing, and the first one stands on an axis: the torsions of missing atoms are
    rounding noise in the original, which no other program can match.
    """
    kinds = rng.integers(0, 21, (TEMPLATES, RESIDUES))
    walk = np.cumsum(rng.normal(0, 2.2, (TEMPLATES, RESIDUES, 1, 3)), axis=1)
    positions = walk + rng.normal(0, 1.2, (TEMPLATES, RESIDUES, 37, 3))
    positions[:, 0, 0] = [4, 0, 0]
    mask = tables().atom37_mask[kinds] * (rng.uniform(0, 1, (TEMPLATES, RESIDUES, 37)) < 0.9)
    mask[-1] = 0
    present = np.array([1, 1, 1, 0])
    return {"template_aatype": kinds, "template_all_atom_positions": positions, "template_all_atom_mask": mask,
            "template_mask": present}  # fmt: skip


def complex_features() -> dict[str, np.ndarray]:
    """A dimer of one sequence with its alignment, from which the original draws; the last row and two residues are padding."""
    rng, n, rows = np.random.default_rng(1), RESIDUES, ROWS + FURTHER + 2
    chain = np.repeat([1, 2, 0], [*CHAINS, PADDING])
    found: dict[str, Any] = {"aatype": rng.integers(0, 20, n), "seq_mask": chain > 0, "asym_id": chain, "sym_id": chain}
    found["residue_index"] = np.concatenate([np.arange(size) for size in (*CHAINS, PADDING)])
    found["entity_id"] = np.minimum(chain, 1)
    found["msa"] = rng.integers(0, 22, (rows, n))
    found["deletion_matrix"] = rng.integers(0, 3, (rows, n))
    found["msa_mask"] = np.ones((rows, n)) * found["seq_mask"]
    found["msa_mask"][-1] = 0
    found["bert_mask"] = np.ones((rows, n))
    found["cluster_bias_mask"] = np.arange(rows) == 0
    found["all_atom_positions"] = np.zeros((n, 37, 3))
    found |= templates(rng)
    found["template_all_atom_positions"][:, :, :3] = aligned_backbones(rng, found["template_all_atom_positions"])
    del found["template_mask"]
    whole = ("aatype", "residue_index", "msa", "template_aatype", "asym_id", "entity_id", "sym_id")
    return {name: np.asarray(value, np.int32 if name in whole else np.float32) for name, value in found.items()}


def aligned_backbones(rng: np.random.Generator, positions: np.ndarray) -> np.ndarray:
    """N, CA and C of every residue along the axes, on a grid.

    The original sees the direction from a residue to itself, a vector of rounding noise scaled to length 1; ours is 0. On the
    grid there is no rounding.
    """
    alpha = np.round(positions[:, :, 1])
    directions = np.array([np.eye(3)[rng.permutation(3)[:2]] for _ in range(alpha[..., 0].size)])
    n, c = np.moveaxis(directions.reshape(*alpha.shape[:2], 2, 3), 2, 0)
    return np.stack([alpha + n, alpha, alpha + c], axis=2)


def for_the_original(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The same features under the original's names, with a first dimension for the passes everywhere."""
    t, kinds = tables(), given["aatype"]
    result = {name: value for name, value in given.items() if name not in DRAWN}
    result |= {
        "atom14_atom_exists": t.atom14_mask[kinds],
        "atom37_atom_exists": t.atom37_mask[kinds] * given["seq_mask"][:, None],
        "residx_atom14_to_atom37": t.atom14_to_37[kinds],
        "residx_atom37_to_atom14": t.atom37_to_14[kinds],
        "seq_length": np.int32(len(kinds)),
    }
    mask = result["template_all_atom_masks"] = result.pop("template_all_atom_mask")
    glycine, places = result["template_aatype"] == 7, result["template_all_atom_positions"]
    result["template_pseudo_beta"] = np.where(glycine[..., None], places[:, :, 1], places[:, :, 3])
    result["template_pseudo_beta_mask"] = np.where(glycine, mask[:, :, 1], mask[:, :, 3])
    passes = RECYCLES + 1
    result = {name: np.broadcast_to(value, (passes, *np.shape(value))) for name, value in result.items()}
    return result | {name: given[name] for name in DRAWN}


def ours(name: str) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Our outputs by path, and the parameters."""
    model = AlphaFold2(changed(preset(name), CHANGES))
    params, given = draw(model.parameter_shapes(), 1), features()
    step, previous = jax.jit(model.iterate), model.first_previous(RESIDUES)
    for number in range(RECYCLES + 1):
        one = {key: given[key][number : number + 1] if key in DRAWN else given[key] for key in model.feature_names()}
        outputs, previous = step(params, one, previous)
    return {f"{head}/{key}": np.asarray(x) for head, values in outputs.items() for key, x in values.items()}, params


def ours_of_a_complex(name: str, drawn: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """As `ours`, from the alignments that the original has drawn."""
    model = AlphaFold2(changed(preset(name), COMPLEX))
    params, given = draw(model.parameter_shapes(), 1), complex_features()
    given |= {
        "target_feat": np.eye(21, dtype=np.float32)[given["aatype"]],
        "template_mask": np.ones(TEMPLATES, np.float32),
    }
    step, previous = jax.jit(model.iterate), model.first_previous(RESIDUES)
    for number in range(RECYCLES + 1):
        one = {key: drawn[key][number][None] if key in DRAWN else given[key] for key in model.feature_names()}
        outputs, previous = step(params, one, previous)
    return {f"{head}/{key}": np.asarray(x) for head, values in outputs.items() for key, x in values.items()}, params


def compare(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    for path, value in wanted.items():
        assert found[path].shape == value.shape, path
        if path == "structure_module/final_atom_positions":
            assert np.abs(found[path] - value).max() <= 1e-3, path
        else:
            assert np.abs(found[path] - value).max() <= 1e-4 * np.abs(value).max(), path


def sampled(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The residues that are no padding, and of the large outputs every so many entries."""
    valid = RESIDUES - PADDING
    found = {}
    for path, value in outputs.items():
        cut = value[tuple(slice(valid) if size == RESIDUES else slice(None) for size in value.shape)]
        found[path] = cut[tuple(slice(None, None, step) for step in EVERY[path])] if path in EVERY else cut
    return found


@pytest.fixture(scope="module")
def outputs() -> dict[str, np.ndarray]:
    return ours("model_1_ptm")[0]


def test_committed_numbers_of_the_original(outputs: dict[str, np.ndarray]) -> None:
    with np.load(HERE / "alphafold2_model_1_ptm.npz") as wanted:
        compare(sampled(outputs), dict(wanted))


def test_the_numbers_mean_something(outputs: dict[str, np.ndarray]) -> None:
    for path in ("predicted_lddt/logits", "predicted_aligned_error/logits"):
        assert outputs[path][: RESIDUES - PADDING].std(axis=0).mean() > 0.1, path
    alpha = outputs["structure_module/final_atom_positions"][: RESIDUES - PADDING, 1]
    assert alpha.std(axis=0).min() > 1


@pytest.mark.parametrize("name", ["model_1_ptm", "model_3"])
def test_the_original_run_beside_ours(name: str, tmp_path: Path) -> None:
    found, params = ours(name)
    wanted = the_original(name, CHANGES, params, for_the_original(features()), tmp_path)
    missing = set(found) - set(wanted)
    assert not missing - {"representations/structure_module"}
    compare(found, wanted)


@pytest.mark.parametrize("name", ["model_1_multimer", "model_1_multimer_v3"])
def test_the_original_run_beside_ours_on_a_complex(name: str, tmp_path: Path) -> None:
    params = draw(AlphaFold2(changed(preset(name), COMPLEX)).parameter_shapes(), 1)
    original = the_original(name, COMPLEX, params, complex_features(), tmp_path)
    found, _ = ours_of_a_complex(name, {key.removeprefix("drawn/"): value for key, value in original.items()})
    missing = set(found) - set(original)
    assert not missing - {"representations/structure_module"}
    wanted = {path: value for path, value in original.items() if path in found}
    compare(sampled(found), sampled(wanted))


def test_committed_numbers_of_the_original_on_a_complex() -> None:
    with np.load(HERE / "alphafold2_model_1_multimer_v3.npz") as file:
        wanted = dict(file)
    drawn = {key.removeprefix("drawn/"): value for key, value in wanted.items() if key.startswith("drawn/")}
    found = sampled(ours_of_a_complex("model_1_multimer_v3", drawn)[0])
    assert found["predicted_lddt/logits"].std(axis=0).mean() > 0.1
    assert found["predicted_aligned_error/logits"].std(axis=0).mean() > 0.1
    assert found["structure_module/final_atom_positions"][:, 1].std(axis=0).min() > 1
    compare(found, {key: value for key, value in wanted.items() if not key.startswith("drawn/")})


def the_original(
    name: str, changes: dict[str, Any], params: Any, given: dict[str, np.ndarray], folder: Path
) -> dict[str, np.ndarray]:
    """Its outputs by path."""
    python = os.environ.get("ZOO_PARITY_ALPHAFOLD")
    if not python:
        pytest.skip("ZOO_PARITY_ALPHAFOLD names no environment with the original")
    job: dict[str, Any] = {"model": name, "changes": json.dumps(changes), "recycles": RECYCLES, "seed": 0}
    job |= {f"params/{key}": value for key, value in flat(params).items()}
    job |= {f"features/{key}": value for key, value in given.items()}
    np.savez(folder / "job.npz", **job)
    script = HERE / "alphafold2_reference.py"
    subprocess.run([python, str(script), "run", str(folder / "job.npz"), str(folder / "out.npz")], check=True)
    with np.load(folder / "out.npz") as original:
        return dict(original)
