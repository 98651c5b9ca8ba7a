"""Runs the original AlphaFold beside ours: its key sets, and its outputs for parameters and features that we give it.

The original (google-deepmind/alphafold, commit c77e5d2) stays outside the repository, in an environment that has jax, dm-haiku,
ml_collections, absl-py, dm-tree and numpy; TensorFlow is not needed. It is called as a program of its own:

    PYTHONPATH=ORIGINAL python tests/parity/alphafold2_reference.py keys MODEL...              > keys.json
    PYTHONPATH=ORIGINAL python tests/parity/alphafold2_reference.py run JOB.npz OUT.npz
    PYTHONPATH=ORIGINAL python tests/parity/alphafold2_reference.py pair JOB.npz OUT.npz
    PYTHONPATH=ORIGINAL python tests/parity/alphafold2_reference.py draws OUT.npz

JOB.npz holds `model`, `changes` (JSON of dotted paths), `recycles`, `seed`, `params/SCOPE//NAME` and `features/NAME`; OUT.npz the
outputs by their path. For AlphaFold-Multimer OUT.npz also holds the alignments that it drew in each recycle, under `drawn/`, and
what was drawn, under `draws/`. For `pair` JOB.npz holds `CHAIN/NAME`, the raw features of each chain, and OUT.npz the complex's.
"""

from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np


def restore_clip() -> None:
    """The original calls `jnp.clip(a_min=, a_max=)`, which newer versions of jax no longer know."""
    clip = jnp.clip

    def old(x, min=None, max=None, *, a_min=None, a_max=None):
        return clip(x, a_min if min is None else min, a_max if max is None else max)

    jnp.clip = old


def configured(name: str, changes: dict):
    from alphafold.model import config

    tree = config.model_config(name)
    tree.update_from_flattened_dict(changes)
    return tree.model


def transformed(config):
    import haiku as hk
    from alphafold.model import modules, modules_multimer

    if config.global_config.multimer_mode:
        return hk.transform(
            lambda batch: modules_multimer.AlphaFold(config)(batch, is_training=False, return_representations=True)
        )
    return hk.transform(
        lambda batch: modules.AlphaFold(config)(
            batch, is_training=False, compute_loss=False, ensemble_representations=True, return_representations=True
        )
    )


def key_shapes(name: str, changes: dict) -> dict[str, list[int]]:
    config = configured(name, changes | {"model.num_recycle": 0})
    batch = multimer_batch() if config.global_config.multimer_mode else monomer_batch()
    shapes = jax.eval_shape(transformed(config).init, jax.random.PRNGKey(0), batch)
    return {f"{scope}//{name}": list(x.shape) for scope, leaves in shapes.items() for name, x in leaves.items()}


def monomer_batch(residues: int = 4, rows: int = 2, further: int = 2) -> dict[str, np.ndarray]:
    n, f, i = residues, np.float32, np.int32
    shapes = {
        "aatype": ((n,), i), "residue_index": ((n,), i), "seq_mask": ((n,), f), "seq_length": ((), i), "target_feat": ((n, 22), f),
        "msa_feat": ((rows, n, 49), f), "msa_mask": ((rows, n), f), "extra_msa": ((further, n), i),
        "extra_msa_mask": ((further, n), f), "extra_has_deletion": ((further, n), f),
        "extra_deletion_value": ((further, n), f), "template_aatype": ((4, n), i),
        "template_all_atom_positions": ((4, n, 37, 3), f), "template_all_atom_masks": ((4, n, 37), f), "template_mask": ((4,), f),
        "template_pseudo_beta": ((4, n, 3), f), "template_pseudo_beta_mask": ((4, n), f), "atom14_atom_exists": ((n, 14), f),
        "atom37_atom_exists": ((n, 37), f), "residx_atom14_to_atom37": ((n, 14), i), "residx_atom37_to_atom14": ((n, 37), i),
    }  # fmt: skip
    return {name: np.zeros((1, *shape), kind) for name, (shape, kind) in shapes.items()}


def multimer_batch(residues: int = 4) -> dict[str, np.ndarray]:
    n, f, i = residues, np.float32, np.int32
    shapes = {
        "aatype": ((n,), i), "residue_index": ((n,), i), "seq_mask": ((n,), f), "asym_id": ((n,), i), "entity_id": ((n,), i),
        "sym_id": ((n,), i), "msa": ((600, n), i), "deletion_matrix": ((600, n), f), "msa_mask": ((600, n), f),
        "bert_mask": ((600, n), f), "cluster_bias_mask": ((600,), f), "template_aatype": ((4, n), i),
        "template_all_atom_positions": ((4, n, 37, 3), f), "template_all_atom_mask": ((4, n, 37), f),
        "all_atom_positions": ((n, 37, 3), f),
    }  # fmt: skip
    return {name: np.zeros(shape, kind) for name, (shape, kind) in shapes.items()}


def run(job: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    recycles = int(job["recycles"])
    config = configured(str(job["model"]), json.loads(str(job["changes"])) | {"model.num_recycle": recycles})
    params: dict[str, dict[str, np.ndarray]] = {}
    for path in job:
        if path.startswith("params/"):
            scope, name = path.removeprefix("params/").split("//")
            params.setdefault(scope, {})[name] = job[path]
    batch = {path.removeprefix("features/"): job[path] for path in job if path.startswith("features/")}
    key = jax.random.PRNGKey(int(job["seed"]))
    outputs = jax.jit(transformed(config).apply)(params, key, batch)
    result = {
        "/".join(str(part.key) for part in path): np.asarray(x)
        for path, x in jax.tree_util.tree_leaves_with_path(outputs)
    }
    if config.global_config.multimer_mode:
        result |= drawn(config, key, batch, recycles)
    return result


def drawn(config, key, batch, recycles: int) -> dict[str, np.ndarray]:
    """The alignments that the original draws inside its network, by the same splits of the key."""
    import haiku as hk
    from alphafold.model import modules_multimer as m
    from alphafold.model import prng

    c = config.embeddings_and_evoformer
    network_key = hk.PRNGSequence(key)
    safe = prng.SafeKey(next(network_key))
    draws, order, masked, replacement = [], [], [], []
    for recycle in range(recycles + 1):
        own = safe
        if recycle < recycles:
            safe, own = safe.split()
        _, own = own.split()  # the scan over the ensemble
        own, sample, mask = own.split(3)
        sample, again = sample.duplicate()
        features = dict(batch)
        features["msa_profile"] = m.make_msa_profile(features)
        features = m.make_masked_msa(m.sample_msa(sample, features, c.num_msa), mask, c.masked_msa)
        features["cluster_profile"], features["cluster_deletion_mean"] = m.nearest_neighbor_clusters(features)
        further, further_mask = m.create_extra_msa_feature(features, c.num_extra_msa)
        numbered = {"msa_mask": batch["msa_mask"], "cluster_bias_mask": batch["cluster_bias_mask"], "msa": batch["msa"]}
        numbered["deletion_matrix"] = np.arange(len(batch["msa"]))
        numbered = m.sample_msa(again, numbered, c.num_msa)
        order.append(np.concatenate([numbered["deletion_matrix"], numbered["extra_deletion_matrix"]]))
        masked.append(features["bert_mask"])
        replacement.append(features["msa"])
        draws.append({
            "msa_feat": m.create_msa_feat(features), "msa_mask": features["msa_mask"],
            "extra_msa": features["extra_msa"][: c.num_extra_msa], "extra_msa_mask": further_mask,
            "extra_has_deletion": further[..., 23], "extra_deletion_value": further[..., 24],
        })  # fmt: skip
    found = {f"drawn/{name}": np.stack([np.asarray(draw[name]) for draw in draws]) for name in draws[0]}
    found |= {
        "draws/order": np.stack(order),
        "draws/masked": np.stack(masked),
        "draws/replacement": np.stack(replacement),
    }
    return found


def pair(job: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from alphafold.data import feature_processing, pipeline_multimer

    chains: dict[str, dict] = {}
    for path, value in job.items():
        chain, name = path.split("/")
        chains.setdefault(chain, {})[name] = value.astype(object) if value.dtype.kind == "S" else value
    chains = {chain: pipeline_multimer.convert_monomer_features(value, chain) for chain, value in chains.items()}
    merged = feature_processing.pair_and_merge(pipeline_multimer.add_assembly_features(chains))
    return {name: np.asarray(value) for name, value in pipeline_multimer.pad_msa(merged, 512).items()}


def draws(rows: int = 15, residues: int = 18) -> dict[str, np.ndarray]:
    """What the original makes of a small alignment, whose last row is padding, in two recycles; and the alignment."""
    rng = np.random.default_rng(1)
    batch = {"msa": rng.integers(0, 22, (rows, residues)), "deletion_matrix": rng.integers(0, 3, (rows, residues))}
    batch["msa"][9] = batch["msa"][4]  # the same agreement with two rows
    batch = {name: value.astype(np.int32 if name == "msa" else np.float32) for name, value in batch.items()}
    batch["msa_mask"], batch["bert_mask"] = np.ones((2, rows, residues), np.float32)
    batch["msa_mask"][-1] = 0
    batch["cluster_bias_mask"] = (np.arange(rows) == 0).astype(np.float32)
    changes = {"num_msa": 6, "num_extra_msa": 7}
    changes = {f"model.embeddings_and_evoformer.{name}": value for name, value in changes.items()}
    config = configured("model_1_multimer_v3", changes)
    found = drawn(config, jax.random.PRNGKey(0), batch, recycles=1)
    return found | {"msa": batch["msa"], "deletion_matrix": batch["deletion_matrix"]}


def main(argv: list[str]) -> None:
    restore_clip()
    if argv[0] == "keys":
        print(json.dumps({name: key_shapes(name, {}) for name in argv[1:]}, indent=1))
    elif argv[0] == "draws":
        np.savez_compressed(argv[1], **draws())
    else:
        with np.load(argv[1], allow_pickle=False) as job:
            outputs = {"run": run, "pair": pair}[argv[0]](dict(job))
        np.savez(argv[2], **outputs)


if __name__ == "__main__":
    main(sys.argv[1:])
