"""What timm, Hugging Face's ResNet and the original sentence encoder give, run in an environment of their own.

python vision_reference.py timm:NAME | resnet | embed FOLDER reads FOLDER/model.safetensors (or, for timm and resnet, makes random
weights), config.json and inputs.npz; writes FOLDER/outputs.npz. Imports nothing of this project.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file


def without_torchvision_operators() -> None:
    """The torchvision that can be installed beside this torch lacks its compiled operators, and fails when it registers them."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_kept_alive"] = library


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    """Every weight, bias, scale, running mean and variance random: some start at 0 and would hide whole branches."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if not value.is_floating_point():
                continue
            drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            if name.endswith("running_var"):
                drawn = 0.5 + drawn.abs()
            elif value.ndim > 1:
                drawn = drawn * (2 / value[0].numel()) ** 0.5
            else:
                drawn = 0.3 * drawn + (1.0 if name.endswith("weight") else 0.0)
            value.copy_(drawn.to(value.dtype))
    return model.eval()


def image_network(kind: str, folder: Path, inputs: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    without_torchvision_operators()
    if kind == "resnet":
        from transformers import ResNetConfig, ResNetForImageClassification

        model = ResNetForImageClassification(ResNetConfig.from_pretrained(folder))
    else:
        import timm

        model = timm.create_model(kind.removeprefix("timm:"), num_classes=10)
    model = randomised(model.to(inputs["image"].dtype))
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "model.safetensors")
    logits, grads = passed(model, inputs)
    found = {"logits": logits, **{f"gradient/{name}": value for name, value in grads.items()}}
    if inputs["image"].dtype == torch.float32:
        exact = passed(model.double(), {name: value.double() for name, value in inputs.items()})[1]
        found |= {f"exact/{name}": value for name, value in exact.items()}
    return found


def passed(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Logits, and the gradients of all parameters."""
    model.zero_grad()
    found = model(inputs["image"])
    logits = getattr(found, "logits", found)
    (logits * inputs["cotangent"]).sum().backward()
    return logits.detach().numpy(), {name: value.grad.numpy().copy() for name, value in model.named_parameters()}


def embed(folder: Path) -> dict[str, np.ndarray]:
    without_torchvision_operators()
    from transformers import AutoModel, AutoTokenizer

    texts = json.loads((folder / "texts.json").read_text())
    place = json.loads((folder / "place.json").read_text())
    model, tokenizer = AutoModel.from_pretrained(place).eval(), AutoTokenizer.from_pretrained(place)
    batch = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None].float()
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return {"embeddings": torch.nn.functional.normalize(mean).numpy(), "ids": batch["input_ids"].numpy()}


def main(kind: str, folder: Path) -> None:
    torch.set_num_threads(2)
    if kind == "embed":
        outputs = embed(folder)
    else:
        with np.load(folder / "inputs.npz") as file:
            inputs = {name: torch.from_numpy(file[name]) for name in file.files}
        outputs = image_network(kind, folder, inputs)
    np.savez(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
