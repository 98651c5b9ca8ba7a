"""The published models by name, as ml_collections trees whose keys are those of the original configuration.

`preset("model_1_ptm")` gives {data, model}; a key such as model.embeddings_and_evoformer.evoformer_num_block can be changed by its
path with `changed`. Only what inference reads is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from zoo.errors import UserError
from zoo.typed import nearest

MONOMER = tuple(f"model_{number}" for number in range(1, 6))
PTM = tuple(f"{name}_ptm" for name in MONOMER)
MULTIMER_V1 = tuple(f"{name}_multimer" for name in MONOMER)
MULTIMER_V2 = tuple(f"{name}_v2" for name in MULTIMER_V1)
MULTIMER_V3 = tuple(f"{name}_v3" for name in MULTIMER_V1)
PRESETS = MONOMER + PTM + MULTIMER_V1 + MULTIMER_V2 + MULTIMER_V3
# What `models=` may name instead of single models; casp14 averages over 8 draws of the alignment.
GROUPS = {"monomer": MONOMER, "monomer_casp14": MONOMER, "monomer_ptm": PTM, "multimer": MULTIMER_V3,
          "multimer_v1": MULTIMER_V1, "multimer_v2": MULTIMER_V2, "multimer_v3": MULTIMER_V3}  # fmt: skip

WITH_TEMPLATES = ("1", "2")  # monomer models 3-5 were trained without
DEEP = ("1", "3", "4")  # monomer models that see 5120 further sequences


def preset(name: str) -> ConfigDict:
    """The configuration of one published model.

    Raises:
        UserError: there is no such model; names them and the nearest one.
    """
    if name not in PRESETS:
        raise UserError(f"model={name!r} is not known{nearest(name, PRESETS)}; known are {', '.join(PRESETS)}")
    return multimer(name) if "multimer" in name else monomer(name)


def is_multimer(config: ConfigDict) -> bool:
    return bool(config.model.global_config.multimer_mode)


def uses_templates(config: ConfigDict) -> bool:
    return bool(config.model.embeddings_and_evoformer.template.enabled)


def changed(config: ConfigDict, values: Mapping[str, Any]) -> ConfigDict:
    """A copy with the values at these dotted paths.

    Raises:
        UserError: a path is not in the configuration, or its value has another type.
    """
    result = ConfigDict(config.to_dict())
    paths = [path for path, _ in flattened(config)]
    for path, value in values.items():
        if path not in paths:
            raise UserError(f"{path} is not a value of the model's configuration{nearest(path, paths)}")
        try:
            result.update_from_flattened_dict({path: value})
        except TypeError:
            raise UserError(f"{path}={value!r}: expected {type(dict(flattened(config))[path]).__name__}") from None
    return result


def flattened(tree: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """(dotted path, value) of every leaf."""
    result: list[tuple[str, Any]] = []
    for key, value in tree.items():
        here = f"{path}.{key}" if path else key
        result += flattened(value, here) if isinstance(value, Mapping | ConfigDict) else [(here, value)]
    return result


def monomer(name: str) -> ConfigDict:
    number = name.split("_")[1]
    templates = number in WITH_TEMPLATES
    channels = {"key_dim": 64, "value_dim": 64}
    embeddings = embeddings_section(fused=False, outer_first=False, template_channels=channels) | {
        "max_relative_feature": 32
    }
    embeddings["template"] |= {
        "enabled": templates,
        "embed_torsion_angles": templates,
        "use_template_unit_vector": False,
        "attention": attention(4, gating=False) | channels,
    }
    heads = heads_section(position_scale=10.0) | {"masked_msa": {"num_output": 23, "weight": 2.0}}
    heads["predicted_aligned_error"]["weight"] = 0.1 if name in PTM else 0.0
    return ConfigDict(
        {
            "data": {
                "common": {
                    "masked_msa": {"profile_prob": 0.1, "same_prob": 0.1, "uniform_prob": 0.1},
                    "max_extra_msa": 5120 if number in DEEP else 1024,
                    "num_recycle": 3,
                    "reduce_msa_clusters_by_max_templates": templates,
                    "resample_msa_in_recycling": True,
                    "use_templates": templates,
                },
                "eval": {
                    "masked_msa_replace_fraction": 0.15,
                    "max_msa_clusters": 512,
                    "max_templates": 4,
                    "num_ensemble": 1,
                },
            },
            "model": {
                "embeddings_and_evoformer": embeddings,
                "global_config": global_section(multimer_mode=False, bfloat16=False),
                "heads": heads,
                "num_recycle": 3,
                "recycle_early_stop_tolerance": -1.0,
                "resample_msa_in_recycling": True,
            },
        }
    )


def multimer(name: str) -> ConfigDict:
    fused = name in MULTIMER_V3
    deep = fused and name.split("_")[1] in ("1", "2", "3")
    embeddings = embeddings_section(fused=fused, outer_first=True, template_channels={}) | {
        "num_msa": 508 if fused else 252,
        "num_extra_msa": 2048 if deep else 1152,
        "masked_msa": {"profile_prob": 0.1, "replace_fraction": 0.15, "same_prob": 0.1, "uniform_prob": 0.1},
        "use_chain_relative": True,
        "max_relative_chain": 2,
        "max_relative_idx": 32,
    }
    embeddings["template"] |= {"enabled": True, "num_channels": 64}
    return ConfigDict(
        {
            "data": {"common": {"use_templates": True}, "eval": {"max_templates": 4, "num_ensemble": 1}},
            "model": {
                "embeddings_and_evoformer": embeddings,
                "global_config": global_section(multimer_mode=True, bfloat16=True),
                "heads": heads_section(position_scale=20.0) | {"masked_msa": {"num_output": 22, "weight": 2.0}},
                "num_ensemble_eval": 1,
                "num_recycle": 20,
                "recycle_early_stop_tolerance": 0.5,
                "resample_msa_in_recycling": True,
            },
        }
    )


def embeddings_section(fused: bool, outer_first: bool, template_channels: dict[str, int]) -> dict[str, Any]:
    block = {
        "msa_row_attention_with_pair_bias": attention(8, dropout=0.15),
        "msa_column_attention": attention(8),
        "msa_transition": transition(4),
        "outer_product_mean": {"first": outer_first, "num_outer_channel": 32, "dropout_rate": 0.0},
        **pair_section(128, fused, 4, {}),
    }
    return {
        "evoformer_num_block": 48,
        "evoformer": block,
        "extra_msa_channel": 64,
        "extra_msa_stack_num_block": 4,
        "msa_channel": 256,
        "pair_channel": 128,
        "seq_channel": 384,
        "prev_pos": bins(3.25, 20.75, 15),
        "recycle_features": True,
        "recycle_pos": True,
        "template": {
            "dgram_features": bins(3.25, 50.75, 39),
            "max_templates": 4,
            "template_pair_stack": {"num_block": 2, **pair_section(64, fused, 2, template_channels)},
        },
    }


def pair_section(channels: int, fused: bool, factor: int, attention_channels: dict[str, int]) -> dict[str, Any]:
    multiplication = {"dropout_rate": 0.25, "num_intermediate_channel": channels, "fuse_projection_weights": fused}
    return {
        "triangle_attention_starting_node": attention(4, dropout=0.25) | attention_channels,
        "triangle_attention_ending_node": attention(4, dropout=0.25) | attention_channels,
        "triangle_multiplication_outgoing": dict(multiplication),
        "triangle_multiplication_incoming": dict(multiplication),
        "pair_transition": transition(factor),
    }


def heads_section(position_scale: float) -> dict[str, Any]:
    return {
        "distogram": {"first_break": 2.3125, "last_break": 21.6875, "num_bins": 64, "weight": 0.3},
        "predicted_aligned_error": {"max_error_bin": 31.0, "num_bins": 64, "weight": 0.1},
        "experimentally_resolved": {"weight": 0.01},
        "predicted_lddt": {"num_bins": 50, "num_channels": 128, "weight": 0.01},
        "structure_module": {
            "num_layer": 8,
            "dropout": 0.1,
            "num_channel": 384,
            "num_head": 12,
            "num_layer_in_transition": 3,
            "num_point_qk": 4,
            "num_point_v": 8,
            "num_scalar_qk": 16,
            "num_scalar_v": 16,
            "position_scale": position_scale,
            "sidechain": {"num_channel": 128, "num_residual_block": 2},
            "weight": 1.0,
        },
    }


def global_section(multimer_mode: bool, bfloat16: bool) -> dict[str, Any]:
    """`chunk_bytes` is about what one attention or transition holds at a time beside its input and output.

    So little stays in a processor's cache: 128 residues take a sixth less time than with 64 MiB.
    """
    return {
        "multimer_mode": multimer_mode,
        "bfloat16": bfloat16,
        "bfloat16_output": False,
        "eval_dropout": False,
        "chunk_bytes": 4 * 2**20,
    }


def attention(heads: int, gating: bool = True, dropout: float = 0.0) -> dict[str, Any]:
    return {"num_head": heads, "gating": gating, "dropout_rate": dropout}


def transition(factor: int) -> dict[str, Any]:
    return {"num_intermediate_factor": factor, "dropout_rate": 0.0}


def bins(first: float, last: float, count: int) -> dict[str, Any]:
    return {"min_bin": first, "max_bin": last, "num_bins": count}
