"""What is read from the representations (supplement, section 1.9): logits over bins and classes."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from zoo.models.alphafold2.layers import layer_norm, linear, scope

Outputs = dict[str, dict[str, jax.Array]]


def heads(config: ConfigDict, representations: Mapping[str, jax.Array]) -> Outputs:
    """All heads of the configuration but the structure module.

    Args:
        config: section `heads`; a head of weight 0 is left out.
        representations: msa [S, N, C], pair [N, N, C], single [N, C], structure_module [N, C].
    """
    result = {
        "masked_msa": masked_msa(config.masked_msa, representations["msa"]),
        "distogram": distogram(config.distogram, representations["pair"]),
        "experimentally_resolved": experimentally_resolved(representations["single"]),
        "predicted_lddt": predicted_lddt(config.predicted_lddt, representations["structure_module"]),
    }
    if config.predicted_aligned_error.weight:
        result["predicted_aligned_error"] = aligned_error(config.predicted_aligned_error, representations["pair"])
    return result


def masked_msa(config: ConfigDict, msa: jax.Array) -> dict[str, jax.Array]:
    """Section 1.9.9: which letter [S, N, classes] stood where the alignment was masked."""
    with scope("masked_msa_head"):
        return {"logits": linear(msa, config.num_output, "logits")}


def distogram(config: ConfigDict, pair: jax.Array) -> dict[str, jax.Array]:
    """Section 1.9.8: distance between CB atoms [N, N, bins], symmetric, and the edges [bins - 1] in angstrom."""
    with scope("distogram_head"):
        half = linear(pair, config.num_bins, "half_logits")
    edges = jnp.linspace(config.first_break, config.last_break, config.num_bins - 1)
    return {"logits": half + jnp.swapaxes(half, 0, 1), "bin_edges": edges}


def experimentally_resolved(single: jax.Array) -> dict[str, jax.Array]:
    """Section 1.9.10: whether each atom [N, 37] would be seen in an experiment."""
    with scope("experimentally_resolved_head"):
        return {"logits": linear(single, 37, "logits")}


def predicted_lddt(config: ConfigDict, act: jax.Array) -> dict[str, jax.Array]:
    """Algorithm 29: local error of each residue [N, bins]."""
    with scope("predicted_lddt_head"):
        x = layer_norm(act, "input_layer_norm")
        x = jax.nn.relu(linear(x, config.num_channels, "act_0"))
        x = jax.nn.relu(linear(x, config.num_channels, "act_1"))
        return {"logits": linear(x, config.num_bins, "logits")}


def aligned_error(config: ConfigDict, pair: jax.Array) -> dict[str, jax.Array]:
    """Section 1.9.7: error of residue j where residue i is superposed [N, N, bins], and the breaks [bins - 1] in angstrom."""
    with scope("predicted_aligned_error_head"):
        logits = linear(pair, config.num_bins, "logits")
    return {"logits": logits, "breaks": jnp.linspace(0.0, config.max_error_bin, config.num_bins - 1)}
