"""What the same training gives in torch, run in an environment of its own: `python training_reference.py bert|t5 FOLDER`.

Reads FOLDER/model.safetensors, config.json, optimizer.json and batches.npz (every array [steps, ...]); writes FOLDER/losses.npy.
Imports nothing of this project. The losses are float64, of each batch before its update.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from text_reference import in_float64_throughout, loaded, without_torchvision_operators
from torch.nn.functional import cross_entropy

Batch = dict[str, torch.Tensor]


def bert_loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Masked words, each as much as the others, and the next sentence."""
    hidden = model.bert(input_ids=batch["ids"], token_type_ids=batch["types"], attention_mask=batch["mask"])
    at = torch.arange(len(batch["ids"]))[:, None]
    masked = hidden.last_hidden_state[at, batch["positions"]][batch["word_weight"] > 0]
    words, follows = model.cls(masked, hidden.pooler_output)
    missing = batch["words"][batch["word_weight"] > 0]
    return cross_entropy(words, missing) + cross_entropy(follows, batch["next_sentence"])


def t5_loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Every token of the target as much as the others."""
    return model(input_ids=batch["source"], attention_mask=(batch["source"] != 0).long(), labels=batch["target"]).loss


def trained(model: torch.nn.Module, loss_of: Callable[..., torch.Tensor], batches: Batch, how: dict) -> list[float]:
    """AdamW after the gradient was cut to a norm; what decays is all but biases and the scales of normalisation."""
    keeps = lambda name: name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name
    groups = [
        {"params": [p for name, p in model.named_parameters() if keeps(name) == kept], "weight_decay": decay}
        for kept, decay in ((True, 0.0), (False, how["weight_decay"]))
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=tuple(how["betas"]), eps=how["epsilon"])
    losses = []
    for step, rate in enumerate(how["learning_rates"]):
        optimizer.zero_grad()
        loss = loss_of(model, {name: value[step] for name, value in batches.items()})
        loss.backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        norm = torch.sqrt(sum(grad.square().sum() for grad in grads))
        if norm > how["gradient_clip"]:
            for grad in grads:
                grad *= how["gradient_clip"] / norm
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def main(kind: str, folder: Path) -> None:
    torch.set_num_threads(1)
    without_torchvision_operators()
    import transformers

    how = json.loads((folder / "optimizer.json").read_text())
    with np.load(folder / "batches.npz") as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    batches = {name: value.long() if value.dtype == torch.int32 else value for name, value in arrays.items()}
    in_float64_throughout()
    classes = {"bert": transformers.BertForPreTraining, "t5": transformers.T5ForConditionalGeneration}
    model = loaded(classes[kind], folder, torch.float64)
    losses = trained(model, {"bert": bert_loss, "t5": t5_loss}[kind], batches, how)
    np.save(folder / "losses.npy", np.asarray(losses))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
