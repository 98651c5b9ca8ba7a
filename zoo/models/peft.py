"""Products of LoRA by the names of Hugging Face's package PEFT: adapter_model.safetensors and adapter_config.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zoo.models.exchange import Name, exported, flat

PREFIX = "base_model.model."


def adapter(
    params: Mapping[str, Any], names: Sequence[Name], lora: Mapping[str, Any], task: str, heads: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the configuration of an adapter.

    Args:
        params: ours, with the products under "lora".
        names: the table of the model.
        lora: {"rank", "alpha", ...} of the training.
        task: PEFT's name of what the model does, such as SEQ_CLS.
        heads: parts that were trained whole.
    """
    table = {name.ours: name for name in names}
    arrays: dict[str, np.ndarray] = {}
    layers: set[str] = set()
    for path, leaf in flat(params["lora"]).items():
        layer, _, which = path.rpartition("/")
        theirs = table[f"{layer}/kernel"].theirs.removesuffix(".weight")
        # PyTorch keeps a matrix as (out, in), so A is (rank, in) and B (out, rank) there.
        parts = [(theirs.format(i=i), part) for i, part in enumerate(leaf)] if "{i}" in theirs else [(theirs, leaf)]
        for name, part in parts:
            arrays[f"{PREFIX}{name}.lora_{which.upper()}.weight"] = np.ascontiguousarray(np.asarray(part).T)
            layers.add(name)
    saved = {head: params[head] for head in heads if head in params}
    whole = exported(saved, names) if saved else {}
    arrays |= {f"{PREFIX}{name}": value for name, value in whole.items()}
    config = {
        "peft_type": "LORA",
        "task_type": task,
        "r": lora["rank"],
        "lora_alpha": lora["alpha"],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": sorted(layers),
        "modules_to_save": sorted({name.rpartition(".")[0] for name in whole}) or None,
        "base_model_name_or_path": None,
    }
    return arrays, config
