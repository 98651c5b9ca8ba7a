"""AlphaFold2 as pure functions of parameters, features and the recycle before.

One recycle is one call, so the program is compiled once however many recycles follow, and whoever calls may stop early or keep
what each recycle gave.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from zoo.models.alphafold2.config import is_multimer, uses_templates
from zoo.models.alphafold2.embedding import representations
from zoo.models.alphafold2.heads import heads
from zoo.models.alphafold2.layers import parameters_of, scope
from zoo.models.alphafold2.structure import structure_module

Features = Mapping[str, Any]
Params = Mapping[str, Mapping[str, Any]]

# Features with a first dimension for the draws of the alignment that are averaged.
DRAWN = ("msa_feat", "msa_mask", "extra_msa", "extra_msa_mask", "extra_has_deletion", "extra_deletion_value")
SHAPES = {
    "aatype": "N", "residue_index": "N", "seq_mask": "N", "target_feat": "Nf",
    "msa_feat": "ESN4", "msa_mask": "ESN", "extra_msa": "EKN", "extra_msa_mask": "EKN", "extra_has_deletion": "EKN",
    "extra_deletion_value": "EKN", "template_aatype": "TN", "template_all_atom_positions": "TNa3",
    "template_all_atom_mask": "TNa", "template_mask": "T", "asym_id": "N", "entity_id": "N", "sym_id": "N",
}  # fmt: skip
WHOLE_NUMBERS = ("aatype", "residue_index", "extra_msa", "template_aatype", "asym_id", "entity_id", "sym_id")


class AlphaFold2:
    """One of the published models, given by its configuration (`config.preset`)."""

    def __init__(self, config: ConfigDict) -> None:
        self.config = config
        self.multimer = is_multimer(config)
        self.templates = uses_templates(config)

    def iterate(
        self, params: Params, features: Features, previous: Features, key: jax.Array | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One recycle.

        Args:
            params: haiku parameters, {scope: {name: array}}.
            features: as `feature_shapes` lists them.
            previous: what the recycle before returned, or `first_previous`.
            key: PRNG key for dropout where the configuration wants it in inference; else unused.

        Returns:
            the outputs {head: {name: array}} with `representations`, and what the next recycle needs.
        """
        key = key if self.config.model.global_config.eval_dropout else None
        return self._transformed.apply(params, None, features, previous, key)

    def parameter_shapes(self) -> dict[str, dict[str, jax.ShapeDtypeStruct]]:
        """Every parameter that the model reads; nothing is computed."""
        features = self.feature_shapes(num_res=4, num_msa=2, num_extra=2)
        previous = jax.eval_shape(lambda: self.first_previous(4))
        init = lambda f, p: self._transformed.init(jax.random.PRNGKey(0), f, p, None)
        return jax.eval_shape(init, features, previous)

    def feature_shapes(
        self, num_res: int, num_msa: int, num_extra: int, num_templates: int = 4, ensemble: int = 1
    ) -> dict[str, jax.ShapeDtypeStruct]:
        """The features that `iterate` reads, by these sizes."""
        sizes = {
            "N": num_res,
            "S": num_msa,
            "K": num_extra,
            "T": num_templates,
            "E": ensemble,
            "a": 37,
            "3": 3,
            "4": 49,
        }
        sizes["f"] = 21 if self.multimer else 22
        return {
            name: jax.ShapeDtypeStruct(
                tuple(sizes[dim] for dim in SHAPES[name]), np.int32 if name in WHOLE_NUMBERS else np.float32
            )
            for name in self.feature_names()
        }

    def feature_names(self) -> tuple[str, ...]:
        chains = () if self.multimer else ("asym_id", "entity_id", "sym_id")
        templates = () if self.templates else tuple(name for name in SHAPES if name.startswith("template_"))
        return tuple(name for name in SHAPES if name not in chains + templates)

    def first_previous(self, num_res: int) -> dict[str, np.ndarray]:
        """Zeros, for the first recycle."""
        c = self.config.model.embeddings_and_evoformer
        return {
            "prev_pos": np.zeros((num_res, 37, 3), np.float32),
            "prev_msa_first_row": np.zeros((num_res, c.msa_channel), np.float32),
            "prev_pair": np.zeros((num_res, num_res, c.pair_channel), np.float32),
        }

    @functools.cached_property
    def _transformed(self) -> hk.Transformed:
        return hk.transform(functools.partial(iteration, self.config.model))


def iteration(
    config: ConfigDict, features: Features, previous: Features, key: jax.Array | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Algorithm 2, lines 3-22: representations averaged over the draws of the alignment, then all heads."""
    switches = config.global_config
    with scope("alphafold"), scope("alphafold_iteration"):
        seen = averaged_representations(config, features, previous, key)
        structure = structure_module(
            config.heads.structure_module, seen["single"], seen["pair"], features["aatype"], features["seq_mask"],
            switches.multimer_mode,
        )  # fmt: skip
        seen["structure_module"] = structure.pop("act")
        outputs: dict[str, Any] = dict(heads(config.heads, seen))
    outputs |= {"structure_module": structure, "representations": seen}
    following = {
        "prev_pos": structure["final_atom_positions"],
        "prev_msa_first_row": seen["msa_first_row"],
        "prev_pair": seen["pair"],
    }
    return outputs, {name: x.astype(jnp.float32) for name, x in following.items()}


def averaged_representations(
    config: ConfigDict, features: Features, previous: Features, key: jax.Array | None
) -> dict[str, jax.Array]:
    """The mean over the draws; of the alignment itself the first."""
    drawn = {name: features[name] for name in DRAWN}
    rest = {name: value for name, value in features.items() if name not in DRAWN}
    num_draws = drawn["msa_feat"].shape[0]
    embed = functools.partial(representations, config.embeddings_and_evoformer, config.global_config)

    def one(draw: Features, key: jax.Array | None) -> dict[str, jax.Array]:
        return embed({**rest, **draw}, previous, key)

    first = jax.tree.map(lambda x: x[0], drawn)
    params = parameters_of(one, "evoformer", first, key)
    apply = functools.partial(hk.transform(one).apply, params, None)
    if num_draws == 1:
        return apply(first, key)
    keys = None if key is None else jax.random.split(key, num_draws)
    each = jax.lax.map(lambda draw: apply(*draw), (drawn, keys))
    return {name: x[0] if name == "msa" else jnp.mean(x, axis=0) for name, x in each.items()}
