"""Cases on which AlphaFold2 is held against the original: parameters and features, all drawn, and both sides' outputs by path."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from zoo.models.alphafold2.config import changed, is_multimer, preset
from zoo.models.alphafold2.convert import draw, flat
from zoo.models.alphafold2.model import DRAWN, AlphaFold2
from zoo.proteins.residues import tables

HERE = Path(__file__).parent
EMBEDDINGS = "model.embeddings_and_evoformer"
CHAINS = (9, 9)  # residues of the two copies; the rest is padding
RESIDUES, PADDING, ROWS, FURTHER, TEMPLATES = 20, 2, 6, 7, 4
# Of the large outputs every so many entries are committed.
EVERY = {
    "distogram/logits": (4, 4, 8), "predicted_aligned_error/logits": (4, 4, 8), "representations/msa": (1, 2, 16),
    "representations/pair": (4, 4, 8), "masked_msa/logits": (1, 2, 1), "representations/single": (2, 8),
    "representations/structure_module": (2, 8), "representations/msa_first_row": (2, 8), "experimentally_resolved/logits": (2, 1),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Case:
    """A published model, made shallower, and how often it runs.

    Attributes:
        name: of the model.
        blocks: of the Evoformer; further_blocks: of the stack of further sequences.
        recycles: passes after the first.
        ensemble: draws of the alignment that are averaged; of monomers.
        templates: False: all of them are empty.
    """

    name: str
    blocks: int = 2
    further_blocks: int = 2
    recycles: int = 1
    ensemble: int = 1
    templates: bool = True

    @property
    def changes(self) -> dict[str, Any]:
        """Paths of the configuration with their values, the same on both sides."""
        found: dict[str, Any] = {
            f"{EMBEDDINGS}.evoformer_num_block": self.blocks,
            f"{EMBEDDINGS}.extra_msa_stack_num_block": self.further_blocks,
            "model.global_config.bfloat16": False,
        }
        if "multimer" in self.name:  # reads few rows, and never stops early
            found |= {f"{EMBEDDINGS}.num_msa": ROWS, f"{EMBEDDINGS}.num_extra_msa": FURTHER}
            found["model.recycle_early_stop_tolerance"] = -1.0
        return found

    def model(self) -> AlphaFold2:
        return AlphaFold2(changed(preset(self.name), self.changes))


def features(case: Case) -> dict[str, np.ndarray]:
    """Features of 18 residues and 2 of padding, for every pass; the last row of each alignment is padding too."""
    rng, n, draws = np.random.default_rng(0), RESIDUES, (case.recycles + 1) * case.ensemble
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
    if not case.templates:
        found["template_all_atom_mask"] *= 0
        found["template_mask"] = np.zeros(TEMPLATES)
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


def complex_features(case: Case) -> dict[str, np.ndarray]:
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
    if not case.templates:
        found["template_all_atom_mask"] *= 0
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


def for_the_original(case: Case, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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
    passes = (case.recycles + 1) * case.ensemble
    result = {name: np.broadcast_to(value, (passes, *np.shape(value))) for name, value in result.items()}
    return result | {name: given[name] for name in DRAWN}


def ours(
    case: Case, drawn: dict[str, np.ndarray] | None = None, optimised: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Our outputs by path, and the parameters. Of a complex from the alignments that the original has drawn."""
    model = case.model()
    if drawn is None:
        given = features(case)
    else:
        given = complex_features(case) | {name: drawn[name] for name in DRAWN}
        given["target_feat"] = np.eye(21, dtype=np.float32)[given["aatype"]]
        given["template_mask"] = np.ones(TEMPLATES, np.float32)
    params = draw(model.parameter_shapes(), 1)
    compiled: Any = None
    previous = model.first_previous(RESIDUES)
    for number in range(case.recycles + 1):
        here = slice(number * case.ensemble, (number + 1) * case.ensemble)
        one = {key: given[key][here] if key in DRAWN else given[key] for key in model.feature_names()}
        if compiled is None:
            options = None if optimised else {"xla_backend_optimization_level": "0"}
            compiled = jax.jit(model.iterate).lower(params, one, previous).compile(compiler_options=options)
        outputs, previous = compiled(params, one, previous)
    return {f"{head}/{key}": np.asarray(x) for head, values in outputs.items() for key, x in values.items()}, params


def compare(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], angstrom: float = 1e-3) -> None:
    """Every output within 1e-4 of its largest magnitude, positions within `angstrom`."""
    for path, value in wanted.items():
        assert found[path].shape == value.shape, path
        most = angstrom if path == "structure_module/final_atom_positions" else 1e-4 * np.abs(value).max()
        assert np.abs(found[path] - value).max() <= most, path


def varies(outputs: dict[str, np.ndarray]) -> bool:
    """Whether confidences and positions differ from residue to residue, so that equality means something."""
    valid = RESIDUES - PADDING
    heads = ("predicted_lddt/logits", "predicted_aligned_error/logits")
    spread = [outputs[path][:valid].std(axis=0).mean() for path in heads if path in outputs]
    return min(spread) > 0.1 and outputs["structure_module/final_atom_positions"][:valid, 1].std(axis=0).min() > 1


def sampled(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The residues that are no padding, and of the large outputs every so many entries."""
    valid = RESIDUES - PADDING
    found = {}
    for path, value in outputs.items():
        cut = value[tuple(slice(valid) if size == RESIDUES else slice(None) for size in value.shape)]
        found[path] = cut[tuple(slice(None, None, step) for step in EVERY[path])] if path in EVERY else cut
    return found


def the_original(case: Case, params: Any, folder: Path) -> dict[str, np.ndarray]:
    """Its outputs by path, and of a complex what it has drawn; skips the test where there is no original."""
    python = os.environ.get("ZOO_PARITY_ALPHAFOLD")
    if not python:
        pytest.skip("ZOO_PARITY_ALPHAFOLD names no environment with the original")
    given = complex_features(case) if is_multimer(preset(case.name)) else for_the_original(case, features(case))
    job: dict[str, Any] = {
        "model": case.name,
        "changes": json.dumps(case.changes),
        "recycles": case.recycles,
        "seed": 0,
    }
    job |= {f"params/{key}": value for key, value in flat(params).items()}
    job |= {f"features/{key}": value for key, value in given.items()}
    np.savez(folder / "job.npz", **job)
    script = HERE / "alphafold2_reference.py"
    subprocess.run([python, str(script), "run", str(folder / "job.npz"), str(folder / "out.npz")], check=True)
    with np.load(folder / "out.npz") as original:
        return dict(original)


def both(case: Case, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Our outputs and the original's, by path; without what it has drawn and without padding that nothing reads."""
    params = draw(case.model().parameter_shapes(), 1)
    original = the_original(case, params, folder)
    drawn = {key.removeprefix("drawn/"): value for key, value in original.items() if key.startswith("drawn/")}
    found, _ = ours(case, drawn or None)
    assert set(found) - set(original) <= {"representations/structure_module"}
    wanted = {path: value for path, value in original.items() if path in found}
    return (sampled(found), sampled(wanted)) if drawn else (found, wanted)
