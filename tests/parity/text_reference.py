"""What the reference implementations give, run in an environment of their own: `python text_reference.py bert|t5|peft FOLDER`.

Reads FOLDER/model.safetensors, config.json and inputs.npz, and of peft FOLDER/adapter; writes FOLDER/outputs.npz. Imports nothing
of this project.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch


def without_torchvision_operators() -> None:
    """The torchvision that can be installed beside this torch lacks its compiled operators, and fails when it registers them."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals()["_kept_alive"] = library


def in_float64_throughout() -> None:
    """T5 there takes norms and softmaxes in float32 whatever its weights are; that would hide differences."""
    from transformers.models.t5 import modeling_t5

    def normed(self: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))

    modeling_t5.T5LayerNorm.forward = normed
    torch.Tensor.float = lambda self: self


def gradients(model: torch.nn.Module, value: torch.Tensor) -> dict[str, np.ndarray]:
    value.backward()
    return {
        f"gradient/{name}": (torch.zeros_like(p) if p.grad is None else p.grad).numpy()
        for name, p in model.named_parameters()
    }


def bert(folder: Path, config: dict, inputs: dict, dtype: torch.dtype) -> dict[str, np.ndarray]:
    import transformers

    model = loaded(getattr(transformers, config["architectures"][0]), folder, dtype)
    found = model(
        input_ids=inputs["ids"],
        token_type_ids=inputs["types"],
        attention_mask=inputs["mask"],
        output_hidden_states=True,
    )
    if "start_logits" in found:
        logits = torch.stack([found.start_logits, found.end_logits], -1)
    else:
        logits = found.prediction_logits if "prediction_logits" in found else found.logits
    outputs = {"logits": logits, "hidden": found.hidden_states[-1]}
    grads = gradients(model, (logits * inputs["cotangent"]).sum())
    return {name: value.detach().numpy() for name, value in outputs.items()} | grads


def t5(folder: Path, config: dict, inputs: dict, dtype: torch.dtype) -> dict[str, np.ndarray]:
    import transformers

    if dtype == torch.float64:
        in_float64_throughout()
    del config
    model = loaded(transformers.T5ForConditionalGeneration, folder, dtype)
    source, mask = inputs["source"], inputs["mask"]
    logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=inputs["inputs"], use_cache=False).logits
    outputs = {"logits": logits.detach().numpy()}
    outputs |= gradients(model, (logits * inputs["cotangent"]).sum())
    for beams in (1, 4):
        ids = model.generate(input_ids=source, attention_mask=mask, max_new_tokens=12, num_beams=beams, do_sample=False)
        outputs[f"generated/{beams}"] = ids[:, 1:].numpy()
    return outputs


def peft(folder: Path, config: dict, inputs: dict, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """The logits of a model with an adapter."""
    import transformers
    from peft import PeftModel

    base = loaded(getattr(transformers, config["architectures"][0]), folder, dtype)
    model = PeftModel.from_pretrained(base, folder / "adapter").eval()
    inputs = {name: value for name, value in inputs.items() if name != "cotangent"}
    return {"logits": model(**inputs).logits.detach().numpy()}


def loaded(kind: type, folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    model, report = kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    assert not report["unexpected_keys"], report
    return model.eval()


def main(kind: str, folder: Path) -> None:
    torch.set_num_threads(1)
    config = json.loads((folder / "config.json").read_text())
    with np.load(folder / "inputs.npz") as file:
        inputs = {name: torch.from_numpy(file[name]) for name in file.files}
    dtype = inputs["cotangent"].dtype
    without_torchvision_operators()
    outputs = {"bert": bert, "t5": t5, "peft": peft}[kind](folder, config, inputs, dtype)
    np.savez(folder / "outputs.npz", **outputs)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
