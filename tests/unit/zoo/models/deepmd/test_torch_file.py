"""Checkpoints of deepmd-kit's PyTorch backend, from tensors under the names that it gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from flowaware_core import versions
from zoo.errors import UserError
from zoo.models.deepmd import torch_file
from zoo.models.deepmd.config import potential
from zoo.models.deepmd.convert import read
from zoo.models.deepmd.model import initial_parameters

A = {"type": "se_e2_a", "sel": [3, 4], "rcut": 3.0, "neuron": [2, 4], "axis_neuron": 2, "resnet_dt": True}
R = {"type": "se_e2_r", "sel": [3, 4], "rcut": 3.0, "neuron": [2, 4], "type_one_side": True}
V2 = {"type": "se_atten_v2", "sel": 7, "rcut": 3.0, "neuron": [2, 4], "axis_neuron": 2, "attn": 3, "attn_layer": 2}
THEIRS = {"w": "matrix", "b": "bias", "idt": "idt"}
BLOCKS = {"se_e2_a": "sea.", "se_e2_r": "", "se_atten_v2": "se_atten."}


def layers(inside: str, net: Any) -> dict[str, np.ndarray]:
    return {
        f"{inside}layers.{name}.{THEIRS[kind]}": value for name, layer in net.items() for kind, value in layer.items()
    }


def tensors(section: dict, params: Any) -> dict[str, np.ndarray]:
    """What PyTorch's names make of our parameters; statistics differ between types, not between slots."""
    found: dict[str, np.ndarray] = {}
    root = "atomic_model.descriptor."
    described = section["descriptor"]
    several = described["type"] == "hybrid"
    for index, part in enumerate(described["list"] if several else [described]):
        outer = f"{root}descrpt_list.{index}." if several else root
        inside, ours = f"{outer}{BLOCKS[part['type']]}", params["descriptor"][str(index)]
        wide = (2, 7, 1 if part["type"] == "se_e2_r" else 4)
        found[f"{inside}mean"] = np.broadcast_to(np.asarray([0.1, 0.2])[:, None, None], wide)
        found[f"{inside}stddev"] = np.broadcast_to(np.asarray([0.5, 0.6])[:, None, None], wide)
        if part["type"] != "se_atten_v2":
            one_side = (
                ["0", "1"] if part.get("type_one_side") else ["0-0", "1-0", "0-1", "1-1"]
            )  # centre, then neighbour
            for number, name in enumerate(one_side):
                found |= layers(f"{inside}filter_layers.networks.{number}.", ours[name])
            continue
        found |= layers(f"{outer}type_embedding.embedding.embedding_net.", ours["types"])
        found |= layers(f"{inside}filter_layers.networks.0.", ours["embedding"])
        found |= layers(f"{inside}filter_layers_strip.networks.0.", ours["strip"])
        for number, layer in ours["attention"].items():
            place = f"{inside}dpa1_attention.attention_layers.{number}."
            for name in ("in", "out"):
                found |= {f"{place}attention_layer.{name}_proj.{THEIRS[k]}": v for k, v in layer[name].items()}
            found |= {f"{place}attn_layer_norm.{THEIRS[k]}": v for k, v in layer["norm"].items()}
    for name, net in params["fitting"].items():
        found |= layers(f"atomic_model.fitting_net.filter_layers.networks.{name}.", net)
    bias = {"fitting_net.bias_atom_e": np.asarray([[1.0], [2.0]]), "out_bias": np.asarray([[[0.5], [0.25]]])}
    return found | {f"atomic_model.{name}": value for name, value in bias.items()} | {"min_nbor_dist": np.asarray(0.8)}


@pytest.mark.parametrize("described", [A, R, V2, {"type": "hybrid", "list": [A, R]}], ids=lambda part: part["type"])
def test_tensors_become_parameters(described: dict) -> None:
    section = {"type_map": ["O", "H"], "descriptor": described, "fitting_net": {"neuron": [3, 3]}}
    config = potential(section, "model")
    with versions.enable_x64():
        params = jax.device_get(jax.jit(lambda: initial_parameters(config, jax.random.key(0)))())
    found, back, statistics, nearest = torch_file.model_of(tensors(section, params), section, "x.pt")
    assert found == config and nearest == 0.8
    assert jax.tree.structure(back) == jax.tree.structure(params)
    assert jax.tree.all(jax.tree.map(np.array_equal, back, params))
    np.testing.assert_array_equal(statistics["bias"], [1.5, 2.25])
    np.testing.assert_array_equal(statistics["descriptor"]["0"]["dstd"][1], 0.6)


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"nothing")
    with pytest.raises(
        UserError, match="no checkpoint of deepmd-kit's PyTorch backend|PyTorch, which is not installed"
    ):
        read(tmp_path / "model.pt")
